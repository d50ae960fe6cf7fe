package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/faults/history"
)

// A fleet is some processes that use the same locks, each with a way of its own to Redis. The seats stay; a process
// that is killed is followed by another.
type fleet struct {
	t     *testing.T
	role  role   // of each, but for what is its own
	dir   string // for what they write
	seats []*seat

	mu      sync.Mutex
	started []string         // names
	deaths  map[string]int64 // by name
}

// A seat is a process and its way to Redis.
type seat struct {
	fleet *fleet
	name  string
	lives int
	link  *link
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// newFleet starts processes on a server.
func newFleet(t *testing.T, n int, upstream, dir string, r role) *fleet {
	f := &fleet{t: t, role: r, dir: dir, deaths: make(map[string]int64)}
	for i := range n {
		f.seats = append(f.seats, &seat{fleet: f, name: fmt.Sprintf("p%d", i+1), link: newLink(t, upstream)})
		require.NoError(t, f.seats[i].start())
	}
	t.Cleanup(func() {
		for _, s := range f.seats {
			s.kill()
		}
	})
	return f
}

// process is the name of the seat's present process.
func (s *seat) process() string { return fmt.Sprintf("%s.%d", s.name, s.lives) }

func (s *seat) start() error {
	s.lives++
	r := s.fleet.role
	r.Name = s.process()
	r.Redis = s.link.addr
	r.History = s.fleet.path(r.Name, "history")
	r.Seed += uint64(s.lives)
	r.Cohort = r.Cohort && s != s.fleet.seats[0] // the modes get on with each other
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(s.fleet.path(r.Name, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	s.cmd = exec.Command(program)
	s.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	s.cmd.Stderr = log
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	s.fleet.started = append(s.fleet.started, r.Name)
	return s.cmd.Start()
}

func (f *fleet) path(process, kind string) string { return filepath.Join(f.dir, process+"."+kind) }

// kill ends the process as a crash would. Killing a dead one does nothing.
func (s *seat) kill() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	s.fleet.deaths[s.process()] = history.Now()
}

// halt stops the process where it is, and waits until all of it stands still: a signal that was sent has yet to arrive.
func (s *seat) halt() {
	s.signal(syscall.SIGSTOP)
	for {
		if _, err := syscall.Wait4(s.cmd.Process.Pid, nil, syscall.WUNTRACED, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// pause stops the process where it is, for a while.
func (s *seat) pause(d time.Duration) {
	s.signal(syscall.SIGSTOP)
	time.Sleep(d) // how long the pause is
	s.signal(syscall.SIGCONT)
}

func (s *seat) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) } // it may have ended

// clients are the workers of the processes that live.
func (f *fleet) clients() []string {
	var names []string
	for _, s := range f.seats {
		for i := range f.role.Workers {
			names = append(names, clientName(s.process(), i))
		}
	}
	return names
}

// each waits until every client of the fleet is so, or names those that are not.
func (f *fleet) each(is func(client string) bool, what string) {
	f.t.Helper()
	late := func() []string { return slices.DeleteFunc(f.clients(), is) }
	if !assert.Eventually(f.t, func() bool { return len(late()) == 0 }, limit, 2*time.Millisecond, what) {
		require.FailNow(f.t, "not all", "%v", late())
	}
}

// stop ends all processes, and waits until they have ended.
func (f *fleet) stop() {
	for _, s := range f.seats {
		_ = s.stdin.Close()
	}
	for _, s := range f.seats {
		assert.NoError(f.t, s.wait(), "%s ends when it is told to", s.process())
	}
}

// wait waits until the process has ended by itself. One that does not is made to write where it hangs to its log.
func (s *seat) wait() error {
	late := time.AfterFunc(limit, func() { s.signal(syscall.SIGQUIT) })
	defer late.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.fleet.mu.Lock()
		defer s.fleet.mu.Unlock()
		s.fleet.deaths[s.process()] = history.Now()
		return fmt.Errorf("%w; see %s", err, s.fleet.path(s.process(), "log"))
	}
	return nil
}

// ops are what all processes wrote down, the dead ones included.
func (f *fleet) ops() []history.Op {
	var all []history.Op
	for _, name := range f.started {
		ops, err := history.Read(f.path(name, "history"))
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before it began
		}
		require.NoError(f.t, err)
		all = append(all, ops...)
	}
	return all
}

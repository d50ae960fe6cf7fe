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

// A fleet is a number of processes that use the same locks, each over a link of its own to Redis. Its seats stay: a
// process that is killed is replaced by another in the same seat.
type fleet struct {
	t     *testing.T
	role  role   // the role of each process, without the fields that differ between processes
	dir   string // a folder for the files that processes write
	seats []*seat

	mu      sync.Mutex
	started []string         // names of processes
	deaths  map[string]int64 // by the processes' names
}

// A seat has a process and the process's link to Redis.
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

// process returns the name of the seat's present process.
func (s *seat) process() string { return fmt.Sprintf("%s.%d", s.name, s.lives) }

func (s *seat) start() error {
	s.lives++
	r := s.fleet.role
	r.Name = s.process()
	r.Redis = s.link.addr
	r.History = s.fleet.path(r.Name, "history")
	r.Seed += uint64(s.lives)
	r.Cohort = r.Cohort && s != s.fleet.seats[0] // sessions of both modes can share locks
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
	defer func() { _ = log.Close() }() // the process has a copy of its own
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

// kill kills the process. It does nothing if the process is dead.
func (s *seat) kill() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // the error shows only that the process was killed
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	s.fleet.deaths[s.process()] = history.Now()
}

// halt suspends the process, and waits until all its threads stand still: a signal takes a while to arrive.
func (s *seat) halt() {
	s.signal(syscall.SIGSTOP)
	for {
		if _, err := syscall.Wait4(s.cmd.Process.Pid, nil, syscall.WUNTRACED, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// pause suspends the process for a while.
func (s *seat) pause(d time.Duration) {
	s.signal(syscall.SIGSTOP)
	time.Sleep(d) // the length of the pause
	s.signal(syscall.SIGCONT)
}

func (s *seat) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) } // the process may have ended

// clients returns the names of the workers of all live processes.
func (f *fleet) clients() []string {
	var names []string
	for _, s := range f.seats {
		for i := range f.role.Workers {
			names = append(names, clientName(s.process(), i))
		}
	}
	return names
}

// each waits until a condition holds for every client of the fleet. If that takes too long, the failure names the clients for
// which it does not hold.
func (f *fleet) each(is func(client string) bool, what string) {
	f.t.Helper()
	late := func() []string { return slices.DeleteFunc(f.clients(), is) }
	if !assert.Eventually(f.t, func() bool { return len(late()) == 0 }, limit, 2*time.Millisecond, what) {
		require.FailNow(f.t, "the condition does not hold for all clients", "%v", late())
	}
}

// stop ends all processes, and waits until they have ended.
func (f *fleet) stop() {
	for _, s := range f.seats {
		_ = s.stdin.Close()
	}
	for _, s := range f.seats {
		assert.NoError(f.t, s.wait(), "%s ends when its input ends", s.process())
	}
}

// wait waits until the process has ended by itself. If the process does not end, wait makes it write the stacks of its
// goroutines to its log.
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

// ops returns the operations of all processes, dead ones included.
func (f *fleet) ops() []history.Op {
	var all []history.Op
	for _, name := range f.started {
		ops, err := history.Read(f.path(name, "history"))
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before its file existed
		}
		require.NoError(f.t, err)
		all = append(all, ops...)
	}
	return all
}

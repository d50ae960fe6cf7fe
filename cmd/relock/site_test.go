//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The test binary is also relock, and a command that leaves traces.
const roleVariable = "RELOCK_TEST_ROLE"

// pulseVariable makes a relock write beats as well, so that a test can see that it stood still.
const pulseVariable = "RELOCK_TEST_PULSE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "relock":
		if path := os.Getenv(pulseVariable); path != "" {
			go beat(path)
		}
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	case "beat":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) // all signals that a command can ignore
		beat(os.Args[1])
		os.Exit(0)
	}
	testsize.Parallel(32)
	testsize.CollectLess()
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	// Under nohup a hangup is ignored, and in the background of a script an interrupt, by this process and those it
	// starts. A signal that is waited for is not ignored.
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGHUP, syscall.SIGINT)
	go func() {
		<-ends
		os.Exit(1)
	}()
	os.Exit(m.Run())
}

// beat writes the time into a file for as long as the file exists.
func beat(path string) {
	for {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return
		}
		fmt.Fprintln(file, os.Getpid(), clock())
		_ = file.Close()
		time.Sleep(5 * time.Millisecond)
	}
}

// clock returns a time that is the same in all processes of the machine, and never jumps.
func clock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// A heart is a file to which processes write beats: the times at which they were alive.
type heart struct {
	t    *testing.T
	path string
}

func newHeart(t *testing.T) *heart {
	h := &heart{t, filepath.Join(t.TempDir(), "beats")}
	require.NoError(t, os.WriteFile(h.path, nil, 0o600))
	// A process that is still alive sees that the file is gone, before the folder is removed.
	t.Cleanup(func() { _ = os.Remove(h.path) })
	return h
}

// command returns a shell command that writes beats.
func (h *heart) command() string {
	program, err := os.Executable()
	require.NoError(h.t, err)
	return fmt.Sprintf("%s=beat '%s' '%s'", roleVariable, program, h.path)
}

// beats maps each process that wrote beats to its times.
func (h *heart) beats(yield func(pid int, at int64) bool) {
	text, err := os.ReadFile(h.path)
	require.NoError(h.t, err)
	for line := range strings.Lines(string(text)) {
		var pid int
		var at int64
		if n, _ := fmt.Sscan(line, &pid, &at); n == 2 && !yield(pid, at) {
			return
		}
	}
}

// read returns the processes that wrote beats, with their last times.
func (h *heart) read() (pids map[int]bool, last int64) {
	pids = map[int]bool{}
	for pid, at := range h.beats {
		pids[pid], last = true, max(last, at)
	}
	return pids, last
}

// beatIn reports whether any process was alive between two times.
func (h *heart) beatIn(from, to int64) bool {
	for _, at := range h.beats {
		if from <= at && at <= to {
			return true
		}
	}
	return false
}

// await waits until the given number of processes write beats.
func (h *heart) await(n int) {
	eventually(h.t, func() bool { pids, _ := h.read(); return len(pids) >= n }, "the command does not run")
}

// patience is how long a test waits before it fails.
var patience = testsize.Patience(2 * time.Minute)

func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, 2*time.Millisecond, what)
}

// A run is a relock process.
type run struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *output
	stderr *output
	ended  chan struct{}
}

// start starts relock with a Redis.
func start(t *testing.T, url string, args ...string) *run {
	t.Helper()
	r := newRun(t, url, args...)
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	return r
}

const longLease = "--lease=1m"

// newRun prepares a process. If a test does not depend on the lease of its runs, they have one that is longer than a
// machine stands still.
func newRun(t *testing.T, url string, args ...string) *run {
	program, err := os.Executable()
	require.NoError(t, err)
	lease := func(arg string) bool { return strings.HasPrefix(arg, "--lease") }
	if len(args) > 1 && (args[0] == "run" || args[0] == "hold") && !slices.ContainsFunc(args, lease) {
		args = slices.Insert(slices.Clone(args), 1, longLease)
	}
	r := &run{t: t, cmd: exec.Command(program, args...), stdout: new(output), stderr: new(output), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), roleVariable+"=relock", "REDIS_URL="+url)
	// If a test fails, a process that its command left behind has the output open: Wait waits a while for late output.
	r.cmd.WaitDelay = 10 * time.Second
	return r
}

// answered is start for a run that soon stops waiting for the lock. If the last reply of Redis comes after that time,
// relock says so, with a status of its own, and is started once more.
func answered(t *testing.T, url string, args ...string) *run {
	t.Helper()
	return answeredWith(t, nil, url, args...)
}

// answeredWith is answered with variables in the environment.
func answeredWith(t *testing.T, env []string, url string, args ...string) *run {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		r := newRun(t, url, args...)
		r.cmd.Env = append(r.cmd.Env, env...)
		r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
		r.begin()
		if !late(r.wait(), r.stderr.String()) || time.Now().After(end) {
			return r
		}
	}
}

var lateReply = regexp.MustCompile("context deadline exceeded|reached Redis too late|no reply (within|yet)")

// late reports whether relock ended because Redis did not reply in time, as on a machine that stands still.
func late(status int, said string) bool { return status == exitRedis && lateReply.MatchString(said) }

// takeAway takes a lock from its holders with relock unlock. If Redis does not reply in time, the lock may have been
// taken all the same: then the next relock finds it free.
func takeAway(t *testing.T, url, name string) {
	t.Helper()
	args := []string{"unlock", "--force", name}
	if r := start(t, url, args...); !late(r.wait(), r.stderr.String()) {
		r.exits(0)
		return
	}
	assert.Contains(t, []int{0, exitFree}, answered(t, url, args...).wait())
}

func (r *run) begin() {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Start())
	r.watch()
}

// watch waits for the end of the process that was started.
func (r *run) watch() {
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // exits checks its status
	}()
	r.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // the process has ended, if all is well
		<-r.ended
	})
}

// wait returns the exit status.
func (r *run) wait() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.Fail(r.t, "relock does not end", "%s%s", r.stdout, r.stderr)
	}
	return r.cmd.ProcessState.ExitCode()
}

// exits asserts the exit status.
func (r *run) exits(status int) {
	r.t.Helper()
	require.Equal(r.t, status, r.wait(), "%s%s", r.stdout, r.stderr)
}

// says waits until the command's output has a text.
func (r *run) says(text string) {
	r.t.Helper()
	r.prints("no "+text, func(output string) bool { return strings.Contains(output, text) })
}

// matches waits until the command's output has what a pattern matches: a terminal may pass a line on in parts.
func (r *run) matches(pattern string) {
	r.t.Helper()
	r.prints("no "+pattern, regexp.MustCompile(pattern).MatchString)
}

func (r *run) prints(what string, ok func(output string) bool) {
	r.t.Helper()
	if !assert.Eventually(r.t, func() bool { return ok(r.stdout.String()) }, patience, 2*time.Millisecond, what) {
		require.Fail(r.t, "the whole output", "%s%s", r.stdout, r.stderr)
	}
}

func (r *run) signal(sig syscall.Signal) { require.NoError(r.t, r.cmd.Process.Signal(sig)) }

// An output is what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// countLines returns how many lines have only the given text, apart from what a terminal echoes in front of it.
func countLines(text, line string) int {
	n := 0
	for l := range strings.Lines(text) {
		if strings.TrimPrefix(strings.TrimSpace(l), "^C") == line {
			n++
		}
	}
	return n
}

// session opens a session for the test. It keeps its locks, and its places in queues, however long the machine stands
// still.
func session(t *testing.T, url string, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	b, err := redisbackend.Open(t.Context(), url)
	require.NoError(t, err)
	return sessionOn(t, b, b.Close, opts...)
}

func sessionOn(t *testing.T, b backend.Backend, closeBackend func(), opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	s, err := reentrant.NewSession(b, append(opts, reentrant.WithLease(50*time.Second), reentrant.WithHeartbeat(15*time.Second))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.Close(t.Context()) // the context has ended, so the test's holds are abandoned
		closeBackend()
	})
	return s
}

// client makes a plain connection.
func client(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// embedded returns the URL of an embedded Redis.
func embedded(t *testing.T) string { return slowly("redis://" + redistest.Start(t).Addr()) }

// slowly returns the URL of a server with more time to connect and to reply, as a busy machine needs it.
func slowly(url string) string { return promptly(url) + "&write_timeout=1m" }

// promptly returns the URL of a server that is going to be frozen, with short time limits.
func promptly(url string) string { return url + "?dial_timeout=1m" }

// state returns the state of a lock in Redis. It tries again if Redis does not reply in time.
func state(t *testing.T, s *reentrant.Session, name string) reentrant.State {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		st, err := s.NewLock(name).Inspect(t.Context())
		if !errors.Is(err, reentrant.ErrUnavailable) || time.Now().After(end) {
			require.NoError(t, err)
			return st
		}
	}
}

// holdLock takes a lock for the test, and returns a function that releases it. If Redis does not confirm the release in
// time, the session repeats it in the background, and the function waits for that.
func holdLock(t *testing.T, s *reentrant.Session, name, owner string) (release func()) {
	t.Helper()
	ctx := reentrant.WithOwner(t.Context(), owner)
	lock := s.NewLock(name)
	require.NoError(t, lock.Lock(ctx))
	return func() {
		err := lock.Unlock(ctx)
		if !errors.Is(err, reentrant.ErrUnavailable) {
			assert.NoError(t, err)
			return
		}
		eventually(t, func() bool { return state(t, s, name).Owner != "~"+owner }, "the release is not repeated")
	}
}

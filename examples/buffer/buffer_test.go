package main

import (
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
)

// The test binary is also the program that buffer starts as its children.
func TestMain(m *testing.M) {
	if crew.IsChild() {
		os.Exit(crew.Play("buffer", role.play))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testsize.Parallel(8)
	testsize.CollectLess()
	os.Exit(m.Run())
}

// small is a job that is quick, but in which every worker has to wait.
func small() options {
	return options{processes: 2, producers: 3, consumers: 2, items: 300, capacity: 3, lock: lockRelock, lease: time.Second}
}

// verify asserts that a job has moved all its items, and that workers had to wait.
func verify(t *testing.T, opts options, r *result) {
	t.Helper()
	assert.True(t, r.verdict.clean(), "%+v", r.verdict)
	assert.EqualValues(t, opts.items, r.verdict.items)
	assert.EqualValues(t, opts.capacity, r.fullest, "the buffer was full")
	assert.Positive(t, r.outcome.Total.Full, "producers had to wait")
	assert.Positive(t, r.outcome.Total.Empty, "consumers had to wait")
	assert.Equal(t, opts.kills, r.outcome.Kills)
	assert.Len(t, slices.Concat(r.outcome.Names...), opts.processes+opts.kills, "each process that died was replaced")
}

func TestEveryItemComesThroughOnce(t *testing.T) {
	t.Parallel()
	opts := small()
	r, err := move(t.Context(), opts, io.Discard, t.Output())
	require.NoError(t, err)
	verify(t, opts, r)
	assert.EqualValues(t, opts.items, r.outcome.Total.Put)
	assert.EqualValues(t, opts.items, r.outcome.Total.Taken)
	// A turn takes up to four commands: lock, look, put or take, signal; and a wait takes two: await, look. The
	// remaining commands are for the ends of the queues, for heartbeats, and for renewals on a busy machine.
	turns, waits := 2*opts.items, r.outcome.Total.Full+r.outcome.Total.Empty
	assert.GreaterOrEqual(t, r.cost.Commands, int64(3*turns))
	assert.LessOrEqual(t, float64(r.cost.Commands), 1.1*float64(4*int64(turns)+2*waits)+100*r.outcome.Took.Seconds())
}

// A process can be done before it is killed. If so, the test tries another job.
func TestAKilledProcessCostsNoItem(t *testing.T) {
	t.Parallel()
	opts := small()
	opts.kills = 1
	opts.items = testsize.Of(1000, 250) // so many that the kill comes before the end
	if raceEnabled {
		opts.items = 250
	}
	for range 10 {
		r, err := move(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		if r.outcome.Kills == opts.kills {
			verify(t, opts, r)
			return
		}
		require.True(t, r.verdict.clean(), "%+v", r.verdict)
	}
	t.Error("no process was killed in ten jobs")
}

// The test does twenty times the program's default job, on a real Redis, while processes are killed. Every item takes a while,
// so all twenty thousand are moved only if REENTRANT_REDIS asks for realistic tests. Even then the server is this test's own.
// Without REENTRANT_REDIS a tenth is moved, with as many kills.
func TestProcessesAreKilledAllTheWay(t *testing.T) {
	testsize.FullOnly(t)
	t.Parallel()
	opts, err := parseOptions([]string{"-items=20000", "-kill=6", "-lease=500ms", "-redis=redis://" + relay(t, redisserver.Start(t).Addr())}, t.Output())
	require.NoError(t, err)
	if raceEnabled || os.Getenv("REENTRANT_REDIS") == "" {
		opts.items /= 10
	}
	r, err := move(t.Context(), opts, t.Output(), t.Output())
	require.NoError(t, err)
	r.Print(t.Output())
	verify(t, opts, r)
}

// relay returns an address of this process that leads to another address. If this process stands still, so do the processes
// that work through the relay, and a kill that is due does not come too late.
func relay(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pipe(in, out)
			go pipe(out, in)
		}
	}()
	return listener.Addr().String()
}

// pipe copies data until either end is closed.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// Nothing forces two workers to overlap here, but with so many workers it has always happened. If a slow machine runs them one
// after the other, the test tries another job.
func TestWithoutALockItemsAreLostAndDoubled(t *testing.T) {
	for range 10 {
		opts := small()
		opts.lock = lockNone
		r, err := move(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		if r.verdict.lost > 0 && r.verdict.doubled > 0 {
			assert.False(t, r.verdict.clean())
			return
		}
	}
	t.Error("nothing lost and doubled in ten jobs without a lock")
}

func TestAnInterruptPrintsTheResultSoFar(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	for _, signal := range signals[:testsize.Of(2, 1)] {
		var stdout strings.Builder
		interrupt := sync.OnceFunc(func() { assert.NoError(t, self.Signal(signal)) })
		status := parentMain([]string{"-items=5000", "-processes=2"}, &stdout, &trigger{after: "of 5000 items", do: interrupt})
		assert.Equal(t, screen.ExitInterrupted, status)
		assert.Regexp(t, `(?m)^Interrupted at [1-9]\d* of 5000`, stdout.String())
		assert.Contains(t, stdout.String(), "Until then every item came through exactly once.")
	}
}

func TestExitStatuses(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	assert.Equal(t, screen.ExitClean, parentMain([]string{"-items=20", "-processes=1"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "redis    embedded")
	assert.Regexp(t, `(?m)^lost +0$`, stdout.String())
	assert.Contains(t, stdout.String(), "Every item came through exactly once.")

	assert.Equal(t, screen.ExitClean, parentMain([]string{"-help"}, io.Discard, &stderr))
	for _, bad := range []string{"-items=0", "-unknown", "-redis=localhost:6379", "extra"} {
		assert.Equal(t, screen.ExitUsage, parentMain([]string{bad}, io.Discard, &stderr), bad)
	}
	assert.Equal(t, screen.ExitFinding, parentMain([]string{"-items=20", "-redis=redis://127.0.0.1:1"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "connect to Redis at redis://127.0.0.1:1")
}

// A trigger is a writer that calls a function when it has seen the text after.
type trigger struct {
	after string
	do    func()
}

func (t *trigger) Write(p []byte) (int, error) {
	if strings.Contains(string(p), t.after) {
		t.do()
	}
	return len(p), nil
}

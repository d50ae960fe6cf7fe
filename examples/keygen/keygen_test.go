package main

import (
	"io"
	"os"
	"path/filepath"
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
	"github.com/relock-go/relock/internal/testsize"
)

// The test binary is also the program that keygen starts as its children.
func TestMain(m *testing.M) {
	if crew.IsChild() {
		os.Exit(crew.Play("keygen", role.play))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testsize.CollectLess()
	os.Exit(m.Run())
}

// small is a job that is quick but keeps two processes busy. As defaultLease explains, its lease is longer than a machine may
// stand still.
func small(t *testing.T) options {
	t.Helper()
	return options{
		processes: 2,
		workers:   3,
		keys:      300,
		lock:      lockRelock,
		lease:     time.Minute,
		dsn:       filepath.Join(t.TempDir(), "keygen.db"),
	}
}

func TestEveryNumberIsHandedOutOnce(t *testing.T) {
	opts := small(t)
	opts.lock = lockCohort
	opts.turn = opts.lease / 4 // by default a process hands the lock on after some milliseconds, which can be a single step
	result, err := generate(t.Context(), opts, io.Discard, t.Output())
	require.NoError(t, err)
	assert.True(t, result.Clean(), "%+v", result.verdict)
	assert.EqualValues(t, opts.keys, result.verdict.numbers)
	assert.Less(t, result.cost.Commands, int64(opts.keys), "a process takes the lock for many of its workers")
}

func TestEveryHolderIsKnownToRedis(t *testing.T) {
	opts := small(t)
	result, err := generate(t.Context(), opts, io.Discard, t.Output())
	require.NoError(t, err)
	assert.True(t, result.Clean(), "%+v", result.verdict)
	assert.EqualValues(t, opts.keys, result.verdict.numbers)
	assert.EqualValues(t, opts.keys, result.outcome.Total.Keys)
	assert.EqualValues(t, opts.keys, result.verdict.shares["p1"]+result.verdict.shares["p2"])
	assert.Equal(t, [][]string{{"p1"}, {"p2"}}, result.outcome.Names)
	assert.GreaterOrEqual(t, result.cost.Commands, int64(opts.keys), "a hold costs at least one command")
}

// A process can be done before it is killed. If so, the test tries another job.
func TestAKilledProcessCostsNoNumber(t *testing.T) {
	testsize.FullOnly(t) // the others wait for a lease of ten seconds
	t.Parallel()
	for range 10 {
		opts := small(t)
		opts.kills = 1
		opts.keys = 1000 // so many that the kill comes before the end
		opts.lease = defaultLease
		result, err := generate(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		require.True(t, result.Clean(), "%+v", result.verdict)
		assert.EqualValues(t, opts.keys, result.verdict.numbers)
		if result.outcome.Kills == 1 {
			assert.Len(t, slices.Concat(result.outcome.Names...), 3, "the dead process was replaced")
			return
		}
	}
	t.Error("no process was killed in ten jobs")
}

// Nothing forces two workers to overlap here, but with so many workers it has always happened. If a slow machine runs them one
// after the other, the test tries another job.
func TestWithoutALockThereAreDuplicates(t *testing.T) {
	for range 10 {
		opts := small(t)
		opts.lock = lockNone
		result, err := generate(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		if result.verdict.duplicates > 0 {
			assert.False(t, result.Clean())
			return
		}
	}
	t.Error("no duplicates in ten jobs without a lock")
}

// A process can be done before it is killed. If so, the test tries another job.
func TestNoIDIsDrawnTwice(t *testing.T) {
	t.Parallel()
	for range 10 {
		opts := small(t)
		opts.ids, opts.keys, opts.kills = idsSnowflake, 3000, 1
		opts.lease = defaultLease // node numbers of dead processes are used again
		result, err := generate(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		require.True(t, result.Clean(), "%+v", result.verdict)
		assert.GreaterOrEqual(t, result.verdict.numbers, int64(opts.keys))
		assert.Positive(t, result.verdict.successions)
		if result.outcome.Kills == 1 {
			return
		}
	}
	t.Error("no process was killed in ten jobs")
}

func TestWithoutNodeNumbersIDsAreDrawnTwice(t *testing.T) {
	for range 10 {
		opts := small(t)
		opts.ids, opts.lock = idsSnowflake, lockNone
		result, err := generate(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		if result.verdict.duplicates > 0 {
			assert.False(t, result.Clean())
			return
		}
	}
	t.Error("no duplicates in ten jobs without node numbers")
}

func TestAnInterruptPrintsTheResultSoFar(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	for _, signal := range signals[:testsize.Of(2, 1)] {
		folder := t.TempDir()
		t.Setenv("TMPDIR", folder)
		var stdout strings.Builder
		interrupt := sync.OnceFunc(func() { assert.NoError(t, self.Signal(signal)) })
		status := parentMain([]string{"-keys=5000", "-processes=2"}, &stdout, &trigger{after: "of 5000 keys", do: interrupt})
		assert.Equal(t, screen.ExitInterrupted, status)
		assert.Regexp(t, `(?m)^Interrupted at [1-9]\d* of 5000`, stdout.String())
		assert.Contains(t, stdout.String(), "Until then every number was handed out exactly once.")
		assertEmpty(t, folder)
	}
}

func TestExitStatuses(t *testing.T) {
	var stdout, stderr strings.Builder
	file := filepath.Join(t.TempDir(), "keygen.db")
	assert.Equal(t, screen.ExitClean, parentMain([]string{"-keys=20", "-processes=1", "-db", file}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "database  SQLite "+file)
	assert.Regexp(t, `(?m)^duplicates +0$`, stdout.String())
	assert.Contains(t, stdout.String(), "Every number was handed out exactly once.")

	assert.Equal(t, screen.ExitClean, parentMain([]string{"-help"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), usage)
	for _, bad := range []string{"-keys=0", "-keyz=1", "-dsn=oracle://h/d", "-dsn=u@h", "-redis=localhost:6379", "extra"} {
		assert.Equal(t, screen.ExitUsage, parentMain([]string{bad}, io.Discard, &stderr), bad)
	}
	unreachable := []string{"-keys=20", "-db", file, "-redis=redis://127.0.0.1:1"}
	assert.Equal(t, screen.ExitFinding, parentMain(unreachable, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "connect to Redis at redis://127.0.0.1:1")
}

// The default database is a file in a new folder. The folder is deleted at the end, even after a job that failed.
func TestTheDefaultDatabaseIsDeletedAtTheEnd(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	var stdout strings.Builder
	require.Equal(t, screen.ExitClean, parentMain([]string{"-keys=20", "-processes=1"}, &stdout, io.Discard))
	assert.Contains(t, stdout.String(), "database  SQLite "+folder)
	assert.Contains(t, stdout.String(), "deleted at the end")
	assertEmpty(t, folder)
	require.Equal(t, screen.ExitFinding, parentMain([]string{"-keys=20", "-redis=redis://127.0.0.1:1"}, io.Discard, io.Discard))
	assertEmpty(t, folder)
}

func assertEmpty(t *testing.T, folder string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, files)
}

// An earlier version took a MySQL address in the form of Go's driver for the name of a file, and printed it.
func TestNoPasswordIsPrinted(t *testing.T) {
	var output strings.Builder
	for _, args := range [][]string{
		{"-dsn=user:secret@tcp(127.0.0.1:1)/x"}, {"-db=user:secret@tcp(127.0.0.1:1)/x"}, {"-dsn=user:secret@127.0.0.1/x"},
		{"-dsn=mysql://user:pass/secret@127.0.0.1/x"}, {"-dsn=host=127.0.0.1 password=secret"}, {"user:secret@tcp(127.0.0.1:1)/x"},
		{"-redis=user:secret@127.0.0.1:1"}, {"-redis=redis://user:secret@127.0.0.1:port"}, {"-redis=redis://:secret@127.0.0.1:1"},
	} {
		assert.NotEqual(t, screen.ExitClean, parentMain(append(args, "-keys=20"), &output, &output))
	}
	assert.NotContains(t, output.String(), "secret")
	assert.Contains(t, output.String(), "connect to MySQL at user:xxxxx@tcp(127.0.0.1:1)/x")
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

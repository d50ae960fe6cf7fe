package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
)

// The test's own program plays the children, as keygen's does.
func TestMain(m *testing.M) {
	if crew.IsChild() {
		os.Exit(crew.Play("keygen", role.play))
	}
	// A build with the detector of races would have each process sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// small is a job that is quick but keeps two processes busy. Its lease is longer than any machine stands still: see
// defaultLease.
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
	opts.turn = opts.lease / 4 // by default a turn is over after some milliseconds, which can be one step
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

func TestAKilledProcessCostsNoNumber(t *testing.T) {
	t.Parallel()
	opts := small(t)
	opts.kills = 1
	opts.keys = 1000 // enough for the kill to come on the way
	opts.lease = defaultLease
	result, err := generate(t.Context(), opts, io.Discard, t.Output())
	require.NoError(t, err)
	assert.True(t, result.Clean(), "%+v", result.verdict)
	assert.EqualValues(t, opts.keys, result.verdict.numbers)
	assert.Equal(t, 1, result.outcome.Kills)
	assert.Len(t, slices.Concat(result.outcome.Names...), 3, "the dead process was replaced")
}

// Nothing forces two workers to overlap here; they just never fail to when they are so many. Should a machine let them
// run one after the other all the same, another job is tried.
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

func TestAnInterruptEndsTheProcesses(t *testing.T) {
	t.Parallel()
	opts := small(t)
	opts.keys = 5000
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	output := &trigger{after: "of 5000 keys", do: interrupt}
	_, err := generate(ctx, opts, io.Discard, output)
	require.ErrorContains(t, err, "interrupted")
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
	assert.Equal(t, screen.ExitUsage, parentMain([]string{"-keys=0"}, io.Discard, &stderr))
	unreachable := []string{"-keys=20", "-db", file, "-redis=redis://127.0.0.1:1"}
	assert.Equal(t, screen.ExitFinding, parentMain(unreachable, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "connect to Redis at redis://127.0.0.1:1")
}

// The default database is a file in a fresh folder, which is left to be looked at.
func TestTheDefaultDatabaseIsPrinted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var stdout strings.Builder
	require.Equal(t, screen.ExitClean, parentMain([]string{"-keys=20", "-processes=1"}, &stdout, io.Discard))
	_, rest, found := strings.Cut(stdout.String(), "database  SQLite ")
	require.True(t, found)
	file, _, _ := strings.Cut(rest, "\n")
	assert.FileExists(t, file)
	assert.Equal(t, "keygen.db", filepath.Base(file))
}

// A trigger is a writer that does something once it has seen a text.
type trigger struct {
	after string
	do    func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.after) {
		w.do()
	}
	return len(p), nil
}

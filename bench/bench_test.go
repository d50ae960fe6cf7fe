package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/bench/internal/contender"
	"github.com/relock-go/relock/bench/internal/report"
	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/worker"
	"github.com/relock-go/relock/bench/internal/workload"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// The test binary is also the worker: the program starts itself again.
func TestMain(m *testing.M) {
	if worker.IsChild() {
		os.Exit(worker.Main())
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// needRedis skips the test if there is no redis-server, except on CI.
func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("CI") == "" && os.Getenv("REENTRANT_REDIS_REQUIRED") == "" {
		t.Skip("there is no redis-server")
	}
}

// newLog makes a file for the output of a program and its processes: several processes can write to a file at once.
func newLog(t *testing.T) *os.File {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, log.Close()) })
	return log
}

func text(t *testing.T, log *os.File) string {
	t.Helper()
	all, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	return string(all)
}

func TestARunFromEndToEnd(t *testing.T) {
	needRedis(t)
	contenders, workloads, cells := "relock", "uncontended,reentrant,fresh-2x20", 3
	if testsize.Full() {
		contenders, workloads, cells = "redsync,relock,cohort", "uncontended,2x20,reentrant,fresh-2x20,own,many", 17 // redsync cannot re-enter
	}
	var out string
	var r *result.Result
	for _, duration := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 10 * time.Second} {
		out = t.TempDir()
		var stdout bytes.Buffer
		stderr := newLog(t)
		status := parentMain([]string{ // three rounds, because a machine that stands still spoils a round
			"-rounds", "3", "-duration", duration.String(), "-only", contenders, "-workloads", workloads, "-out", out,
		}, &stdout, stderr)
		require.Equal(t, exitClean, status, text(t, stderr))
		assert.Contains(t, stdout.String(), "2 processes × 20 goroutines")
		var err error
		r, err = result.Load(filepath.Join(out, report.Data))
		require.NoError(t, err)
		if !slow(r, duration) {
			break
		}
	}
	require.Len(t, r.Cells, cells)
	for _, cell := range r.Cells {
		require.True(t, cell.Measured(), "%s %s: %s", cell.Workload, cell.Contender, cell.Remarks())
		assert.Zero(t, cell.Overlaps())
		for _, m := range []result.Metric{result.PerSecond, result.Bytes, result.JainProcesses} {
			if cell.Workload != "reentrant" {
				assert.Positive(t, cell.Range(m).Most, "%s %s %s", cell.Workload, cell.Contender, m.Name)
			}
		}
	}
	relock, _ := r.Cell("uncontended", "relock")
	assert.InDelta(t, 2, relock.Range(result.Commands).Least, 0.2, "other commands of the contender's client can only add to the count")
	once, _ := r.Cell("fresh-2x20", "relock")
	assert.InDelta(t, 2, once.Range(result.Commands).Least, 0.2, "each section locks a name that is free")
	assert.InDelta(t, 1, once.Range(result.Keys).Most, 0.2, "each name leaves its record for a while")
	assert.FileExists(t, filepath.Join(out, report.Page))
}

// slow reports whether this machine was too slow for measurements of the given duration. Some commands are counted once for
// each round, such as those with which a client begins. They matter little only if there are many sections.
func slow(r *result.Result, duration time.Duration) bool {
	return slices.ContainsFunc(r.Cells, func(c result.Cell) bool {
		counted := c.Contender == "relock" && (c.Workload == "uncontended" || c.Workload == "fresh-2x20")
		return !c.Measured() || counted && c.Range(result.PerSecond).Least*duration.Seconds() < 50
	})
}

// If an interrupt ends the measurements, the report has those that were done before.
func TestAnInterruptedRunWritesItsReport(t *testing.T) {
	needRedis(t)
	out, stderr := t.TempDir(), newLog(t)
	opts, err := parseOptions([]string{"-rounds", "100", "-duration", "100ms", "-only", "relock", "-workloads", "uncontended,2x20", "-out", out}, stderr)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	var stdout bytes.Buffer
	go func() { ended <- benchmark(ctx, opts, &stdout, stderr) }()
	require.Eventually(t, func() bool {
		said, err := os.ReadFile(stderr.Name())
		return err == nil && strings.Contains(string(said), "1/200")
	}, testsize.Patience(time.Minute), 10*time.Millisecond)
	interrupt()
	require.ErrorIs(t, <-ended, errInterrupted)
	r, err := result.Load(filepath.Join(out, report.Data))
	require.NoError(t, err)
	_, ok := r.Cell("uncontended", "relock")
	assert.True(t, ok)
	assert.FileExists(t, filepath.Join(out, report.Page))
	assert.Contains(t, stdout.String(), report.Page)
}

// The column overlaps shows faults: without a lock there are overlaps, and the exit status shows them, too.
func TestWithoutALockThereAreOverlaps(t *testing.T) {
	needRedis(t)
	for _, workload := range []string{"5x20-100us", "rw-50-1ms"} {
		assert.True(t, overlaps(t, workload), "no overlap in ten runs of %s without a lock", workload)
	}
}

// overlaps reports whether goroutines without a lock overlap. Nothing forces them to overlap, but so far they always have.
func overlaps(t *testing.T, workload string) bool {
	for range 10 {
		stderr := newLog(t)
		status := parentMain([]string{"-rounds", "1", "-duration", "100ms", "-only", "none", "-workloads", workload, "-out", t.TempDir()}, io.Discard, stderr)
		if strings.Contains(text(t, stderr), "two holders") {
			assert.Equal(t, exitFinding, status)
			return true
		}
	}
	return false
}

// Each line shows what readers or users of a semaphore cost Redis, and none of the contenders ever overlap.
func TestSharedHoldsFromEndToEnd(t *testing.T) {
	testsize.FullOnly(t)
	needRedis(t)
	out := t.TempDir()
	var stdout bytes.Buffer
	stderr := newLog(t)
	status := parentMain([]string{"-rounds", "3", "-duration", "100ms", "-only", "rwlock,rw-polling-1ms,semaphore,semaphore-polling-1ms,split",
		"-workloads", "5x20,rw-99,semaphore-50,semaphore-3", "-out", out}, &stdout, stderr)
	require.Equal(t, exitClean, status, text(t, stderr))
	assert.Contains(t, stdout.String(), "rw-99 by rwlock: ")
	r, err := result.Load(filepath.Join(out, report.Data))
	require.NoError(t, err)
	assert.Len(t, r.Workloads, 3, "none of these is a lock")
	require.Len(t, r.Cells, 2+3+2, "three permits cannot be split among five")
	for _, cell := range r.Cells {
		require.True(t, cell.Measured(), "%s %s: %s", cell.Workload, cell.Contender, cell.Remarks())
		assert.Zero(t, cell.Overlaps())
		assert.Positive(t, cell.Range(result.PerSecond).Most)
	}
	readers, _ := r.Cell("rw-99", "rwlock")
	assert.Positive(t, readers.Range(result.ReadP99).Most)
	polling, _ := r.Cell("rw-99", "rw-polling-1ms")
	assert.GreaterOrEqual(t, polling.Range(result.Commands).Least, 1.9, "in and out")
}

func TestAnEmbeddedRedisIsRefused(t *testing.T) {
	var stderr bytes.Buffer
	status := parentMain([]string{"-quick", "-redis", "redis://" + redistest.Start(t).Addr(), "-out", t.TempDir()}, io.Discard, &stderr)
	assert.Equal(t, exitFinding, status)
	assert.Contains(t, stderr.String(), "a real Redis is needed")
}

func TestOptionsAreChecked(t *testing.T) {
	for want, args := range map[string][]string{
		"no contender":   {"-only", "mutex"},
		"no workload":    {"-workloads", "7x7"},
		"-rounds":        {"-rounds", "-1"},
		"-duration":      {"-duration", "1ms"},
		"-out":           {"-out", ""},
		"-io-threads 0":  {"-io-threads", "0"},
		"not for -redis": {"-io-threads", "4", "-redis", "redis://localhost"},
		"is not a flag":  {"fast"},
		"flag provided":  {"-fast"},
		"invalid value ": {"-rounds", "many"},
	} {
		_, err := parseOptions(args, io.Discard)
		assert.ErrorContains(t, err, want)
	}
	opts, err := parseOptions(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, fullRounds, opts.rounds)
	assert.Equal(t, time.Second, opts.duration)
	assert.Len(t, opts.workloads, len(workload.All))
	for _, c := range contender.All() {
		missing := c.Fault || c.Missing != nil && c.Missing() != ""
		assert.Equal(t, !missing, slices.ContainsFunc(opts.contenders, func(o contender.Contender) bool { return o.Name == c.Name }), c.Name)
	}
	quick, err := parseOptions([]string{"-quick", "-duration", "1s"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, quickRounds, quick.rounds)
	assert.Equal(t, time.Second, quick.duration)
}

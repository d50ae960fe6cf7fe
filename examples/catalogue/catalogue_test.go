package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
	"github.com/relock-go/relock/internal/testsize"
)

// The test binary is also the program that catalogue starts as its children.
func TestMain(m *testing.M) {
	if crew.IsChild() {
		os.Exit(crew.Play("catalogue", role.play))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// small is a job that is quick but changes prices often. Its lease is longer than a machine may stand still.
func small() options {
	return options{
		processes: 2, workers: 3, items: 20, reads: 6000, writeEvery: 20, checkEvery: 5, lock: lockRelock, lease: time.Minute,
	}
}

func TestNoPriceIsStale(t *testing.T) {
	result, err := serve(t.Context(), small(), io.Discard, t.Output())
	require.NoError(t, err)
	total := result.outcome.Total
	assert.True(t, result.Clean(), "%+v", total)
	assert.EqualValues(t, 6000, total.Reads)
	assert.EqualValues(t, 1200, total.Checks)
	assert.EqualValues(t, 300, total.Writes)
	assert.Zero(t, total.Lost)
	assert.Less(t, total.Queries, total.Reads, "the cache saves queries")
	assert.NotZero(t, result.sample.Total.Reads)
}

// A process can be done before it is killed. If so, the test tries another job.
func TestAKilledProcessMakesNoPriceStale(t *testing.T) {
	testsize.FullOnly(t) // the other processes wait for a lease of six seconds
	t.Parallel()
	opts := small()
	opts.kills, opts.lease = 1, defaultLease
	for range 10 {
		result, err := serve(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		require.True(t, result.Clean(), "%+v", result.outcome.Total)
		if result.outcome.Kills == 1 {
			assert.Len(t, slices.Concat(result.outcome.Names...), 3, "the dead process was replaced")
			return
		}
	}
	t.Error("no process was killed in ten jobs")
}

// Nothing forces a price to change while a process trusts its cache, but so far this has always happened. If a slow machine
// prevents it, the test tries another job.
func TestWithoutALockPricesAreStale(t *testing.T) {
	for range 10 {
		opts := small()
		opts.lock = lockNone
		result, err := serve(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		if result.outcome.Total.Stale > 0 {
			assert.False(t, result.Clean())
			return
		}
	}
	t.Error("no stale price in ten jobs without a lock")
}

func TestExitStatuses(t *testing.T) {
	var stdout, stderr strings.Builder
	assert.Equal(t, screen.ExitClean, parentMain([]string{"-reads=100", "-processes=1"}, &stdout, &stderr))
	assert.Regexp(t, `(?m)^stale +0$`, stdout.String())
	assert.Contains(t, stdout.String(), "No price was stale.")
	assert.Equal(t, screen.ExitClean, parentMain([]string{"-reads=100", "-processes=1", "-lock=sql"}, &stdout, &stderr))

	assert.Equal(t, screen.ExitClean, parentMain([]string{"-help"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), usage)
	for _, bad := range []string{
		"-reads=0", "-readz=1", "-lock=java", "-kill=-1", "-lease=0s", "-redis=localhost:6379", "extra",
	} {
		assert.Equal(t, screen.ExitUsage, parentMain([]string{bad}, io.Discard, &stderr), bad)
	}
	assert.Equal(t, screen.ExitFinding, parentMain([]string{"-reads=20", "-redis=redis://127.0.0.1:1"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "connect to Redis at redis://127.0.0.1:1")
}

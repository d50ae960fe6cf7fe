package main

import (
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
)

// The test binary is also the program that redpacket starts as its children.
func TestMain(m *testing.M) {
	if crew.IsChild() {
		os.Exit(crew.Play("redpacket", role.play))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testsize.CollectLess()
	os.Exit(m.Run())
}

// small is a job that is quick, with more people than parts.
func small() options {
	return options{processes: 2, openids: 20, requests: 10, parts: 15, cents: 1000, lock: lockRelock}
}

// verify asserts that a packet was given out in full, and that the results of its requests add up too.
func verify(t *testing.T, opts options, r *result) {
	t.Helper()
	assert.True(t, r.verdict.clean(), "%+v", r.verdict)
	assert.Equal(t, opts.parts, r.verdict.served)
	assert.Equal(t, opts.parts, r.verdict.parts)
	assert.Equal(t, opts.cents, r.verdict.cents)
	did := r.outcome.Total
	assert.EqualValues(t, opts.openids*opts.requests, did.Done(), "every request was answered")
	assert.EqualValues(t, opts.parts, did.Granted)
	assert.EqualValues(t, opts.parts*(opts.requests-1), did.Already, "each further request of an openid that has a part says so")
	assert.GreaterOrEqual(t, r.cost.Commands, 2*int64(opts.parts), "the lock was taken for each part")
}

func TestNoOpenidGetsTwoParts(t *testing.T) {
	opts := small()
	r, err := giveOut(t.Context(), opts, io.Discard, t.Output())
	require.NoError(t, err)
	verify(t, opts, r)
}

func TestPartsThatAreNotNeededAreLeft(t *testing.T) {
	opts := small()
	opts.parts = 25
	r, err := giveOut(t.Context(), opts, io.Discard, t.Output())
	require.NoError(t, err)
	assert.True(t, r.verdict.clean(), "%+v", r.verdict)
	assert.Equal(t, opts.openids, r.verdict.served)
	assert.Positive(t, r.verdict.left)
	assert.Equal(t, opts.cents, r.verdict.cents+r.verdict.left)
	assert.Zero(t, r.outcome.Total.Late)
}

// This is the whole job on a real Redis.
func TestTwoHundredPeopleAskFiftyTimes(t *testing.T) {
	opts, err := parseOptions([]string{"-redis=" + redisserver.Start(t).URL()}, t.Output())
	require.NoError(t, err)
	r, err := giveOut(t.Context(), opts, t.Output(), t.Output())
	require.NoError(t, err)
	r.Print(t.Output())
	verify(t, opts, r)
}

// Nothing forces two requests to overlap here, but with so many requests it has always happened. If a slow machine serves them
// one after the other, the test gives out another packet.
func TestWithoutALockThereIsTheft(t *testing.T) {
	for range 10 {
		opts := small()
		opts.lock = lockNone
		r, err := giveOut(t.Context(), opts, io.Discard, t.Output())
		require.NoError(t, err)
		assert.Zero(t, r.verdict.missing, "no money is missing after a theft")
		if r.verdict.thieves > 0 {
			assert.False(t, r.verdict.clean())
			assert.Positive(t, r.verdict.stolen)
			assert.Less(t, r.verdict.served, opts.parts, "each stolen part is missing for another openid")
			return
		}
	}
	t.Error("no theft from ten packets without a lock")
}

func TestAnInterruptPrintsTheResultSoFar(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	for _, signal := range signals[:testsize.Of(2, 1)] {
		var stdout strings.Builder
		interrupt := sync.OnceFunc(func() { assert.NoError(t, self.Signal(signal)) })
		status := parentMain([]string{"-openids=20", "-requests=600", "-processes=2"}, &stdout, &trigger{after: "of 12000 requests", do: interrupt})
		assert.Equal(t, screen.ExitInterrupted, status)
		assert.Regexp(t, `(?m)^Interrupted at [1-9]\d* of 12000`, stdout.String())
		assert.Contains(t, stdout.String(), "Until then no person got two parts, and it adds up.")
	}
}

func TestExitStatuses(t *testing.T) {
	var stdout, stderr strings.Builder
	args := []string{"-openids=5", "-requests=4", "-parts=3", "-processes=2"}
	assert.Equal(t, screen.ExitClean, parentMain(args, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "redis       embedded")
	assert.Regexp(t, `(?m)^openids with a part +3 of 5$`, stdout.String())
	assert.Regexp(t, `(?m)^money given out +200.00 of 200.00$`, stdout.String())
	assert.Contains(t, stdout.String(), "No person got two parts")

	assert.Equal(t, screen.ExitClean, parentMain([]string{"-help"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "go run ./examples/redpacket")
	for _, bad := range []string{"-parts=0", "-unknown", "-redis=localhost:6379", "extra"} {
		assert.Equal(t, screen.ExitUsage, parentMain([]string{bad}, io.Discard, &stderr), bad)
	}
	assert.Equal(t, screen.ExitFinding, parentMain(append(args, "-redis=redis://127.0.0.1:1"), io.Discard, &stderr))
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

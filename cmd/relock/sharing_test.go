//go:build unix

package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/reentrant"
)

// inside starts a run whose command reports that it runs, and goes on until end is called. The run must then succeed.
func inside(t *testing.T, url string, args ...string) (r *run, end func()) {
	t.Helper()
	r = newRun(t, url, append(append([]string{"run"}, args...), "--", "sh", "-c", "echo ready $RELOCK_TOKEN; read line; echo done")...)
	input, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	return r, func() {
		t.Helper()
		_, err := input.Write([]byte("\n"))
		require.NoError(t, err)
		r.exits(0)
	}
}

// tokenInside waits until the command of inside runs, and returns its token.
func tokenInside(r *run) uint64 {
	r.t.Helper()
	r.says("\n")
	text, ok := strings.CutPrefix(strings.TrimSpace(r.stdout.String()), "ready ")
	require.True(r.t, ok, r.stdout)
	token, err := strconv.ParseUint(text, 10, 64)
	require.NoError(r.t, err)
	return token
}

func TestReadersRunTogetherAndAWriterAlone(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	first, endFirst := inside(t, url, "-s", "prices")
	first.says("ready")
	second, endSecond := inside(t, url, "--shared", "prices")
	second.says("ready") // beside the first reader, which waits for its input
	writer, endWriter := inside(t, url, "-x", "prices")
	eventually(t, func() bool { return sharedWaiters(t, s, "prices") == 1 }, "the writer does not wait")
	endFirst()
	assert.Equal(t, 1, sharedWaiters(t, s, "prices"))
	assert.Empty(t, writer.stdout.String(), "the writer runs beside a reader")
	endSecond()
	writer.says("ready")

	for _, flag := range []string{"-s", "-x"} {
		r := answered(t, url, "run", "-n", flag, "prices", "--", "true")
		r.exits(exitNotAcquired)
		assert.Regexp(t, `lock prices was not acquired: write-locked by session \S+ for \d+ s\n`, r.stderr.String())
	}
	endWriter()
	// No session lingers: what a run had is free when the run has ended.
	for _, flag := range []string{"-x", "-s", "-x"} {
		answered(t, url, "run", "-n", flag, "prices", "--", "true").exits(0)
	}
}

func TestOnlySoManyRunAsThereArePermits(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	var ends []func()
	for range 2 {
		r, end := inside(t, url, "--permits", "2", "jobs")
		r.says("ready")
		ends = append(ends, end)
	}
	third := answered(t, url, "run", "-w", "0.8", "-E", "3", "--permits", "2", "jobs", "--", "true")
	third.exits(3)
	assert.Regexp(t, `lock jobs was not acquired: 2 of 2 permits held by session \S+ \(permits: 1\) for \d+ s, session \S+ \(permits: 1\) for \d+ s\n`, third.stderr.String())
	ends[0]()
	answered(t, url, "run", "-n", "--permits", "2", "jobs", "--", "true").exits(0)
	ends[1]()
}

// The token of a reader is its version: between two equal versions nothing was written.
func TestTheEnvironmentHasTheVersionThatTheCommandReads(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	told := func(args ...string) uint64 {
		r, end := inside(t, url, args...)
		token := tokenInside(r)
		end()
		return token
	}
	first, again := told("-s", "prices"), told("-s", "prices")
	assert.Equal(t, first, again)
	written := told("-x", "prices")
	assert.Greater(t, written, first)
	assert.Greater(t, told("-s", "prices"), written)
	assert.Zero(t, told("--permits", "1", "jobs"))

	for _, args := range [][]string{{"-s", "prices"}, {"-x", "prices"}, {"--permits=1", "jobs"}} {
		r := newRun(t, url, append([]string{"hold"}, args...)...)
		input, err := r.cmd.StdinPipe()
		require.NoError(t, err)
		r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
		r.begin()
		assert.Equal(t, args[0] == "--permits=1", heldToken(r) == 0, "%q", args)
		require.NoError(t, input.Close())
		r.exits(0)
	}
}

func TestANameOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	holdLock(t, s, "plain", "alice")
	require.NoError(t, s.NewRWLock("prices").RLock(t.Context()))
	require.NoError(t, s.NewSemaphore("jobs", 1).Acquire(t.Context(), 1))
	c, err := serverOf(url).client()
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Do(t.Context(), c.B().Set().Key("text").Value("x").Build()).Error())
	const plain, prices, jobs = "a plain lock is taken without -s, -x and --permits", "a read-write lock is taken with -s or -x", "a semaphore is taken with --permits"
	for _, test := range []struct{ flag, name, says string }{
		{"-s", "plain", "the name is in use as a lock, not as a read-write lock; " + plain},
		{"-x", "plain", "the name is in use as a lock, not as a read-write lock; " + plain},
		{"--permits=1", "plain", "the name is in use as a lock, not as a semaphore; " + plain},
		{"", "prices", "the name is in use as a read-write lock, not as a lock; " + prices},
		{"--permits=1", "prices", "the name is in use as a read-write lock, not as a semaphore; " + prices},
		{"", "jobs", "the name is in use as a semaphore, not as a lock; " + jobs},
		{"-s", "jobs", "the name is in use as a semaphore, not as a read-write lock; " + jobs},
		{"-x", "jobs", "the name is in use as a semaphore, not as a read-write lock; " + jobs},
		{"", "text", `the key "text" holds a Redis string, not a lock`},
		{"-s", "text", `the key "text" holds a Redis string, not a read-write lock`},
		{"--permits=1", "text", `the key "text" holds a Redis string, not a semaphore`},
	} {
		for _, wait := range []string{"--nonblock", "--wait=1h"} {
			args := []string{"run", "-q", wait} // a slow machine would report the wait too
			if test.flag != "" {
				args = append(args, test.flag)
			}
			r := answered(t, url, append(args, test.name, "--", "echo", "never")...)
			r.exits(exitRedis)
			assert.Equal(t, "relock: "+test.name+": "+test.says+"\n", r.stderr.String())
			assert.Empty(t, r.stdout.String())
		}
	}
	assert.True(t, state(t, s, "plain").Locked)
}

// Nothing has to be released in Redis then, so the session's Close does not wait.
func TestARefusedKindKeepsNoSessionOpen(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	holdLock(t, s, "plain", "alice")
	require.NoError(t, s.NewRWLock("prices").RLock(t.Context()))
	one := 1
	for name, kind := range map[string]sharing{"prices": {}, "plain": {Permits: &one}} {
		h := newHold(serverOf(url), io.Discard, deadline{lease: 10 * time.Second})
		require.ErrorIs(t, h.take(t.Context(), name, kind, nil), reentrant.ErrWrongKind)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, h.session.Close(ctx), name)
		cancel()
		h.close()
	}
}

func TestASharedHoldThatIsLostEndsTheCommand(t *testing.T) {
	t.Parallel()
	for name, args := range sharedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := embedded(t)
			r, _ := inside(t, url, append([]string{"--lease=15s"}, args...)...)
			r.says("ready")
			b, err := serverOf(url).client()
			require.NoError(t, err)
			defer b.Close()
			require.NoError(t, b.Do(t.Context(), b.B().Flushall().Build()).Error())
			r.exits(exitLost)
			assert.NotContains(t, r.stdout.String(), "done")
			assert.Contains(t, r.stderr.String(), "lock prices was lost (")
		})
	}
}

// Relock looks at the hold long before a renewal is due, and so learns of the loss first. If this machine stood still, the
// session may have renewed at once, and learnt of it before: then the test tries again.
func TestAForcedUnlockTakesASharedNameFromAllItsHolders(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	said := forcedFromAll(t, url)
	for tries := 0; strings.Contains(said, leaseEnded) && tries < 4; tries++ {
		said = forcedFromAll(t, url)
	}
	for _, name := range []string{"prices", "jobs"} {
		assert.Equal(t, 2, strings.Count(said, "lock "+name+" was lost ("+takenAway), said)
	}
}

// forcedFromAll takes two shared names from two holders each, and returns what those print.
func forcedFromAll(t *testing.T, url string) (said string) {
	t.Helper()
	kinds := map[string][]string{"prices": {"-s", "prices"}, "jobs": {"--permits=2", "jobs"}}
	runs := make(map[string][]*run)
	for name, args := range kinds {
		for range 2 {
			r, _ := inside(t, url, args...) // with a long lease
			r.says("ready")
			runs[name] = append(runs[name], r)
		}
	}
	for name := range kinds {
		r := answered(t, url, "unlock", name)
		r.exits(exitUsage)
		assert.Contains(t, r.stderr.String(), "--force if that is what you want")
		takeAway(t, url, name)
	}
	for name := range kinds {
		for _, r := range runs[name] {
			r.exits(exitLost)
			assert.Contains(t, r.stderr.String(), "lock "+name+" was lost (")
			said += r.stderr.String()
		}
		answered(t, url, "unlock", "--force", name).exits(exitFree)
	}
	return said
}

var sharedKinds = map[string][]string{"reader": {"-s", "prices"}, "writer": {"-x", "prices"}, "permit": {"--permits=1", "prices"}}

func serverOf(url string) *server { return &server{Redis: url} }

// A shared hold, too, may reach a waiting run by a message, with a short lease at first.
func TestASharedHoldThatWasWaitedForHasAFullLease(t *testing.T) {
	t.Parallel()
	for name, args := range sharedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := embedded(t)
			s := session(t, url)
			var release func() error
			if l, m := s.NewRWLock("prices"), s.NewSemaphore("prices", 1); name == "permit" {
				require.NoError(t, m.Acquire(t.Context(), 1))
				release = func() error { return m.Release(t.Context(), 1) }
			} else {
				require.NoError(t, l.Lock(t.Context()))
				release = func() error { return l.Unlock(t.Context()) }
			}
			r := start(t, url, append(append([]string{"run", "--lease=30s", "--grace=10s"}, args...), "--", "sh", "-c", "sleep 0.2; exit 4")...)
			eventually(t, func() bool { return sharedWaiters(t, s, "prices") == 1 }, "it does not wait")
			require.NoError(t, release())
			r.exits(4)
			assert.NotContains(t, r.stderr.String(), "lost")
		})
	}
}

func TestASharedHoldIsNotWaitedForInsideItself(t *testing.T) {
	t.Parallel()
	for name, args := range sharedKinds {
		url := embedded(t)
		inner := newRun(t, url, append(append([]string{"run", longLease}, args...), "--", "echo", "never")...)
		r := start(t, url, append(append(append([]string{"run"}, args...), "--", inner.cmd.Path), inner.cmd.Args[1:]...)...)
		r.exits(exitUsage)
		assert.Contains(t, r.stderr.String(), "is already held by the relock run that this one is a part of", name)
		assert.Empty(t, r.stdout.String())
	}
}

func TestATerminalShowsWhichSessionsShareALock(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	readers, writer := s.NewRWLock("prices"), s.NewRWLock("table")
	require.NoError(t, readers.RLock(t.Context()))
	require.NoError(t, writer.Lock(t.Context()))
	r := newRun(t, url, "run", "-x", "prices", "--", "true")
	startOnTerminal(t, r)
	r.says("relock: waiting for prices, held by session " + s.ID() + " for ")
	require.NoError(t, readers.RUnlock(t.Context()))
	r.exits(0)

	r = newRun(t, url, "run", "-s", "table", "--", "true")
	startOnTerminal(t, r)
	r.says("relock: waiting for table, held by session " + s.ID() + " for ")
	require.NoError(t, writer.Unlock(t.Context()))
	r.exits(0)
}

// The command has ended under the lock, so its exit status is returned.
func TestASharedHoldThatIsNotReleasedIsReported(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	r, end := inside(t, promptly(server.URL()), "-s", "prices")
	r.says("ready")
	server.Freeze()
	end()
	assert.Contains(t, r.stderr.String(), "relock: the lock stays taken for up to ")
	server.Thaw()
}

func TestALeaseIsThatOfTheSessionItself(t *testing.T) {
	st := newSharedStatus("prices", reentrant.SharedState{Kind: backend.ReadWrite, Token: 2, Holders: []backend.SharedHolder{
		{Session: "a", Units: 1, TTL: time.Second}, {Session: "b", Units: 1, TTL: time.Minute},
	}})
	left, ours := st.leaseOf("a", 3)
	assert.True(t, ours)
	assert.Equal(t, time.Second, left)
	_, ours = st.leaseOf("c", 3)
	assert.False(t, ours)
	assert.True(t, st.others("a"))
	assert.True(t, st.heldBy("b"))

	plain := newStatus("plain", reentrant.State{Locked: true, Session: "a", Token: 2, TTL: -1})
	left, ours = plain.leaseOf("a", 2)
	assert.True(t, ours)
	assert.Negative(t, left)
	_, ours = plain.leaseOf("a", 1)
	assert.False(t, ours, "the session has it for another owner")
	assert.False(t, plain.others("a"))
}

// A lookFails is a lock whose look returns an error.
type lookFails struct {
	lock
	err error
}

func (l lookFails) look(context.Context) (status, error) { return status{}, l.err }

func TestANameThatOthersUseNowIsLost(t *testing.T) {
	url := embedded(t)
	s := session(t, url)
	h := &hold{session: s, lock: lookFails{plainLock{s.NewLock("lock")}, backend.ErrWrongKind}}
	a := h.ask(t.Context())
	assert.NoError(t, a.err)
	assert.True(t, a.gone)
}

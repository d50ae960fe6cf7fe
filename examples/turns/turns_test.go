package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The test binary is also the program that runs as the replicas.
func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(childMain(os.Stdin, os.Stderr))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// eventually is how long a test waits for anything before it fails.
const eventually = 2 * time.Minute

// A pair is two replicas in the test's own process, and an observer of the locks.
type pair struct {
	t       *testing.T
	role    role
	agents  [2]*agent
	kills   [2]context.CancelFunc // functions that end a replica each
	session *reentrant.Session
}

// newPair opens two replicas. Each step of a turn takes the given time.
func newPair(t *testing.T, steps int, step time.Duration) *pair {
	t.Helper()
	p := &pair{t: t, role: role{
		Steps: steps, Step: step, Lease: time.Minute,
		Redis: "redis://" + redistest.Start(t).Addr(), Database: filepath.Join(t.TempDir(), "turns.db"),
	}}
	require.NoError(t, createStore(t.Context(), p.role.Database))
	member, err := deployment.Join(p.role.Redis, reentrant.WithExplicitOwners(), reentrant.WithLease(p.role.Lease),
		reentrant.WithHeartbeat(p.role.Lease/6))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, member.Leave(context.Background())) })
	p.session = member.Session
	for i := range p.agents {
		p.opens(i + 1)
		t.Cleanup(func() { p.ends(i + 1) })
	}
	return p
}

// opens starts a replica, also for a second time.
func (p *pair) opens(number int) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.role.Number = number
	a, err := p.role.open(ctx, slog.New(slog.NewTextHandler(p.t.Output(), nil)))
	require.NoError(p.t, err)
	p.agents[number-1], p.kills[number-1] = a, cancel
	require.NoError(p.t, a.recover())
}

// ends stops a replica, and leaves its turns unfinished.
func (p *pair) ends(number int) {
	p.kills[number-1]()
	p.agents[number-1].close()
}

// adds sends a turn of conversation A to a replica, and waits until the turn has the lock or is in the queue.
func (p *pair) adds(replica int, stop bool) turn {
	p.t.Helper()
	before := p.waiting()
	a := p.agents[replica-1]
	t, err := a.store.add(p.t.Context(), "A", replica, stop)
	require.NoError(p.t, err)
	a.start(t)
	require.Eventually(p.t, func() bool { return p.is(t).State != queued || p.waiting() > before }, eventually, 5*time.Millisecond)
	return t
}

func (p *pair) lock() *reentrant.Lock { return p.session.NewLock("turns:A") }

// waiting returns how many turns are in the queue of conversation A.
func (p *pair) waiting() int {
	p.t.Helper()
	var state reentrant.State
	answered(p.t, func() (err error) {
		state, err = p.lock().Inspect(p.t.Context())
		return err
	})
	return len(state.Waiting)
}

// answered sends a command until Redis replies in time. On a machine that stands still it may not.
func answered(t *testing.T, ask func() error) {
	t.Helper()
	err := ask()
	for begun := time.Now(); errors.Is(err, reentrant.ErrUnavailable) && time.Since(begun) < eventually; err = ask() {
	}
	require.NoError(t, err)
}

// is returns the progress of a turn.
func (p *pair) is(t turn) progress {
	p.t.Helper()
	turns, err := p.agents[0].store.progress(context.Background(), t.Conversation)
	require.NoError(p.t, err)
	i := slices.IndexFunc(turns, func(each progress) bool { return each.Number == t.Number })
	require.GreaterOrEqual(p.t, i, 0, "turn %d is not shown", t.Number)
	return turns[i]
}

// becomes waits until a turn has the state, or has ended.
func (p *pair) becomes(t turn, want state) progress {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		return slices.Contains([]state{want, done, stopped, lost, failed}, p.is(t).State)
	}, eventually, 5*time.Millisecond, "turn %d", t.Number)
	now := p.is(t)
	require.Equal(p.t, want, now.State, "turn %d", t.Number)
	return now
}

// said returns the conversation, as the numbers of the turns that wrote it. After that nothing may write to it.
func (p *pair) said() []int {
	p.t.Helper()
	lines, err := p.agents[0].store.memory("A").read(p.t.Context(), 1<<52)
	require.NoError(p.t, err)
	numbers := []int{}
	for _, l := range lines {
		numbers = append(numbers, l.Turn)
	}
	return numbers
}

func TestTurnsOfAConversationComeInTheOrderOfArrivalAtAnyReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, 0)
	first := p.session.NewLock("turns:A")
	owner := reentrant.WithPortableOwner(t.Context(), "an earlier turn")
	require.NoError(t, first.Lock(owner))
	var turns []turn
	for _, replica := range []int{1, 1, 2, 1, 2, 2} {
		turns = append(turns, p.adds(replica, false))
	}
	require.NoError(t, first.Unlock(owner))
	for _, each := range turns {
		assert.Equal(t, 2, p.becomes(each, done).Steps)
	}
	assert.Equal(t, []int{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}, p.said())
}

func TestANewcomerMayAskTheRunningTurnToStop(t *testing.T) {
	t.Parallel()
	p := newPair(t, 3, time.Hour)
	first := p.adds(1, false)
	p.becomes(first, running)
	second := p.adds(2, true)
	assert.Zero(t, p.becomes(first, stopped).Steps)
	p.becomes(second, running)
	third := p.adds(2, true)
	p.becomes(second, stopped)
	p.becomes(third, running)
}

func TestAPatientNewcomerStopsNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, 20, 10*time.Millisecond)
	first := p.adds(1, false)
	second := p.adds(2, false)
	assert.Equal(t, 20, p.becomes(first, done).Steps)
	assert.Equal(t, 20, p.becomes(second, done).Steps)
}

// The turn ends although its step takes an hour.
func TestATurnEndsWithItsHold(t *testing.T) {
	testsize.FullOnly(t) // a third of a lease of 15 seconds
	t.Parallel()
	p := newPair(t, 1, time.Hour)
	p.agents[0].lease = 15 * time.Second // the turn learns of the loss at the next renewal, within a third of this time
	first := p.adds(1, false)
	p.becomes(first, running)
	require.Eventually(t, func() bool {
		st, err := p.lock().Inspect(t.Context())
		return err == nil && st.Note == "turn 1, replica 1"
	}, eventually, time.Millisecond, "relock inspect shows which turn it is")
	answered(t, func() error {
		_, err := p.lock().ForceUnlock(reentrant.WithPortableOwner(t.Context(), "an operator"))
		return err
	})
	p.becomes(first, lost)
	assert.Empty(t, p.said())
}

// A replica that was suspended beyond its lease writes nothing when it goes on, even before it knows of the loss.
func TestAnEarlierTurnWritesNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 0)
	memory := p.agents[0].store.memory("A")
	_, err := memory.read(t.Context(), 7)
	require.NoError(t, err)
	said, err := memory.read(t.Context(), 9)
	require.NoError(t, err)
	require.NoError(t, memory.write(t.Context(), 9, append(said, line{Turn: 2, Step: 1})))
	require.ErrorIs(t, memory.write(t.Context(), 7, []line{{Turn: 1, Step: 1}}), fence.ErrStale)
	assert.Equal(t, lost, stateAfter(fence.ErrStale))
	assert.Equal(t, []int{2}, p.said())
}

func TestATurnGoesOnUnderItsHoldAfterACrash(t *testing.T) {
	t.Parallel()
	p := newPair(t, 3, time.Hour)
	p.agents[0].step = 0
	quick := p.adds(1, false)
	p.becomes(quick, done)
	p.agents[0].step = time.Hour
	first, waits := p.adds(1, false), p.adds(2, false)
	before := p.becomes(first, running)
	p.ends(1)
	p.role.Step = 0
	p.opens(1)
	after := p.becomes(first, done)
	assert.Equal(t, before.Token, after.Token, "the turn has the same hold")
	assert.Equal(t, 2, after.Begun)
	assert.Equal(t, 3, after.Steps)
	p.becomes(waits, running)
}

func TestATurnGoesOnAfterItsLastStep(t *testing.T) {
	t.Parallel()
	p := newPair(t, 3, 0)
	a := p.agents[0]
	first, err := a.store.add(t.Context(), "A", 1, false)
	require.NoError(t, err)
	require.NoError(t, a.store.memory("A").write(t.Context(), 1, []line{{first.Number, 1}, {first.Number, 2}}))
	a.start(first)
	p.becomes(first, done)
	assert.Equal(t, []int{1, 1, 1}, p.said())
}

// A turn that waited in the queue of a replica that has ended waits in the queue again.
func TestATurnThatWaitedIsNotForgottenAfterACrash(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, time.Hour)
	first, waits := p.adds(1, false), p.adds(2, false)
	p.becomes(first, running)
	p.ends(2)
	p.role.Step = 0
	p.opens(2)
	p.ends(1)
	p.opens(1)
	p.becomes(first, done)
	p.becomes(waits, done)
}

func TestPagesAndRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, 0)
	web := httptest.NewServer((&server{agent: p.agents[0], servers: []string{"http://one", "http://two"}}).handler())
	t.Cleanup(web.Close)
	for _, each := range []struct {
		method, path string
		want         int
		text         string
	}{
		{"GET", "/", http.StatusOK, `<span aria-current="page">Replica 1</span>`},
		{"GET", "/page.js", http.StatusOK, "EventSource"},
		{"POST", "/conversations/A/turns", http.StatusAccepted, "Turn 1 of conversation A"},
		{"POST", "/conversations/unknown/turns", http.StatusNotFound, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), each.method, web.URL+each.path, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, each.want, response.StatusCode, each.path)
		assert.Contains(t, string(body), each.text)
	}
}

func TestOptions(t *testing.T) {
	for _, bad := range []string{"-steps=0", "-step=-1s", "-lease=1ms", "-redis=localhost:6379", "-unknown", "extra"} {
		assert.Equal(t, screen.ExitUsage, parentMain([]string{bad}, io.Discard, io.Discard), bad)
	}
	var help strings.Builder
	assert.Equal(t, screen.ExitClean, parentMain([]string{"-help"}, io.Discard, &help))
	assert.Contains(t, help.String(), "go run ./examples/turns")
	assert.Equal(t, screen.ExitFinding, parentMain([]string{"-redis=redis://127.0.0.1:1"}, io.Discard, &help))
}

package localqueue

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/waitline"
)

// Nearly every test runs in a synctest bubble. Time there is virtual, and synctest.Wait returns when all goroutines are
// blocked, which fixes the order of arrival. A bubble fails by itself when all its goroutines are blocked for ever or
// one of them is left over: so lost batons and leaked goroutines need no assertions.

// An exclusion asserts that only one goroutine at a time is inside.
type exclusion struct{ inside atomic.Int32 }

func (e *exclusion) enter(t *testing.T) {
	if was := e.inside.Swap(1); was != 0 {
		t.Errorf("%d inside on entry", was)
	}
}

func (e *exclusion) exit(t *testing.T) {
	if was := e.inside.Swap(0); was != 1 {
		t.Errorf("%d inside on exit", was)
	}
}

// section enters and leaves, and lets other goroutines run in between.
func (e *exclusion) section(t *testing.T) {
	e.enter(t)
	runtime.Gosched()
	e.exit(t)
}

// requireConserved asserts that there is exactly one baton, that it is free, and that no goroutine waits.
func requireConserved[K comparable](t *testing.T, q *Queue[K]) {
	t.Helper()
	var owner K
	require.Equal(t, Claimed, q.TryClaim(owner, Fair), "the next claim gets the baton")
	require.Equal(t, Busy, q.TryClaim(owner, Fair), "there is a second baton")
	require.False(t, q.Pass(), "a goroutine still waits")
	q.Leave()
	require.True(t, q.Idle())
	require.Zero(t, q.Len())
	require.LessOrEqual(t, q.spares.Len, waitline.MaxSpares)
}

// A claim is a Claim under way in a goroutine of its own.
type claim struct {
	owner  string
	cancel func() // cancels the claim
	ended  chan Outcome
}

// claimAs starts a claim and returns when it has ended or waits.
func claimAs(q *Queue[string], owner string, mode Mode) *claim {
	done := make(chan struct{})
	c := &claim{owner: owner, cancel: func() { close(done) }, ended: make(chan Outcome, 1)}
	go func() { c.ended <- q.Claim(owner, mode, done, nil) }()
	synctest.Wait()
	return c
}

// outcome returns the claim's outcome when all goroutines are blocked or done, 0 if it still waits.
func (c *claim) outcome() Outcome {
	synctest.Wait()
	select {
	case o := <-c.ended:
		return o
	default:
		return 0
	}
}

// A begin is a Begin under way in a goroutine of its own.
type begin struct {
	holds int
	ok    bool
	ended bool
}

// beginAs starts a Begin and returns when it has ended or waits. The fields of the begin may be read after synctest.Wait.
func beginAs(q *Queue[string], owner string) *begin {
	b := &begin{}
	go func() {
		b.holds, b.ok = q.Begin(owner)
		b.ended = true
	}()
	synctest.Wait()
	return b
}

// settleAs makes owner the holder of a free baton.
func settleAs(t *testing.T, q *Queue[string], owner string, holds int) {
	t.Helper()
	require.Equal(t, Claimed, q.TryClaim(owner, Fair))
	q.Settle(holds)
}

var (
	errNotHeld      = errors.New("not held")
	errTooManyHolds = errors.New("too many holds")
	errShut         = errors.New("shut")
)

// lock takes a re-entrant lock as package reentrant does, with a server that grants everything.
func lock[K comparable](ctx context.Context, q *Queue[K], owner K) error {
	got := q.Claim(owner, Fair, ctx.Done(), nil)
	if got == Cancelled {
		return cmp.Or(ctx.Err(), errShut)
	}
	return settleOneMore(q, owner, got)
}

// tryLock is lock without a wait.
func tryLock[K comparable](q *Queue[K], owner K) bool {
	got := q.TryClaim(owner, Fair)
	return got != Busy && settleOneMore(q, owner, got) == nil
}

// settleOneMore settles a granted claim with one more hold, if the owner can have one more.
func settleOneMore[K comparable](q *Queue[K], owner K, got Outcome) error {
	holds := 0
	if got == Reentered {
		holds = q.HoldCount(owner)
	}
	if holds == MaxHolds {
		q.Settle(holds)
		return errTooManyHolds
	}
	q.Settle(holds + 1)
	return nil
}

// unlock releases one hold of a re-entrant lock as package reentrant does.
func unlock[K comparable](q *Queue[K], owner K) error {
	holds, ok := q.ExitOrBegin(owner)
	if ok && holds > 0 {
		return nil
	}
	if !ok {
		holds, ok = q.Begin(owner)
	}
	switch {
	case !ok:
		return errNotHeld
	case holds > 1:
		q.Settle(holds - 1)
	case !q.Pass():
		q.Leave()
	}
	return nil
}

// claimant returns the owner that has the baton without holds, if there is one.
func claimant[K comparable](q *Queue[K]) (owner K, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.owner, q.state == busy && q.holds == 0
}

// sendAway ends all waits as Shut does, and opens the queue again.
func sendAway[K comparable](q *Queue[K]) {
	q.Shut()
	q.mu.Lock()
	q.shut = false
	q.unlock()
}

// requireLine asserts which owner holds the baton, how often, and which owners wait.
func requireLine(t *testing.T, q *Queue[string], holder string, holds int, waiters ...string) {
	t.Helper()
	got, _ := q.Holder()
	require.Equal(t, holder, got, "holder")
	require.Equal(t, holds, q.HoldCount(holder), "holds")
	require.Equal(t, append([]string{}, waiters...), q.Waiters(), "waiters")
	require.Len(t, waiters, q.Len())
}

// holdBack keeps the baton until all goroutines that want it are in line and release is called. Without holdBack the
// goroutines of a storm may run one after the other, and never meet.
func holdBack(t *testing.T, q *Queue[int], holder int) (release func()) {
	t.Helper()
	require.Equal(t, Claimed, q.TryClaim(holder, Fair))
	return func() {
		synctest.Wait()
		q.Leave()
	}
}

// rounds returns n, or less with -short.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// newSeed returns a seed for a test's random choices, and logs it. The order of the choices is up to the scheduler.
func newSeed(t *testing.T) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}

func requireBug(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		assert.Regexp(t, "^(localqueue|waitline): bug: ", text)
	}()
	f()
}

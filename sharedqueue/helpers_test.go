package sharedqueue

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/internal/testsize"
	"github.com/stretchr/testify/require"
)

// Tests with waits run in a synctest bubble: synctest.Wait returns when all goroutines are blocked, which fixes the
// order of arrival, and a bubble fails by itself when a goroutine is left over.

// keyOf returns a number for names of one letter, except c.
func keyOf(owner string) (hash, number uint64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner))
	if len(owner) == 1 && owner != "c" {
		number = uint64(owner[0])
	}
	return h.Sum64(), number
}

// named returns the owner with a number.
func named(number uint64) string { return string(rune(number)) }

// A clock is the virtual time of a test.
type clock struct{ time time.Duration }

func (c *clock) now() time.Duration { return c.time }

const hour = time.Hour

// newRW makes a queue with the given units, trusted for an hour, and with a thousand tokens.
func newRW(units int) (*RW[string], *clock) {
	c := &clock{}
	q := NewRW(c.now, keyOf, named)
	q.Settle(terms0(units))
	q.Look()
	return q, c
}

func terms0(units int) Terms {
	t := Terms{Units: units, Until: hour}
	if units == All {
		t.First, t.Last = 1002, 3000
	}
	return t
}

func newPermits(units int) (*Permits, *clock) {
	c := &clock{}
	q := NewPermits(c.now)
	q.Settle(Terms{Units: units, Until: hour})
	q.Look()
	return q, c
}

// A claim is an Enter. If it needs a Wait, that runs in a goroutine of its own.
type claim struct {
	cancel  func() // cancels the wait
	timeout chan time.Time
	ended   chan Outcome
}

// begin starts a claim by the functions Enter and Wait. It returns when the claim has ended or waits.
func begin(enter func() (Outcome, func(done <-chan struct{}, timeout <-chan time.Time) Outcome)) *claim {
	done := make(chan struct{})
	c := &claim{cancel: func() { close(done) }, timeout: make(chan time.Time, 1), ended: make(chan Outcome, 1)}
	o, wait := enter()
	if o != Waiting {
		c.ended <- o
		return c
	}
	go func() { c.ended <- wait(done, c.timeout) }()
	synctest.Wait()
	return c
}

func enterRW(q *RW[string], owner string, mode Mode) *claim {
	return begin(func() (Outcome, func(<-chan struct{}, <-chan time.Time) Outcome) {
		o, w, _, _ := q.Enter(owner, mode)
		return o, func(done <-chan struct{}, timeout <-chan time.Time) Outcome {
			o, _, _ := q.Wait(w, done, timeout)
			return o
		}
	})
}

func enterPermits(q *Permits, n int, mode Mode) *claim {
	return begin(func() (Outcome, func(<-chan struct{}, <-chan time.Time) Outcome) {
		o, w, _, _ := q.Enter(n, mode)
		return o, func(done <-chan struct{}, timeout <-chan time.Time) Outcome {
			o, _, _ := q.Wait(w, done, timeout)
			return o
		}
	})
}

// outcome returns the claim's outcome when all goroutines are blocked or done, Waiting if it still waits.
func (c *claim) outcome() Outcome {
	synctest.Wait()
	select {
	case o := <-c.ended:
		c.ended <- o
		return o
	default:
		return Waiting
	}
}

func requireOutcome(t *testing.T, want Outcome, claims ...*claim) {
	t.Helper()
	for i, c := range claims {
		require.Equal(t, want.String(), c.outcome().String(), "claim %d", i)
	}
}

func requireLook(t *testing.T, want bool, changed bool) {
	t.Helper()
	require.Equal(t, want, changed, "whether the engine should look")
}

func newSeed(t *testing.T) uint64 {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}

// rounds returns how often a random test repeats.
func rounds(n int) int {
	return testsize.Of(10*n, n)
}

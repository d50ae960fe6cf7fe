package localqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// reserve claims the baton with ReserveWithin. If got is not 0, the claim has ended. If got is 0, the claim is in line, and
// the function wait returns its outcome.
func reserve(q *Queue[string], owner string, mode Mode, most int) (got Outcome, wait func() Outcome) {
	p := q.ReserveWithin(owner, mode, most)
	wait = func() Outcome { return q.Wait(p, nil, nil) }
	if p.Outcome() == Busy {
		return 0, wait
	}
	return wait(), nil
}

func TestAClaimWithinALimitDoesNotJoinALongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		got, _ := reserve(&q, "a", Fair, 1)
		require.Equal(t, Claimed, got, "a free baton needs no wait")
		got, _ = reserve(&q, "b", Fair, 1)
		require.Equal(t, Full, got, "a has the baton, and has not settled: it waits for the server")
		q.Settle(1)
		got, second := reserve(&q, "b", Fair, 1)
		require.Zero(t, got, "the holder does not wait")
		for _, mode := range []Mode{Fair, Shared, Barging} {
			got, _ = reserve(&q, "c", mode, 1)
			require.Equal(t, Full, got)
		}
		got, third := reserve(&q, "c", Fair, 2)
		require.Zero(t, got, "each claim has a limit of its own")
		require.Equal(t, []string{"b", "c"}, q.QueuedOwners(), "a refused claim leaves nothing")
		q.Begin("a")
		q.Leave()
		require.Equal(t, Claimed, second())
		q.Leave()
		require.Equal(t, Claimed, third())
		q.Leave()
		requireConserved(t, &q)
	})
}

// A goroutine of the owner that has the baton is let in with that owner, and does not make the line longer for others.
func TestAnOwnerIsNotRefusedBehindItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		waiting := claimAs(&q, "b", Fair)
		got, _ := reserve(&q, "a", Shared, 1)
		require.Equal(t, Reentered, got)
		got, sibling := reserve(&q, "a", Shared, 1)
		require.Zero(t, got, "an operation of the owner is under way")
		q.Settle(2)
		require.Equal(t, Reentered, sibling())
		q.Leave()
		require.Equal(t, Claimed, waiting.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

package localqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// These are the steps by which the JSR-166 suite tests hasQueuedThreads, getQueueLength and getQueuedThreads.
func TestTheWaitersCanBeInspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		waiting := func(want ...string) {
			t.Helper()
			require.Equal(t, append([]string{}, want...), q.Waiters())
			require.Len(t, want, q.Len())
		}
		waiting()
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		waiting()
		b := claimAs(&q, "b", Fair)
		waiting("b")
		c := claimAs(&q, "c", Shared)
		waiting("b", "c")
		b.cancel()
		require.Equal(t, Cancelled, b.outcome())
		waiting("c")
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		waiting()
		q.Leave()
		requireConserved(t, &q)
	})
}

// A claim counts as queued until it settles: there is no moment at which an owner neither waits nor holds.
func TestAClaimIsQueuedUntilItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		queued := func(want ...string) {
			t.Helper()
			require.Equal(t, append([]string{}, want...), q.QueuedOwners())
			require.Equal(t, len(want), q.Queued())
		}
		queued()
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		queued()
		b, s1, s2 := claimAs(&q, "b", Fair), claimAs(&q, "s", Shared), claimAs(&q, "s", Shared)
		queued("b", "s", "s")
		q.Leave()
		queued("b", "s", "s") // b has the baton, whether it has woken or not
		require.Equal(t, Claimed, b.outcome())
		q.Settle(1)
		queued("s", "s")
		q.Begin("b")
		require.True(t, q.Pass())
		queued("s", "s")
		require.Equal(t, Claimed, s1.outcome())
		q.Settle(1)
		queued("s") // a re-enters
		require.Equal(t, Reentered, s2.outcome())
		q.Settle(2)
		queued()
		q.Begin("s")
		q.Leave()
		c := claimAs(&q, "c", Fair)
		require.Equal(t, Claimed, c.outcome())
		queued("c")
		require.False(t, q.Pass())
		queued() // c stops waiting, and leaves the line
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestTheBatonCanBeInspected(t *testing.T) {
	var q Queue[string]
	look := func(holder string, holds int, idle bool) {
		t.Helper()
		got, ok := q.Holder()
		require.Equal(t, holder, got)
		require.Equal(t, holder != "", ok)
		require.Equal(t, holds, q.HoldCount("a"))
		require.Zero(t, q.HoldCount("b"))
		require.Equal(t, idle, q.Idle())
	}
	look("", 0, true)
	q.TryClaim("a", Fair)
	look("", 0, false) // a claimant is not a holder
	q.Settle(2)
	look("a", 2, false)
	q.Begin("a")
	look("a", 2, false) // an operation under way does not change the holder
	q.Settle(1)
	look("a", 1, false)
	q.Begin("a")
	q.Leave()
	look("", 0, true)
}

func TestWaitersIsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Fair)
		before := q.Waiters()
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		require.Equal(t, []string{"b"}, before)
		q.Leave()
		requireConserved(t, &q)
	})
}

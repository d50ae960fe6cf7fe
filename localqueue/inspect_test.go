package localqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The script that the JSR-166 suite runs for hasQueuedThreads, getQueueLength and getQueuedThreads.
func TestTheLineCanBeInspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		waiting := func(want ...string) {
			t.Helper()
			require.Equal(t, append([]string{}, want...), q.Waiters())
			require.Len(t, want, q.Len())
			for _, owner := range []string{"", "a", "b", "c"} {
				require.Equal(t, len(want) > 0 && (want[0] == owner || want[len(want)-1] == owner), q.Waiting(owner))
			}
		}
		waiting()
		require.Equal(t, Claimed, q.TryClaim("a"))
		waiting()
		b := claimAs(&q, "b", false)
		waiting("b")
		c := claimAs(&q, "c", true)
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

func TestTheBatonCanBeInspected(t *testing.T) {
	var q Queue[string]
	look := func(claimant, holder string, holds int) {
		t.Helper()
		got, ok := q.Claimant()
		require.Equal(t, claimant, got)
		require.Equal(t, claimant != "", ok)
		got, ok = q.Holder()
		require.Equal(t, holder, got)
		require.Equal(t, holder != "", ok)
		require.Equal(t, holds, q.HoldCount("a"))
		require.Zero(t, q.HoldCount("b"))
		require.Equal(t, claimant == "" && holder == "", q.Idle())
	}
	look("", "", 0)
	q.TryClaim("a")
	look("a", "", 0)
	q.Settle(2)
	look("", "a", 2)
	q.Begin("a")
	look("", "a", 2) // an operation under way takes nothing away
	q.Settle(1)
	look("", "a", 1)
	q.Begin("a")
	q.Leave()
	look("", "", 0)
}

func TestWaitersIsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b := claimAs(&q, "b", false)
		before := q.Waiters()
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		require.Equal(t, []string{"b"}, before)
		q.Leave()
		requireConserved(t, &q)
	})
}

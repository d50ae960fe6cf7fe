package localqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestEvictingFreesTheBatonIfNoGoroutineWaits(t *testing.T) {
	var q Queue[string]
	settleAs(t, &q, "a", 5)
	require.True(t, q.Evict("a"))
	require.Zero(t, q.HoldCount("a"))
	require.False(t, q.Evict("a"), "once")
	requireConserved(t, &q)
}

func TestEvictingGivesTheBatonToTheLongestWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 5)
		b, c := claimAs(&q, "b", Fair), claimAs(&q, "c", Fair)
		require.True(t, q.Evict("a"))
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		require.Zero(t, q.HoldCount("b"), "a claimant starts without holds")
		q.Settle(1)
		require.True(t, q.Evict("b"))
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestOnlyTheHolderIsEvicted(t *testing.T) {
	var q Queue[string]
	require.False(t, q.Evict("a"))
	require.Equal(t, Claimed, q.TryClaim("a", Fair))
	require.False(t, q.Evict("a"), "a claimant")
	q.Settle(1)
	require.False(t, q.Evict("b"))
	requireLine(t, &q, "a", 1)
	require.True(t, q.Evict("a"))
	requireConserved(t, &q)
}

func TestAHolderAtWorkIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 2)
		q.Begin("a")
		b := claimAs(&q, "b", Fair)
		require.False(t, q.Evict("a"))
		require.Zero(t, b.outcome(), "two goroutines at work with one baton")
		q.Settle(1)
		require.True(t, q.Evict("a"))
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAnEvictedOwnerHoldsNothing(t *testing.T) {
	var q Queue[string]
	settleAs(t, &q, "a", 3)
	require.True(t, q.Evict("a"))
	_, began := q.Begin("a")
	require.False(t, began)
	_, entered := q.Reenter("a")
	require.False(t, entered)
	_, exited := q.ExitOrBegin("a")
	require.False(t, exited)
	require.ErrorIs(t, unlock(&q, "a"), errNotHeld)
	require.Equal(t, Claimed, q.Claim("a", Fair, nil, nil), "from the start")
	q.Leave()
	requireConserved(t, &q)
}

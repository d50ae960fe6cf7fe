package localqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func closedDone() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func TestOutcomesHaveNames(t *testing.T) {
	for want, o := range map[string]Outcome{
		"claimed": Claimed, "reentered": Reentered, "busy": Busy, "cancelled": Cancelled, "timed out": TimedOut,
		"full":       Full,
		"Outcome(0)": 0, "Outcome(7)": 7, "Outcome(-1)": -1,
	} {
		require.Equal(t, want, o.String())
	}
}

func TestAFreeBatonIsClaimedAtOnce(t *testing.T) {
	var q Queue[string]
	require.True(t, q.Idle())
	require.Equal(t, Claimed, q.Claim("a", Fair, nil, nil))
	require.False(t, q.Idle())
	require.Equal(t, Busy, q.TryClaim("b", Fair))
	require.Equal(t, Busy, q.TryClaim("a", Fair), "the owner's own claim is under way")
	q.Leave()
	require.True(t, q.Idle())
}

func TestSettlingMakesTheClaimantTheHolder(t *testing.T) {
	var q Queue[string]
	settleAs(t, &q, "a", 3)
	requireLine(t, &q, "a", 3)
	require.Equal(t, Busy, q.TryClaim("b", Fair))
	require.Equal(t, Reentered, q.TryClaim("a", Fair))
	q.Settle(4)
	requireLine(t, &q, "a", 4)
}

func TestTheHolderGetsInPastTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		b := claimAs(&q, "b", Fair)
		require.Equal(t, Reentered, q.Claim("a", Fair, nil, nil))
		q.Settle(2)
		requireLine(t, &q, "a", 2, "b")
		require.True(t, q.Evict("a"))
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestPassGivesTheLongestWaiterABatonWithoutHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 7)
		b, c := claimAs(&q, "b", Fair), claimAs(&q, "c", Fair)
		holds, ok := q.Begin("a")
		require.True(t, ok)
		require.Equal(t, 7, holds)
		require.True(t, q.Pass())
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		owner, ok := claimant(&q)
		require.True(t, ok)
		require.Equal(t, "b", owner)
		require.Zero(t, q.HoldCount("a"))
		require.Zero(t, q.HoldCount("b"))
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestPassChangesNothingWhenNoGoroutineWaits(t *testing.T) {
	var q Queue[string]
	settleAs(t, &q, "a", 2)
	q.Begin("a")
	require.False(t, q.Pass())
	require.Equal(t, 2, q.HoldCount("a"))
	require.Equal(t, Busy, q.TryClaim("a", Fair), "still busy")
	q.Leave()
	requireConserved(t, &q)
}

func TestADoneThatIsClosedNeverTakes(t *testing.T) {
	var q Queue[string]
	require.Equal(t, Cancelled, q.Claim("a", Fair, closedDone(), nil), "free")
	require.True(t, q.Idle())
	settleAs(t, &q, "a", 1)
	require.Equal(t, Cancelled, q.Claim("a", Fair, closedDone(), nil), "the owner's own hold")
	require.Equal(t, Cancelled, q.Claim("b", Fair, closedDone(), nil), "another's")
	requireLine(t, &q, "a", 1)
	require.True(t, q.Evict("a"), "no operation is under way")
	requireConserved(t, &q)
}

func TestATimeoutEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		start := time.Now()
		require.Equal(t, TimedOut, q.Claim("b", Fair, nil, time.After(time.Minute)))
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, TimedOut, q.Claim("b", Fair, make(chan struct{}), time.After(time.Hour)))
		requireLine(t, &q, "a", 1)
		require.True(t, q.Evict("a"))
		requireConserved(t, &q)
	})
}

func TestATimeoutThatHasFiredTriesOnce(t *testing.T) {
	var q Queue[string]
	fired := make(chan time.Time, 1)
	fired <- time.Time{}
	require.Equal(t, Claimed, q.Claim("a", Fair, nil, fired))
	require.Equal(t, TimedOut, q.Claim("b", Fair, nil, fired))
	q.Leave()
	requireConserved(t, &q)
}

func TestBeginNeedsAHold(t *testing.T) {
	var q Queue[string]
	refused := func(owner string) {
		t.Helper()
		holds, ok := q.Begin(owner)
		require.False(t, ok)
		require.Zero(t, holds)
	}
	refused("") // the owner of a free baton is the zero owner
	q.TryClaim("a", Fair)
	refused("a") // a claim is not a hold
	q.Settle(1)
	refused("b")
	require.True(t, q.Evict("a"))
	refused("a")
	requireConserved(t, &q)
}

func TestTheZeroOwnerIsAnOwner(t *testing.T) {
	var q Queue[string]
	require.False(t, q.Evict(""))
	require.ErrorIs(t, unlock(&q, ""), errNotHeld)
	settleAs(t, &q, "", 1)
	require.Equal(t, Busy, q.TryClaim("a", Fair))
	require.NoError(t, unlock(&q, ""))
	requireConserved(t, &q)
}

// An impossible step panics. It leaves the mutex unlocked, and changes nothing.
func TestImpossibleStepsPanic(t *testing.T) {
	var q Queue[string]
	withoutABusyBaton := func() {
		t.Helper()
		requireBug(t, func() { q.Settle(1) })
		requireBug(t, func() { q.Pass() })
		requireBug(t, func() { q.Leave() })
	}
	withoutABusyBaton()
	require.Equal(t, Claimed, q.TryClaim("a", Fair))
	requireBug(t, func() { q.Settle(0) })
	requireBug(t, func() { q.Settle(-1) })
	tooMany := int64(MaxHolds) + 1
	requireBug(t, func() { q.Settle(int(tooMany)) }) // negative where int has 32 bits, and impossible in any case
	q.Settle(2)
	withoutABusyBaton()
	requireLine(t, &q, "a", 2)
	require.True(t, q.Evict("a"))
	requireConserved(t, &q)
}

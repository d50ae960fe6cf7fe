package localqueue

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func barging(shared bool) Mode { return Barging | sharedIf(shared) }

func sharedIf(shared bool) Mode {
	if shared {
		return Shared
	}
	return Fair
}

// overtake releases the baton, and takes it for owner before the woken waiter can take it.
func overtake(t *testing.T, q *Queue[string], owner string) {
	t.Helper()
	q.lockBusy("overtake")
	q.handOverLocked()
	require.Equal(t, offered, q.state)
	q.overtakeLocked()
	require.Equal(t, Claimed, q.claimLocked(owner))
	q.unlock()
}

func TestBargingWaitersWithoutNewcomersGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Barging))
		b, c := claimAs(&q, "b", Barging), claimAs(&q, "c", Barging)
		require.True(t, q.Pass())
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestANewcomerOvertakesTheWaiterThatWasWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b, c := claimAs(&q, "b", Barging), claimAs(&q, "c", Barging)
		overtake(t, &q, "n")
		require.Zero(t, b.outcome(), "the overtaken waiter still waits")
		q.Settle(1)
		requireLine(t, &q, "n", 1, "b", "c")
		_, ok := q.Begin("n")
		require.True(t, ok)
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

// An offer that was taken back must not be there when the next offer is made: the next offer would then block, with the
// queue's mutex held, until the waiter runs.
func TestAWaiterThatSleepsIsOfferedTheBatonAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Barging))
		place := q.Reserve("b", Barging)
		q.Leave()
		for range 3 {
			require.Equal(t, Claimed, q.TryClaim("n", Barging))
			q.Leave()
		}
		require.Equal(t, Claimed, q.Wait(place, nil, nil))
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAnOfferIsNotFreeForAFairClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Barging)
		q.lockBusy("test")
		q.handOverLocked()
		require.Equal(t, Busy, q.claimLocked("n"))
		q.unlock()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAFairWaiterIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Barging))
		b, c := claimAs(&q, "b", Fair), claimAs(&q, "c", Barging)
		q.Leave()
		require.Equal(t, Busy, q.TryClaim("n", Barging))
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestOvertakingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Barging)
		for range MaxOvertaken {
			overtake(t, &q, "n")
			require.Zero(t, b.outcome())
		}
		q.Leave()
		require.Equal(t, Busy, q.TryClaim("n", Barging), "the baton was handed over, not offered")
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

// A waiter that was offered the baton has the baton even if the wait ends at that moment, so the waiter's goroutine must pass
// the baton on.
func TestAnOfferWinsOverACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b, c := claimAs(&q, "b", Barging), claimAs(&q, "c", Barging)
		grantAfter(&q, b.cancel)
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAnOvertakenWaiterCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Shared|Barging)
		overtake(t, &q, "n")
		b.cancel()
		require.Equal(t, Cancelled, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestABargingWaiterIsLetInWithItsSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("s", Fair))
		b, s := claimAs(&q, "b", Barging), claimAs(&q, "s", Shared|Barging)
		q.Settle(1)
		require.Equal(t, Reentered, s.outcome())
		require.Zero(t, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestShutLeavesAnOfferWithTheWaiterThatHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b, c := claimAs(&q, "b", Barging), claimAs(&q, "c", Barging)
		q.lockBusy("test")
		q.handOverLocked()
		q.shut = true
		q.unlock()
		q.Shut()
		require.Equal(t, Claimed, b.outcome())
		require.Equal(t, Cancelled, c.outcome())
		require.False(t, q.Pass())
		q.Leave()
	})
}

func TestAStormOfBargingConservesTheBaton(t *testing.T) {
	r := rand.New(rand.NewPCG(newSeed(t), 0))
	var q Queue[int]
	var inside exclusion
	var wg sync.WaitGroup
	for owner := range 16 {
		seed := r.Uint64()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range rounds(3000) {
				var got Outcome
				done := make(chan struct{})
				timeout := time.After(time.Duration(r.IntN(300)) * time.Microsecond)
				switch n := r.IntN(10); {
				case n == 0:
					got = q.TryClaim(owner, Barging)
				case n == 1:
					got = q.TryClaim(owner, Fair)
				case n < 4:
					got = q.Claim(owner, Fair, done, timeout)
				case n < 6:
					go func() { runtime.Gosched(); close(done) }()
					got = q.Claim(owner, barging(n == 4), done, nil)
				default:
					got = q.Claim(owner, barging(n == 7), done, timeout)
				}
				if got == Claimed {
					inside.section(t)
					q.Leave()
				}
			}
		})
	}
	wg.Wait()
	requireConserved(t, &q)
}

package localqueue

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// firstAs starts a wait with mode First, ahead of all other waits, and returns when the wait has ended or is under way.
func firstAs(q *Queue[string], owner string) *claim {
	done := make(chan struct{})
	c := &claim{owner: owner, cancel: func() { close(done) }, ended: make(chan Outcome, 1)}
	p := q.Reserve(owner, First|Shared)
	go func() { c.ended <- q.Wait(p, done, nil) }()
	synctest.Wait()
	return c
}

// giveWayAs makes the claimant give way to owner, and returns when the call of GiveWay has returned or waits.
func giveWayAs(q *Queue[string], owner string) *claim {
	done := make(chan struct{})
	c := &claim{owner: owner, cancel: func() { close(done) }, ended: make(chan Outcome, 1)}
	go func() { c.ended <- q.GiveWay(owner, Fair, done, nil) }()
	synctest.Wait()
	return c
}

func TestAClaimantGivesWayToAnOwnerThatIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Fair)
		first := firstAs(&q, "f")
		require.Zero(t, first.outcome(), "the claimant has not given way")
		a := giveWayAs(&q, "a")
		require.Equal(t, Claimed, first.outcome())
		require.Zero(t, a.outcome())
		q.Settle(2)
		requireLine(t, &q, "f", 2, "a", "b")
		_, ok := q.Begin("f")
		require.True(t, ok)
		q.Leave()
		require.Equal(t, Claimed, a.outcome(), "the claimant comes before waiters that came later")
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAClaimantGivesWayToNoOtherWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		require.Equal(t, Busy, q.GiveWay("a", Fair, nil, nil), "no goroutine waits")
		b := claimAs(&q, "b", Fair)
		require.Equal(t, Busy, q.GiveWay("a", Fair, nil, nil), "b does not have the claim")
		first := firstAs(&q, "f")
		first.cancel()
		require.Equal(t, Cancelled, first.outcome())
		require.Equal(t, Busy, q.GiveWay("a", Fair, nil, nil), "f has left")
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAClaimantThatGaveWayCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		first := firstAs(&q, "f")
		a := giveWayAs(&q, "a")
		require.Equal(t, Claimed, first.outcome())
		a.cancel()
		require.Equal(t, Cancelled, a.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestFirstTakesAFreeBaton(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, firstAs(&q, "f").outcome())
		q.Settle(3)
		require.Equal(t, Reentered, firstAs(&q, "f").outcome())
		q.Settle(3)
		other := firstAs(&q, "g")
		require.Zero(t, other.outcome(), "f has the baton")
		_, ok := q.Begin("f")
		require.True(t, ok)
		q.Leave()
		require.Equal(t, Claimed, other.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestFirstIsFirstOfItsSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		later := claimAs(&q, "s", Shared)
		first := firstAs(&q, "s")
		giveWayAs(&q, "a")
		require.Equal(t, Claimed, first.outcome())
		q.Settle(1)
		require.Equal(t, Reentered, later.outcome())
		q.Leave()
		synctest.Wait()
		q.Leave() // the claimant that gave way has the baton again, and passes it on
		requireConserved(t, &q)
	})
}

func TestFirstEndsAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Barging)
		q.lockBusy("test")
		q.handOverLocked()
		q.unlock()
		first := firstAs(&q, "f")
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, first.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAStormOfGivingWayConservesTheBaton(t *testing.T) {
	r := rand.New(rand.NewPCG(newSeed(t), 0))
	var q Queue[int]
	var inside exclusion
	var wg sync.WaitGroup
	for owner := range 12 {
		seed := r.Uint64()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range rounds(2000) {
				done, timeout := make(chan struct{}), time.After(time.Duration(r.IntN(300))*time.Microsecond)
				var got Outcome
				switch n := r.IntN(8); {
				case n == 0:
					go func() { close(done) }()
					got = q.Wait(q.Reserve(owner, First|Shared), done, nil)
				case n < 3:
					got = q.Claim(owner, Barging, done, timeout)
				default:
					got = q.Claim(owner, sharedIf(n == 3), done, timeout)
				}
				for got == Claimed {
					inside.section(t)
					if r.IntN(3) > 0 {
						q.Leave()
						break
					}
					if got = q.GiveWay(owner, Fair, nil, time.After(time.Duration(r.IntN(300))*time.Microsecond)); got == Busy {
						q.Leave()
					}
				}
			}
		})
	}
	wg.Wait()
	requireConserved(t, &q)
}

func TestFirstDoesNotWaitInALineThatIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		first := firstAs(&q, "f")
		q.Shut()
		require.Equal(t, Cancelled, first.outcome())
		require.Equal(t, Cancelled, firstAs(&q, "g").outcome())
		require.Equal(t, Busy, q.GiveWay("a", Fair, nil, nil))
		q.Leave()
	})
}

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

// turnAs waits for the turn of a place, and returns when the turn has come or the wait is under way.
func turnAs(q *Queue[string], p Place[string]) *claim {
	c := &claim{ended: make(chan Outcome, 1)}
	go func() { c.ended <- q.Wait(p, nil, nil) }()
	synctest.Wait()
	return c
}

// A place has the baton from the moment it is reserved, even before its goroutine runs.
func TestAPlaceAtAFreeBatonHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		p := q.Reserve("a", Fair)
		require.Equal(t, Busy, q.TryClaim("b", Fair))
		b := claimAs(&q, "b", Fair)
		require.Equal(t, Claimed, turnAs(&q, p).outcome())
		q.Settle(2)
		requireLine(t, &q, "a", 2, "b")
		require.True(t, q.Evict("a"))
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAPlaceOfTheHolderReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 3)
		b := claimAs(&q, "b", Fair)
		p := q.Reserve("a", Fair)
		require.False(t, q.Evict("a"), "the baton is busy for the holder")
		_, ok := q.ExitOrBegin("a")
		require.False(t, ok)
		require.Equal(t, Reentered, turnAs(&q, p).outcome())
		require.Equal(t, 3, q.HoldCount("a"))
		require.Zero(t, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

// Places get the baton in the order in which they were reserved, whenever their goroutines run.
func TestPlacesAreInLineWithClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		b := claimAs(&q, "b", Fair)
		first, second := q.Reserve("c", Fair), q.Reserve("d", Fair)
		e := claimAs(&q, "e", Fair)
		requireLine(t, &q, "a", 1, "b", "c", "d", "e")
		d, c := turnAs(&q, second), turnAs(&q, first)
		require.True(t, q.Evict("a"))
		for _, next := range []*claim{b, c, d, e} {
			require.Equal(t, Claimed, next.outcome())
			q.Leave()
		}
		requireConserved(t, &q)
	})
}

// The turn comes before any goroutine waits for it.
func TestATurnIsKeptForItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		p := q.Reserve("b", Fair)
		require.True(t, q.Evict("a"))
		others := []*claim{claimAs(&q, "c", Fair), claimAs(&q, "d", Fair)}
		require.Equal(t, Claimed, turnAs(&q, p).outcome())
		for _, c := range others {
			require.Zero(t, c.outcome())
			q.Leave()
			require.Equal(t, Claimed, c.outcome())
		}
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAPlaceIsASiblingOfItsSharedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		s := claimAs(&q, "s", Shared)
		b := claimAs(&q, "b", Fair)
		place := turnAs(&q, q.Reserve("s", Shared))
		q.Leave()
		require.Equal(t, Claimed, s.outcome())
		require.Zero(t, place.outcome())
		q.Settle(1)
		require.Equal(t, Reentered, place.outcome(), "the place comes before the claims in line")
		require.Zero(t, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAPlaceOfAnOwnerAtWorkIsLetInWhenItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Fair)
		place := turnAs(&q, q.Reserve("a", Fair))
		require.Zero(t, place.outcome())
		q.Settle(4)
		require.Equal(t, Reentered, place.outcome())
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

// An offered baton is not free: a new place comes after the waiter that was woken for the baton. Barging claims may still
// overtake that waiter.
func TestAPlaceDoesNotTakeAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := q.Reserve("b", Barging)
		q.Leave() // b was woken, and has not run yet
		c := turnAs(&q, q.Reserve("c", Fair))
		require.Equal(t, Claimed, q.Wait(b, nil, nil))
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAPlaceIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Barging)
		place := q.Reserve("c", Fair)
		d := claimAs(&q, "d", Barging)
		overtake(t, &q, "n")
		require.Zero(t, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		require.Equal(t, Busy, q.TryClaim("m", Barging), "the baton was handed to the place, not offered")
		require.Equal(t, Claimed, turnAs(&q, place).outcome())
		require.Zero(t, d.outcome())
		q.Leave()
		require.Equal(t, Claimed, d.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestShutSendsPlacesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		given := q.Reserve("a", Fair)
		waited, unheard := turnAs(&q, q.Reserve("b", Shared)), q.Reserve("b", Shared)
		sendAway(&q)
		require.Equal(t, Cancelled, waited.outcome())
		require.Equal(t, Cancelled, turnAs(&q, unheard).outcome(), "a place that asks only later is sent away, too")
		require.Equal(t, Claimed, turnAs(&q, given).outcome(), "a place that has the baton keeps it")
		again := turnAs(&q, q.Reserve("b", Shared))
		require.Zero(t, again.outcome(), "later claims wait as usual")
		q.Leave()
		require.Equal(t, Claimed, again.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestNoPlaceIsTakenInALineThatIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		q.Shut()
		require.Equal(t, Cancelled, turnAs(&q, q.Reserve("b", Fair)).outcome())
		require.Zero(t, q.Len())
		require.Equal(t, Reentered, turnAs(&q, q.Reserve("a", Fair)).outcome(), "the holder goes on")
		q.Leave()
		require.Equal(t, Claimed, turnAs(&q, q.Reserve("b", Fair)).outcome(), "a call that need not wait succeeds")
		q.Leave()
		require.True(t, q.Idle())
	})
}

// One goroutine reserves places and another waits for them, among all other kinds of waits, and sometimes all waits are
// ended.
func TestAStormOfPlacesConservesTheBaton(t *testing.T) {
	r := rand.New(rand.NewPCG(newSeed(t), 0))
	var q Queue[int]
	var inside exclusion
	var wg sync.WaitGroup
	for owner := range 12 {
		seed := r.Uint64()
		places := make(chan Place[int])
		wg.Go(func() {
			for p := range places {
				if got := q.Wait(p, nil, nil); got == Claimed {
					inside.section(t)
					q.Leave()
				}
			}
		})
		wg.Go(func() {
			defer close(places)
			r := rand.New(rand.NewPCG(seed, 1))
			for range rounds(2000) {
				got := Busy
				done, timeout := make(chan struct{}), time.After(time.Duration(r.IntN(300))*time.Microsecond)
				switch n := r.IntN(16); {
				case n == 0:
					sendAway(&q)
				case n < 6:
					places <- q.Reserve(owner, sharedIf(n < 3))
				case n < 8:
					got = q.Claim(owner+100, barging(n == 7), done, timeout)
				case n == 8:
					go func() { runtime.Gosched(); close(done) }()
					got = q.Claim(owner+100, Fair, done, nil)
				default:
					got = q.Claim(owner+100, sharedIf(n == 9), nil, timeout)
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

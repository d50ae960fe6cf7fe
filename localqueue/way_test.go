package localqueue

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// firstAs stands first in line and returns when the wait has ended or goes on.
func firstAs(q *Queue[string], owner string) *claim {
	done := make(chan struct{})
	c := &claim{owner: owner, cancel: func() { close(done) }, ended: make(chan Outcome, 1)}
	p := q.StandFirst(owner, true)
	go func() { c.ended <- q.Wait(p, done) }()
	synctest.Wait()
	return c
}

// giveWayAs has the claimant give way, and returns when it has ended or waits.
func giveWayAs(q *Queue[string], owner string) *claim {
	done := make(chan struct{})
	c := &claim{owner: owner, cancel: func() { close(done) }, ended: make(chan Outcome, 1)}
	go func() { c.ended <- q.GiveWay(owner, false, done, nil) }()
	synctest.Wait()
	return c
}

func TestAClaimantGivesWayToWhoStandsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b := claimAs(&q, "b", false)
		first := firstAs(&q, "f")
		require.Zero(t, first.outcome(), "nobody has given way")
		a := giveWayAs(&q, "a")
		require.Equal(t, Claimed, first.outcome())
		require.Zero(t, a.outcome())
		q.Settle(2)
		requireLine(t, &q, "f", 2, "a", "b")
		_, ok := q.Begin("f")
		require.True(t, ok)
		q.Leave()
		require.Equal(t, Claimed, a.outcome(), "before those who came later")
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAClaimantGivesWayToNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		require.Equal(t, Busy, q.GiveWay("a", false, nil, nil), "nobody waits")
		b := claimAs(&q, "b", false)
		require.Equal(t, Busy, q.GiveWay("a", false, nil, nil), "b has no claim to it")
		first := firstAs(&q, "f")
		first.cancel()
		require.Equal(t, Cancelled, first.outcome())
		require.Equal(t, Busy, q.GiveWay("a", false, nil, nil), "f has left")
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestWhoGaveWayCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		first := firstAs(&q, "f")
		a := giveWayAs(&q, "a")
		require.Equal(t, Claimed, first.outcome())
		a.cancel()
		require.Equal(t, Cancelled, a.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestStandingFirstAtAFreeBatonTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, firstAs(&q, "f").outcome())
		q.Settle(3)
		require.Equal(t, Reentered, firstAs(&q, "f").outcome())
		q.Settle(3)
		other := firstAs(&q, "g")
		require.Zero(t, other.outcome(), "f holds it")
		_, ok := q.Begin("f")
		require.True(t, ok)
		q.Leave()
		require.Equal(t, Claimed, other.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestWhoStandsFirstIsFirstOfItsKin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		later := claimAs(&q, "s", true)
		first := firstAs(&q, "s")
		giveWayAs(&q, "a")
		require.Equal(t, Claimed, first.outcome())
		q.Settle(1)
		require.Equal(t, Reentered, later.outcome())
		q.Leave()
		synctest.Wait()
		q.Leave() // what gave way
		requireConserved(t, &q)
	})
}

func TestStandingFirstEndsAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b := competeAs(&q, "b", false)
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

func TestAStormOfThoseWhoGiveWayConservesTheBaton(t *testing.T) {
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
					got = q.Wait(q.StandFirst(owner, true), done)
				case n < 3:
					got = q.Compete(owner, false, done, timeout)
				default:
					got = q.Claim(owner, n == 3, done, timeout)
				}
				for got == Claimed {
					inside.section(t)
					if r.IntN(3) > 0 {
						q.Leave()
						break
					}
					if got = q.GiveWay(owner, false, nil, time.After(time.Duration(r.IntN(300))*time.Microsecond)); got == Busy {
						q.Leave()
					}
				}
			}
		})
	}
	wg.Wait()
	requireConserved(t, &q)
}

func TestNobodyStandsFirstInALineThatIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		first := firstAs(&q, "f")
		q.Shut()
		require.Equal(t, Cancelled, first.outcome())
		require.Equal(t, Cancelled, firstAs(&q, "g").outcome())
		require.Equal(t, Busy, q.GiveWay("a", false, nil, nil))
		q.Leave()
	})
}

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

// competeAs starts a Compete and returns when it has ended or waits.
func competeAs(q *Queue[string], owner string, shared bool) *claim {
	done := make(chan struct{})
	c := &claim{owner: owner, cancel: func() { close(done) }, ended: make(chan Outcome, 1)}
	go func() { c.ended <- q.Compete(owner, shared, done, nil) }()
	synctest.Wait()
	return c
}

// overtake gives the baton up and takes it back for owner before whoever was woken can.
func overtake(t *testing.T, q *Queue[string], owner string) {
	t.Helper()
	q.lockBusy("overtake")
	q.handOverLocked()
	require.Equal(t, offered, q.state)
	q.overtakeLocked()
	require.Equal(t, Claimed, q.claimLocked(owner))
	q.unlock()
}

func TestCompetitorsWithoutNewcomersGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryCompete("a"))
		b, c := competeAs(&q, "b", false), competeAs(&q, "c", false)
		require.True(t, q.Pass())
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestANewcomerOvertakesTheOneWhoWasWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b, c := competeAs(&q, "b", false), competeAs(&q, "c", false)
		overtake(t, &q, "n")
		require.Zero(t, b.outcome(), "overtaken, it waits on")
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

func TestAnOfferIsNotFreeForThoseWhoKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b := competeAs(&q, "b", false)
		q.lockBusy("test")
		q.handOverLocked()
		require.Equal(t, Busy, q.claimLocked("n"))
		q.unlock()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestWhoKeepsTheOrderIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryCompete("a"))
		b, c := claimAs(&q, "b", false), competeAs(&q, "c", false)
		q.Leave()
		require.Equal(t, Busy, q.TryCompete("n"))
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
		require.Equal(t, Claimed, q.TryClaim("a"))
		b := competeAs(&q, "b", false)
		for range MaxOvertaken {
			overtake(t, &q, "n")
			require.Zero(t, b.outcome())
		}
		q.Leave()
		require.Equal(t, Busy, q.TryCompete("n"), "the baton was given, not offered")
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

// Whom the baton was offered to has it when its wait ends in that very moment, so that somebody answers for it.
func TestAnOfferWinsOverACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b, c := competeAs(&q, "b", false), competeAs(&q, "c", false)
		grantAfter(&q, b.cancel)
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestWhoWasOvertakenCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b := competeAs(&q, "b", true)
		overtake(t, &q, "n")
		b.cancel()
		require.Equal(t, Cancelled, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestACompetitorIsLetInWithItsKin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("s"))
		b, s := competeAs(&q, "b", false), competeAs(&q, "s", true)
		q.Settle(1)
		require.Equal(t, Reentered, s.outcome())
		require.Zero(t, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestExpellingLeavesAnOfferWithWhomItWasMadeTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		b, c := competeAs(&q, "b", false), competeAs(&q, "c", false)
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

func TestAStormOfCompetitorsConservesTheBaton(t *testing.T) {
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
					got = q.TryCompete(owner)
				case n == 1:
					got = q.TryClaim(owner)
				case n < 4:
					got = q.Claim(owner, false, done, timeout)
				case n < 6:
					go func() { runtime.Gosched(); close(done) }()
					got = q.Compete(owner, n == 4, done, nil)
				default:
					got = q.Compete(owner, n == 7, done, timeout)
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

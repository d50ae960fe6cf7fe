package localqueue

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestAJoinerWaitsForTheClaimAndThenReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("s", Fair))
		joiner := claimAs(&q, "s", Shared)
		require.Zero(t, joiner.outcome())
		q.Settle(1)
		require.Equal(t, Reentered, joiner.outcome())
		require.Equal(t, Busy, q.TryClaim("s", Fair), "the baton is busy for the joiner")
		q.Settle(2)
		requireLine(t, &q, "s", 2)
		require.True(t, q.Evict("s"))
		requireConserved(t, &q)
	})
}

func TestJoinersAreLetInOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("s", Fair))
		j1, j2, j3 := claimAs(&q, "s", Shared), claimAs(&q, "s", Shared), claimAs(&q, "s", Shared)
		for i, j := range []*claim{j1, j2, j3} {
			require.Zero(t, j.outcome())
			q.Settle(i + 1)
			require.Equal(t, Reentered, j.outcome())
		}
		q.Settle(4)
		requireLine(t, &q, "s", 4)
		require.True(t, q.Evict("s"))
		requireConserved(t, &q)
	})
}

func TestJoinersGetInFromDeepInTheLineAndOthersKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		s1, b, s2, c, s3 := claimAs(&q, "s", Shared), claimAs(&q, "b", Fair), claimAs(&q, "s", Shared),
			claimAs(&q, "c", Fair), claimAs(&q, "s", Shared)
		require.True(t, q.Evict("a"))
		require.Equal(t, Claimed, s1.outcome())
		require.Zero(t, s2.outcome(), "a claim may fail: until it settles no other may join")
		q.Settle(1)
		require.Equal(t, Reentered, s2.outcome())
		require.Equal(t, []string{"b", "c", "s"}, q.Waiters())
		q.Settle(2)
		require.Equal(t, Reentered, s3.outcome())
		q.Settle(3)
		requireLine(t, &q, "s", 3, "b", "c")
		require.True(t, q.Evict("s"))
		require.Equal(t, Claimed, b.outcome())
		require.True(t, q.Pass())
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestJoinersOfAClaimThatFailsKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("s", Fair))
		s1, b, s2 := claimAs(&q, "s", Shared), claimAs(&q, "b", Fair), claimAs(&q, "s", Shared)
		q.Leave()
		require.Equal(t, Claimed, s1.outcome(), "it gets the baton in its turn, not by a re-entry")
		require.True(t, q.Pass())
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, s2.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAJoinerMayLeaveFromAnyPlaceAmongItsSiblings(t *testing.T) {
	for leaver := range 3 {
		synctest.Test(t, func(t *testing.T) {
			var q Queue[string]
			require.Equal(t, Claimed, q.TryClaim("s", Fair))
			joiners := []*claim{claimAs(&q, "s", Shared), claimAs(&q, "s", Shared), claimAs(&q, "s", Shared)}
			joiners[leaver].cancel()
			require.Equal(t, Cancelled, joiners[leaver].outcome())
			for i, j := range joiners {
				if i != leaver {
					q.Settle(1)
					require.Equal(t, Reentered, j.outcome())
				}
			}
			q.Settle(1)
			require.Empty(t, q.siblings)
			require.True(t, q.Evict("s"))
			requireConserved(t, &q)
		})
	}
}

func TestBeginWaitsForTheOperationUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "s", 5)
		q.Begin("s")
		b1, b2 := beginAs(&q, "s"), beginAs(&q, "s")
		require.False(t, b1.ended)
		require.Zero(t, q.Len(), "goroutines in Begin are not in line")
		q.Settle(4)
		synctest.Wait()
		require.Equal(t, begin{4, true, true}, *b1)
		require.False(t, b2.ended)
		q.Settle(3)
		synctest.Wait()
		require.Equal(t, begin{3, true, true}, *b2)
		q.Leave()
		requireConserved(t, &q)
	})
}

// The operation under way may be the unlock for which all others wait.
func TestBeginGoesAheadOfJoiners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "s", 1)
		q.Begin("s")
		joiner, b := claimAs(&q, "s", Shared), beginAs(&q, "s")
		q.Settle(1)
		synctest.Wait()
		require.Equal(t, begin{1, true, true}, *b)
		require.Zero(t, joiner.outcome())
		q.Leave()
		require.Equal(t, Claimed, joiner.outcome(), "the hold has ended, and the joiner gets the baton in its turn")
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestBeginReportsThatTheHoldIsGone(t *testing.T) {
	for name, end := range map[string]func(q *Queue[string]){
		"freed":              func(q *Queue[string]) { q.Leave() },
		"left to another":    func(q *Queue[string]) { claimAs(q, "b", Fair); q.Leave() },
		"passed to another":  func(q *Queue[string]) { claimAs(q, "b", Fair); q.Pass() },
		"passed to a joiner": func(q *Queue[string]) { claimAs(q, "s", Shared); q.Pass() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q Queue[string]
				settleAs(t, &q, "s", 2)
				q.Begin("s")
				b1, b2 := beginAs(&q, "s"), beginAs(&q, "s")
				end(&q)
				synctest.Wait()
				require.Equal(t, begin{0, false, true}, *b1)
				require.Equal(t, begin{0, false, true}, *b2)
				if !q.Idle() {
					q.Leave() // called by the goroutine that has the baton now
				}
				requireConserved(t, &q)
			})
		})
	}
}

// If an owner's goroutine goes on while another operation of the owner is still under way in another goroutine (such as a
// release in the background), the first goroutine must not wait for ever.
func TestAnOwnerThatIsNotSharedJoinsItsOwnOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "g", 2)
		q.Begin("g")
		again := claimAs(&q, "g", Fair)
		q.Settle(1)
		require.Equal(t, Reentered, again.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestOwnersThatAreNotSharedNeverTouchTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		var in exclusion
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		for _, owner := range []string{"b", "c", "d"} {
			go func() {
				q.Claim(owner, Fair, nil, nil)
				q.Settle(1)
				in.section(t)
				q.Begin(owner)
				q.Leave()
			}()
		}
		synctest.Wait()
		q.Leave()
		synctest.Wait()
		require.Nil(t, q.siblings)
		requireConserved(t, &q)
	})
}

// An ownership asserts that only goroutines of the same owner are inside at a time, and counts their holds.
type ownership struct {
	owner atomic.Int64 // the owner plus one; 0 if no owner is inside
	holds atomic.Int64
}

// count adds n holds of owner. The baton is busy, so no other goroutine counts.
func (o *ownership) count(t *testing.T, owner, n int) int {
	if was := o.owner.Swap(int64(owner) + 1); was != 0 && was != int64(owner)+1 {
		t.Errorf("owner %d meets owner %d", owner, was-1)
	}
	holds := o.holds.Add(int64(n))
	if holds == 0 {
		o.owner.Store(0)
	}
	return int(holds)
}

// Several goroutines act for each of a few owners: they lock and unlock through busy batons, and leave the line at
// random. After every step only one goroutine has the baton, all holds are one owner's, and the queue's count is right.
func TestAStormOfSharedOwners(t *testing.T) {
	const owners, goroutines = 3, 4
	synctest.Test(t, func(t *testing.T) {
		s := sharedStorm{t: t}
		seed := newSeed(t)
		release := holdBack(t, &s.q, owners)
		for g := range owners * goroutines {
			s.all.Go(func() { s.run(g%owners, rand.New(rand.NewPCG(seed, uint64(g)))) })
		}
		release()
		s.all.Wait()
		require.Zero(t, s.held.holds.Load())
		require.Empty(t, s.q.siblings)
		requireConserved(t, &s.q)
	})
}

// A sharedStorm is a queue that the goroutines of shared owners use.
type sharedStorm struct {
	t       *testing.T
	q       Queue[int]
	working exclusion
	held    ownership
	all     sync.WaitGroup
}

// run locks and unlocks for one owner. From the second round on, each wait ends after a random while.
func (s *sharedStorm) run(owner int, rnd *rand.Rand) {
	for round := range rounds(500) {
		done, patience := make(chan struct{}), rnd.IntN(20)
		if round > 0 {
			s.all.Go(func() {
				for range patience {
					runtime.Gosched()
				}
				close(done)
			})
		}
		n := 0
		for range 1 + rnd.IntN(3) {
			if s.lock(owner, done) {
				n++
			}
			runtime.Gosched()
		}
		for range n {
			s.unlock(owner)
		}
	}
}

func (s *sharedStorm) lock(owner int, done chan struct{}) bool {
	got := s.q.Claim(owner, Shared, done, nil)
	if got == Cancelled {
		return false
	}
	s.working.enter(s.t)
	before := s.q.HoldCount(owner)
	if (got == Reentered) != (before > 0) {
		s.t.Errorf("%v with %d holds", got, before)
	}
	holds := s.held.count(s.t, owner, 1)
	if holds != before+1 {
		s.t.Errorf("the queue counts %d holds, there are %d", before+1, holds)
	}
	s.working.exit(s.t)
	s.q.Settle(holds)
	return true
}

func (s *sharedStorm) unlock(owner int) {
	before, ok := s.q.Begin(owner)
	s.working.enter(s.t)
	holds := s.held.count(s.t, owner, -1)
	if !ok || holds != before-1 {
		s.t.Errorf("unlocked %d of %d holds (%t)", before-holds, before, ok)
	}
	s.working.exit(s.t)
	if holds > 0 {
		s.q.Settle(holds)
	} else if !s.q.Pass() {
		s.q.Leave()
	}
}

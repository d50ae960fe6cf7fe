package localqueue

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// lineUp makes n claims arrive one by one while the baton is taken. Each claim that gets the baton appends its number to the
// order and passes the baton on.
func lineUp(t *testing.T, q *Queue[string], in *exclusion, n int) (claims []*claim, order *[]int) {
	order = new([]int)
	for i := range n {
		c := &claim{owner: strconv.Itoa(i), ended: make(chan Outcome, 1)}
		done := make(chan struct{})
		c.cancel = func() { close(done) }
		claims = append(claims, c)
		go func() {
			got := q.Claim(c.owner, sharedIf(i%3 == 0), done, nil)
			if got == Claimed {
				in.enter(t)
				*order = append(*order, i)
				in.exit(t)
				q.Leave()
			}
			c.ended <- got
		}()
		synctest.Wait()
	}
	return claims, order
}

func TestTurnsComeInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		var in exclusion
		require.Equal(t, Claimed, q.TryClaim("first", Fair))
		_, order := lineUp(t, &q, &in, 300)
		require.Equal(t, 300, q.Len())
		q.Leave()
		synctest.Wait()
		require.Len(t, *order, 300)
		require.IsIncreasing(t, *order)
		requireConserved(t, &q)
	})
}

func TestTheOrderSurvivesWaitersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		var in exclusion
		rnd := rand.New(rand.NewPCG(newSeed(t), 0))
		require.Equal(t, Claimed, q.TryClaim("first", Fair))
		claims, order := lineUp(t, &q, &in, 200)

		leavers := append(rnd.Perm(200)[:120], 0, 199) // from the ends and from the middle
		slices.Sort(leavers)
		leavers = slices.Compact(leavers)
		rnd.Shuffle(len(leavers), func(i, j int) { leavers[i], leavers[j] = leavers[j], leavers[i] })
		var stay []int
		var left []string
		for i, c := range claims {
			if !slices.Contains(leavers, i) {
				stay = append(stay, i)
				left = append(left, c.owner)
			}
		}

		for _, i := range leavers {
			claims[i].cancel()
			require.Equal(t, Cancelled, claims[i].outcome())
			require.NotContains(t, q.Waiters(), claims[i].owner)
		}
		require.Equal(t, left, q.Waiters())
		q.Leave()
		synctest.Wait()
		require.Equal(t, stay, *order)
		requireConserved(t, &q)
	})
}

// The baton is never free while a goroutine waits, so a late caller cannot take it first.
func TestALateCallerDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Fair)
		q.Leave() // b has the baton from now on, whether it has woken or not
		require.Equal(t, Busy, q.TryClaim("late", Fair))
		require.False(t, tryLock(&q, "late"))
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

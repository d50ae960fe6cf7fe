package localqueue

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLockCountsHolds(t *testing.T) {
	var q Queue[string]
	for holds := 1; holds <= 20; holds++ {
		require.NoError(t, lock(t.Context(), &q, "a"))
		requireLine(t, &q, "a", holds)
	}
	for holds := 19; holds >= 0; holds-- {
		require.NoError(t, unlock(&q, "a"))
		require.Equal(t, holds, q.HoldCount("a"))
	}
	requireConserved(t, &q)
}

func TestTryLock(t *testing.T) {
	var q Queue[string]
	require.True(t, tryLock(&q, "a"))
	require.True(t, tryLock(&q, "a"))
	require.False(t, tryLock(&q, "b"))
	requireLine(t, &q, "a", 2)
	require.NoError(t, unlock(&q, "a"))
	require.NoError(t, unlock(&q, "a"))
	requireConserved(t, &q)
}

func TestUnlockByAnotherChangesNothing(t *testing.T) {
	var q Queue[string]
	require.ErrorIs(t, unlock(&q, "a"), errNotHeld)
	require.True(t, tryLock(&q, "a"))
	require.ErrorIs(t, unlock(&q, "b"), errNotHeld)
	requireLine(t, &q, "a", 1)
	require.NoError(t, unlock(&q, "a"))
	require.ErrorIs(t, unlock(&q, "a"), errNotHeld)
	requireConserved(t, &q)
}

func TestUnlockOfALockThatIsOnlyBeingTaken(t *testing.T) {
	var q Queue[string]
	require.Equal(t, Claimed, q.TryClaim("a", Fair))
	require.ErrorIs(t, unlock(&q, "a"), errNotHeld)
	q.Leave()
	requireConserved(t, &q)
}

func TestLockReportsTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.True(t, tryLock(&q, "a"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, lock(ctx, &q, "b"), context.DeadlineExceeded)
		requireLine(t, &q, "a", 1)

		require.ErrorIs(t, lock(ctx, &q, "a"), context.DeadlineExceeded, "an ended context fails even a re-entry")
		require.NoError(t, unlock(&q, "a"))
		require.ErrorIs(t, lock(ctx, &q, "a"), context.DeadlineExceeded, "an ended context fails even for a free lock")
		requireConserved(t, &q)
	})
}

func TestALockThatWasGrantedIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		ctx, cancel := context.WithCancel(t.Context())
		acquired := make(chan error, 1)
		go func() { acquired <- lock(ctx, &q, "b") }()
		synctest.Wait()
		grantAfter(&q, cancel)
		require.NoError(t, <-acquired)
		requireLine(t, &q, "b", 1)
		require.NoError(t, unlock(&q, "b"))
		requireConserved(t, &q)
	})
}

func TestLockReportsThatTheQueueIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.True(t, tryLock(&q, "a"))
		acquired := make(chan error, 1)
		go func() { acquired <- lock(context.Background(), &q, "b") }()
		synctest.Wait()
		q.Shut()
		require.ErrorIs(t, <-acquired, errShut)
		requireLine(t, &q, "a", 1)
		require.NoError(t, unlock(&q, "a"))
		requireConserved(t, &q)
	})
}

func TestReenterAndExitOrBeginChangeOnlySettledHolds(t *testing.T) {
	var q Queue[string]
	for range 2 { // free, then claimed
		_, ok := q.Reenter("a")
		require.False(t, ok)
		_, ok = q.ExitOrBegin("a")
		require.False(t, ok)
		q.TryClaim("a", Fair)
	}
	q.Settle(1)

	holds, ok := q.Reenter("a")
	require.True(t, ok)
	require.Equal(t, 2, holds)
	_, ok = q.Reenter("b")
	require.False(t, ok)
	_, ok = q.ExitOrBegin("b")
	require.False(t, ok)

	q.Begin("a")
	_, ok = q.Reenter("a")
	require.False(t, ok, "busy")
	_, ok = q.ExitOrBegin("a")
	require.False(t, ok, "busy")
	q.Settle(2)

	holds, ok = q.ExitOrBegin("a")
	require.True(t, ok)
	require.Equal(t, 1, holds)
	holds, ok = q.ExitOrBegin("a")
	require.True(t, ok)
	require.Zero(t, holds)
	requireLine(t, &q, "a", 1)
	require.False(t, q.Evict("a"), "the last hold still exists, and is busy")
	q.Leave()
	requireConserved(t, &q)
}

func TestHoldsEndAtTheMaximum(t *testing.T) {
	var q Queue[string]
	settleAs(t, &q, "a", MaxHolds-1)
	holds, ok := q.Reenter("a")
	require.True(t, ok)
	require.Equal(t, MaxHolds, holds)

	holds, ok = q.Reenter("a")
	require.False(t, ok)
	require.Equal(t, MaxHolds, holds, "the error says why")
	require.False(t, tryLock(&q, "a"))
	require.ErrorIs(t, lock(t.Context(), &q, "a"), errTooManyHolds)
	requireLine(t, &q, "a", MaxHolds)

	require.NoError(t, unlock(&q, "a"))
	requireLine(t, &q, "a", MaxHolds-1)
	require.True(t, q.Evict("a"))
	requireConserved(t, &q)
}

// A re-entry and an unlock both wait for an operation of the same owner in another goroutine.
func TestLockAndUnlockWaitForTheOwnersOperation(t *testing.T) {
	for _, c := range []struct {
		settle, holds int
		acquired      error
	}{
		{1, 2, nil},
		{MaxHolds, MaxHolds, errTooManyHolds},
	} {
		synctest.Test(t, func(t *testing.T) {
			var q Queue[string]
			settleAs(t, &q, "s", 1)
			q.Begin("s")
			acquired := make(chan error, 1)
			go func() { acquired <- lock(t.Context(), &q, "s") }()
			synctest.Wait()
			require.Empty(t, acquired)
			q.Settle(c.settle)
			require.ErrorIs(t, <-acquired, c.acquired)
			requireLine(t, &q, "s", c.holds)

			for _, holds := range []int{2, 1} {
				q.Begin("s")
				released := make(chan error, 1)
				go func() { released <- unlock(&q, "s") }()
				synctest.Wait()
				require.Empty(t, released)
				q.Settle(holds)
				require.NoError(t, <-released)
				require.Equal(t, holds-1, q.HoldCount("s"))
			}
			requireConserved(t, &q)
		})
	}
}

// Goroutines lock, try to lock, and stop waiting, all nested: only one is inside at a time, and the lock can still be
// acquired at the end.
func TestAStormOfLocksAndUnlocks(t *testing.T) {
	const workers = 8
	synctest.Test(t, func(t *testing.T) {
		var q Queue[int]
		var in exclusion
		var wg sync.WaitGroup
		value, check := uint64(1), ^uint64(1) // only written inside, so the race detector finds overlaps, too
		seed := newSeed(t)
		release := holdBack(t, &q, workers)
		for owner := range workers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(owner)))
				for range rounds(1500) {
					ctx, cancel := context.WithCancel(context.Background())
					if rnd.IntN(4) == 0 {
						wg.Go(cancel)
					}
					if rnd.IntN(8) == 0 && !tryLock(&q, owner) || lock(ctx, &q, owner) != nil {
						for q.HoldCount(owner) > 0 { // tryLock may have succeeded before lock failed
							_ = unlock(&q, owner)
						}
						cancel()
						continue
					}
					in.enter(t)
					if value != ^check {
						t.Errorf("%d and %d were not written together", value, check)
					}
					value = rnd.Uint64()
					q.Reenter(owner)
					runtime.Gosched()
					check = ^value
					q.ExitOrBegin(owner)
					in.exit(t)
					for q.HoldCount(owner) > 0 {
						if err := unlock(&q, owner); err != nil {
							t.Error(err)
						}
					}
					cancel()
				}
			})
		}
		release()
		wg.Wait()
		requireConserved(t, &q)
	})
}

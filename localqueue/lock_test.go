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

func TestAcquireCountsHolds(t *testing.T) {
	var q Queue[string]
	for holds := 1; holds <= 20; holds++ {
		require.NoError(t, q.Acquire(t.Context(), "a"))
		requireLine(t, &q, "a", holds)
	}
	for holds := 19; holds >= 0; holds-- {
		require.NoError(t, q.Release("a"))
		require.Equal(t, holds, q.HoldCount("a"))
	}
	requireConserved(t, &q)
}

func TestTryAcquire(t *testing.T) {
	var q Queue[string]
	require.True(t, q.TryAcquire("a"))
	require.True(t, q.TryAcquire("a"))
	require.False(t, q.TryAcquire("b"))
	requireLine(t, &q, "a", 2)
	require.NoError(t, q.Release("a"))
	require.NoError(t, q.Release("a"))
	requireConserved(t, &q)
}

func TestReleaseByAnotherChangesNothing(t *testing.T) {
	var q Queue[string]
	require.ErrorIs(t, q.Release("a"), ErrNotHeld)
	require.True(t, q.TryAcquire("a"))
	require.ErrorIs(t, q.Release("b"), ErrNotHeld)
	requireLine(t, &q, "a", 1)
	require.NoError(t, q.Release("a"))
	require.ErrorIs(t, q.Release("a"), ErrNotHeld)
	requireConserved(t, &q)
}

func TestReleaseOfALockThatIsOnlyBeingAcquired(t *testing.T) {
	var q Queue[string]
	require.Equal(t, Claimed, q.TryClaim("a"))
	require.ErrorIs(t, q.Release("a"), ErrNotHeld)
	q.Leave()
	requireConserved(t, &q)
}

func TestAcquireReportsTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.True(t, q.TryAcquire("a"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, q.Acquire(ctx, "b"), context.DeadlineExceeded)
		requireLine(t, &q, "a", 1)

		require.ErrorIs(t, q.Acquire(ctx, "a"), context.DeadlineExceeded, "even for a re-entry")
		require.NoError(t, q.Release("a"))
		require.ErrorIs(t, q.Acquire(ctx, "a"), context.DeadlineExceeded, "even for a free lock")
		requireConserved(t, &q)
	})
}

func TestAnAcquireThatWasGrantedIsHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a"))
		ctx, cancel := context.WithCancel(t.Context())
		acquired := make(chan error, 1)
		go func() { acquired <- q.Acquire(ctx, "b") }()
		synctest.Wait()
		grantAfter(&q, cancel)
		require.NoError(t, <-acquired)
		requireLine(t, &q, "b", 1)
		require.NoError(t, q.Release("b"))
		requireConserved(t, &q)
	})
}

func TestAcquireReportsThatItWasExpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.True(t, q.TryAcquire("a"))
		acquired := make(chan error, 1)
		go func() { acquired <- q.Acquire(context.Background(), "b") }()
		synctest.Wait()
		q.Expel()
		require.ErrorIs(t, <-acquired, ErrExpelled)
		requireLine(t, &q, "a", 1)
		require.NoError(t, q.Release("a"))
		requireConserved(t, &q)
	})
}

func TestReenterAndExitNeverTakeOrGiveUpTheLock(t *testing.T) {
	var q Queue[string]
	for range 2 { // free, then claimed
		_, ok := q.Reenter("a")
		require.False(t, ok)
		_, ok = q.Exit("a")
		require.False(t, ok)
		q.TryClaim("a")
	}
	q.Settle(1)

	holds, ok := q.Reenter("a")
	require.True(t, ok)
	require.Equal(t, 2, holds)
	_, ok = q.Reenter("b")
	require.False(t, ok)
	_, ok = q.Exit("b")
	require.False(t, ok)

	q.Begin("a")
	_, ok = q.Reenter("a")
	require.False(t, ok, "busy")
	_, ok = q.Exit("a")
	require.False(t, ok, "busy")
	q.Settle(2)

	holds, ok = q.Exit("a")
	require.True(t, ok)
	require.Equal(t, 1, holds)
	holds, ok = q.Exit("a")
	require.False(t, ok, "never the last one")
	require.Zero(t, holds)
	requireLine(t, &q, "a", 1)
	require.NoError(t, q.Release("a"))
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
	require.Equal(t, MaxHolds, holds, "says why")
	require.False(t, q.TryAcquire("a"))
	require.ErrorIs(t, q.Acquire(t.Context(), "a"), ErrTooManyHolds)
	requireLine(t, &q, "a", MaxHolds)

	require.NoError(t, q.Release("a"))
	requireLine(t, &q, "a", MaxHolds-1)
	require.True(t, q.Evict("a"))
	requireConserved(t, &q)
}

// The plain lock and the baton's verbs may be mixed: the plain lock waits for an operation of its own owner.
func TestAcquireAndReleaseWaitForTheOwnersOperation(t *testing.T) {
	for _, c := range []struct {
		settle, holds int
		acquired      error
	}{
		{1, 2, nil},
		{MaxHolds, MaxHolds, ErrTooManyHolds},
	} {
		synctest.Test(t, func(t *testing.T) {
			var q Queue[string]
			settleAs(t, &q, "s", 1)
			q.Begin("s")
			acquired := make(chan error, 1)
			go func() { acquired <- q.Acquire(t.Context(), "s") }()
			synctest.Wait()
			require.Empty(t, acquired)
			q.Settle(c.settle)
			require.ErrorIs(t, <-acquired, c.acquired)
			requireLine(t, &q, "s", c.holds)

			for _, holds := range []int{2, 1} {
				q.Begin("s")
				released := make(chan error, 1)
				go func() { released <- q.Release("s") }()
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

// Some lock, some try, some give up, all of them nested: one at a time, and the lock survives.
func TestAStormOnThePlainLock(t *testing.T) {
	const workers = 8
	synctest.Test(t, func(t *testing.T) {
		var q Queue[int]
		var in exclusion
		var wg sync.WaitGroup
		value, check := uint64(1), ^uint64(1) // written inside only, so the race detector watches too
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
					if rnd.IntN(8) == 0 && !q.TryAcquire(owner) || q.Acquire(ctx, owner) != nil {
						for q.HoldCount(owner) > 0 { // the TryAcquire may have succeeded before the Acquire failed
							_ = q.Release(owner)
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
					q.Exit(owner)
					in.exit(t)
					for q.HoldCount(owner) > 0 {
						if err := q.Release(owner); err != nil {
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

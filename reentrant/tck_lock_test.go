package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestTckANewLockIsFree(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		assert.Equal(t, k.fair, k.IsFair())
		assert.True(t, k.session.NewLock("x").IsFair(), "by default")
		k.requireLocked(t, false)
		assert.False(t, k.IsHeldByCurrentOwner(t.Context()))
		assert.Zero(t, k.HoldCount(t.Context()))
	})
}

func TestTckLockIsHeldUntilUnlock(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		k.requireLocked(t, true)
		assert.True(t, k.IsHeldByCurrentOwner(t.Context()))
		elsewhere(t, func(ctx context.Context) {
			assert.False(t, k.IsHeldByCurrentOwner(ctx), "another owner does not hold it")
			k.requireLocked(t, true)
		})
		unlock()
		k.requireLocked(t, false)
		assert.False(t, k.IsHeldByCurrentOwner(t.Context()))
	})
}

func TestTckHoldsAreCounted(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const holds = 20
		for i := range holds {
			require.NoError(t, k.Lock.Lock(t.Context()))
			assert.Equal(t, i+1, k.HoldCount(t.Context()))
			elsewhere(t, func(ctx context.Context) { assert.Zero(t, k.HoldCount(ctx)) })
		}
		for i := holds; i > 0; i-- {
			assert.Equal(t, i, k.HoldCount(t.Context()))
			k.requireLocked(t, true)
			require.NoError(t, k.Unlock(t.Context()))
		}
		assert.Zero(t, k.HoldCount(t.Context()))
		k.requireLocked(t, false)
	})
}

// Unlock of a lock that the caller does not hold changes nothing.
func TestTckOnlyTheHolderUnlocks(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		assert.ErrorIs(t, k.Unlock(t.Context()), reentrant.ErrNotHeld, "never locked")
		unlock := k.locked(t)
		elsewhere(t, func(ctx context.Context) {
			assert.ErrorIs(t, k.Unlock(ctx), reentrant.ErrNotHeld, "another's")
		})
		assert.Equal(t, 1, k.HoldCount(t.Context()))
		k.requireLocked(t, true)
		unlock()
		assert.ErrorIs(t, k.Unlock(t.Context()), reentrant.ErrNotHeld, "once too often")
		k.requireLocked(t, false)
	})
}

func TestTckTryLockTakesAndReenters(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		for holds := range 2 {
			ok, err := k.TryLock(t.Context())
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, holds+1, k.HoldCount(t.Context()))
		}
		require.NoError(t, k.Unlock(t.Context()))
		assert.True(t, k.IsHeldByCurrentOwner(t.Context()))
		require.NoError(t, k.Unlock(t.Context()))
	})
}

func TestTckTryLockOfAnothersLockIsFalseAtOnce(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		begun := time.Now()
		for _, from := range []kit{k, newKit(t, k.backend, k.fair)} { // in the same process, and in another one
			elsewhere(t, func(ctx context.Context) {
				ok, err := from.TryLock(ctx)
				assert.NoError(t, err)
				assert.False(t, ok)
			})
		}
		assert.Zero(t, time.Since(begun))
		unlock()
	})
}

// freeWithAWaiter makes x free in Redis while first is the first session to wait for it: the holder has died, and first
// does not know that yet. It returns a kit in a third session.
func freeWithAWaiter(t *testing.T, k kit) (waiter thread, third kit) {
	t.Helper()
	dying := newSession(t, k.backend, reentrant.WithLease(10200*time.Millisecond))
	require.NoError(t, dying.NewLock("x").Lock(t.Context()))
	k.backend.Partition(dying.ID(), true)
	t.Cleanup(func() { k.backend.Partition(dying.ID(), false) })
	waiter, third = k.queues(t), newKit(t, k.backend, k.fair)
	require.Equal(t, 1, k.QueueLength())
	for {
		st, err := third.Inspect(t.Context())
		require.NoError(t, err)
		if !st.Locked {
			return waiter, third
		}
		time.Sleep(time.Millisecond)
	}
}

// TryLock takes a free lock ahead of waiters, on a fair lock too. TryLockFor does so on an unfair one.
func TestTckTryLockBarges(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		waiter, third := freeWithAWaiter(t, k)
		ok, err := third.TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		waiter.requireWaiting(t)
		require.NoError(t, third.Unlock(t.Context()))
		require.NoError(t, <-waiter.ended)
	})
}

func TestTckAFairTryLockForDoesNotBarge(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		waiter, third := freeWithAWaiter(t, k)
		ok, err := third.TryLockFor(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, !k.fair, ok)
		if ok {
			waiter.requireWaiting(t)
			require.NoError(t, third.Unlock(t.Context()))
		}
		require.NoError(t, <-waiter.ended)
	})
}

// At the maximum of holds every way to take the lock is refused, and the hold count does not change.
func TestTckHoldsEndAtTheMaximum(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		reentrant.SetHolds(k.Lock, t.Context(), math.MaxInt32)
		for name, take := range takers(k) {
			assert.ErrorIs(t, take(t.Context()), reentrant.ErrTooManyHolds, name)
			assert.Equal(t, math.MaxInt32, k.HoldCount(t.Context()), name)
		}
		timely, err := k.cond.AwaitFor(t.Context(), time.Second)
		require.NoError(t, err)
		assert.False(t, timely)
		assert.Equal(t, math.MaxInt32, k.HoldCount(t.Context()), "a wait gives up all holds and restores them")
		reentrant.SetHolds(k.Lock, t.Context(), 1)
		unlock()
	})
}

// takers are the ways to take a lock. An attempt that finds it held returns errTaken.
func takers(k kit) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Lock":          k.Lock.Lock,
		"TryLock":       func(ctx context.Context) error { return found(k.TryLock(ctx)) },
		"TryLockFor(0)": func(ctx context.Context) error { return found(k.TryLockFor(ctx, 0)) },
		"TryLockFor":    func(ctx context.Context) error { return found(k.TryLockFor(ctx, time.Hour)) },
	}
}

var errTaken = errors.New("taken")

// found returns the error of an attempt, or errTaken if the attempt only failed.
func found(ok bool, err error) error {
	if err == nil && !ok {
		return errTaken
	}
	return err
}

func TestTckStringNamesTheHolder(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		assert.Equal(t, `reentrant.Lock("x")[Unlocked]`, k.String())
		unlock := k.locked(t)
		want := fmt.Sprintf(`reentrant.Lock("x")[Locked by owner %v]`, reentrant.CurrentOwner(t.Context()))
		assert.Equal(t, want, k.String())
		elsewhere(t, func(context.Context) { assert.Equal(t, want, k.String(), "the text is the same for every owner") })
		unlock()
		assert.Equal(t, `reentrant.Lock("x")[Unlocked]`, k.String())
	})
}

// A lock of the same name at another server is another lock.
func TestTckAHoldIsOfOneLockOnly(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		defer unlock()
		for _, other := range []kit{newKit(t, memory.New(), k.fair), {Lock: k.session.NewLock("y")}} {
			assert.False(t, other.IsHeldByCurrentOwner(t.Context()))
			assert.ErrorIs(t, other.Unlock(t.Context()), reentrant.ErrNotHeld)
		}
	})
}

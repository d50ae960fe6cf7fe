package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// For a waiter, a context that ends is what an interrupt is in Java.
func TestTckACancelledWaiterLeaves(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		for _, from := range []kit{k, newKit(t, k.backend, k.fair)} { // in the same process, and in another one
			for _, way := range []string{"Lock", "TryLockFor"} {
				waiter := start(t, takers(from)[way])
				require.True(t, from.HasQueuedOwner(waiter.Owner), way)
				waiter.interrupt()
				assert.ErrorIs(t, <-waiter.ended, context.Canceled, way)
				assert.False(t, from.HasQueuedOwners(), way)
				assert.False(t, from.IsHeldByCurrentOwner(t.Context()) && from.session != k.session, way)
			}
		}
		assert.Equal(t, 1, k.HoldCount(t.Context()), "the holder's lock is unchanged")
		unlock()
	})
}

// A call under a context that has ended does nothing, even if it could succeed at once.
func TestTckAnEndedContextWinsOverEverything(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := k.backend.Commands()
		refused := func(state string, holds int) {
			for way, take := range takers(k) {
				assert.ErrorIs(t, take(ended), context.Canceled, "%s of a lock that is %s", way, state)
			}
			for way, wait := range waits(k.cond) {
				assert.ErrorIs(t, wait(ended), context.Canceled, "%s with a lock that is %s", way, state)
			}
			assert.Equal(t, holds, k.HoldCount(t.Context()), state)
			assert.Equal(t, before, k.backend.Commands(), "no command was sent")
		}
		refused("free", 0)
		unlock := k.locked(t)
		before = k.backend.Commands()
		refused("held", 1)
		unlock()
		hold, done := make(chan struct{}), make(chan struct{})
		holder := start(t, func(ctx context.Context) error {
			defer close(done)
			unlock := lockFor(t, ctx, k.Lock)
			<-hold
			unlock()
			return nil
		})
		before = k.backend.Commands()
		refused("another's", 0)
		close(hold)
		require.NoError(t, <-holder.ended)
		<-done
	})
}

// context.WithoutCancel makes Lock uninterruptible, as Java's lock() is.
func TestTckLockWithoutCancelIsNotInterrupted(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		waiter := start(t, func(ctx context.Context) error {
			if err := k.Lock.Lock(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			assert.ErrorIs(t, ctx.Err(), context.Canceled, "the interrupt is remembered")
			assert.Equal(t, 1, k.HoldCount(ctx))
			return k.Unlock(ctx)
		})
		waiter.interrupt()
		waiter.requireWaiting(t)
		unlock()
		require.NoError(t, <-waiter.ended)
	})
}

// A wait also ends at the deadline of its context.
func TestTckADeadlineEndsAWait(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		elsewhere(t, func(ctx context.Context) {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(ctx, 12*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, k.Lock.Lock(ctx), context.DeadlineExceeded)
			assert.Equal(t, 12*time.Millisecond, time.Since(begun))
		})
		unlock()
	})
}

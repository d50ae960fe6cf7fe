package reentrant_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTckTryLockForWaitsItsTimeAndNoLonger(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		for _, from := range []kit{k, newKit(t, k.backend, k.fair)} { // in the same process, and in another one
			elsewhere(t, func(ctx context.Context) {
				begun := time.Now()
				ok, err := from.TryLockFor(ctx, 12*time.Millisecond)
				assert.NoError(t, err)
				assert.False(t, ok)
				assert.Equal(t, 12*time.Millisecond, time.Since(begun))
			})
			assert.False(t, from.HasQueuedOwners())
		}
		assert.Equal(t, 1, k.HoldCount(t.Context()))
		unlock()
	})
}

// Without time there is still one attempt.
func TestTckTryLockForWithoutTimeTriesOnce(t *testing.T) {
	for _, wait := range []time.Duration{0, -1, math.MinInt64} {
		t.Run(wait.String(), func(t *testing.T) {
			kits(t, func(t *testing.T, k kit) {
				begun := time.Now()
				for holds := range 2 { // with the lock free, and held
					ok, err := k.TryLockFor(t.Context(), wait)
					require.NoError(t, err)
					assert.True(t, ok)
					assert.Equal(t, holds+1, k.HoldCount(t.Context()))
				}
				elsewhere(t, func(ctx context.Context) {
					ok, err := k.TryLockFor(ctx, wait)
					assert.NoError(t, err)
					assert.False(t, ok)
				})
				assert.Zero(t, time.Since(begun))
				require.NoError(t, k.Unlock(t.Context()))
				require.NoError(t, k.Unlock(t.Context()))
			})
		})
	}
}

func TestTckTryLockForTakesALockThatIsFreeInTime(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		for _, from := range []kit{k, newKit(t, k.backend, k.fair)} {
			unlock := k.locked(t)
			timed := start(t, func(ctx context.Context) error {
				ok, err := from.TryLockFor(ctx, math.MaxInt64)
				if assert.NoError(t, err) && assert.True(t, ok) {
					return from.Unlock(ctx)
				}
				return nil
			})
			time.Sleep(time.Minute)
			timed.requireWaiting(t)
			unlock()
			require.NoError(t, <-timed.ended)
		}
	})
}

// A timed attempt waits behind earlier callers.
func TestTckTryLockForKeepsItsPlaceInTheQueue(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		var order []string // guarded by the lock
		enter := func(name string, take func(ctx context.Context) (bool, error)) thread {
			return start(t, func(ctx context.Context) error {
				ok, err := take(ctx)
				assert.True(t, ok, name)
				if err != nil {
					return err
				}
				order = append(order, name)
				return k.Unlock(ctx)
			})
		}
		patient := func(ctx context.Context) (bool, error) { return true, k.Lock.Lock(ctx) }
		timed := func(ctx context.Context) (bool, error) { return k.TryLockFor(ctx, time.Second) }
		threads := []thread{enter("1", patient), enter("2", timed), enter("3", patient), enter("4", timed)}
		unlock()
		for _, th := range threads {
			require.NoError(t, <-th.ended)
		}
		assert.Equal(t, []string{"1", "2", "3", "4"}, order)
	})
}

// When the time limit has passed, the result is false without an error. A context that has ended is an error, in
// whatever way it has ended.
func TestTckATimeLimitIsFalseAndAnEndedContextAnError(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		elsewhere(t, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			ok, err := k.TryLockFor(ctx, time.Second-1)
			assert.NoError(t, err, "the time was up first")
			assert.False(t, ok)
			ok, err = k.TryLockFor(ctx, time.Second)
			assert.ErrorIs(t, err, context.DeadlineExceeded, "the context ended first")
			assert.False(t, ok)
		})
		unlock()
	})
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// What the JDK's SemaphoreTest checks, as far as it applies. docs/divergence.md has the list, case by case.

// semaphores runs a case on a semaphore, with others that use it in the same session, and in another.
func semaphores(t *testing.T, permits int, f func(t *testing.T, m, others *reentrant.Semaphore)) {
	t.Helper()
	for name, apart := range map[string]bool{"OneSession": false, "TwoSessions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				m := newSession(t, b).NewSemaphore("x", permits)
				others := m
				if apart {
					others = newSession(t, b).NewSemaphore("x", permits)
				}
				f(t, m, others)
				synctest.Wait()
				st, err := m.Inspect(t.Context())
				require.NoError(t, err)
				assert.Empty(t, st.Holders)
			})
		})
	}
}

// uses starts a goroutine that takes permits and gives them back.
func uses(t *testing.T, m *reentrant.Semaphore, n int) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := m.Acquire(ctx, n); err != nil {
			return err
		}
		return m.Release(ctx, n)
	})
}

func TestTckTheQueueOfASemaphoreIsCounted(t *testing.T) {
	semaphores(t, 1, func(t *testing.T, m, others *reentrant.Semaphore) {
		assert.Zero(t, others.QueueLength())
		require.NoError(t, m.Acquire(t.Context(), 1))
		first := uses(t, others, 1)
		assert.True(t, others.HasQueuedOwners())
		assert.Equal(t, 1, others.QueueLength())
		second := uses(t, others, 1)
		assert.Equal(t, 2, others.QueueLength())
		second.interrupt()
		require.ErrorIs(t, <-second.ended, context.Canceled)
		assert.Equal(t, 1, others.QueueLength())
		require.NoError(t, m.Release(t.Context(), 1))
		require.NoError(t, <-first.ended)
		assert.False(t, others.HasQueuedOwners())
	})
}

func TestTckTryAcquireTakesWhatThereIs(t *testing.T) {
	semaphores(t, 2, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		assert.Equal(t, 2, m.Permits())
		for range 2 {
			ok, err := m.TryAcquire(ctx, 1)
			require.NoError(t, err)
			require.True(t, ok)
		}
		for _, x := range []*reentrant.Semaphore{m, others} {
			ok, err := x.TryAcquire(ctx, 1)
			require.NoError(t, err)
			require.False(t, ok)
		}
		require.NoError(t, m.Release(ctx, 2))
	})
}

func TestTckPermitsAreTakenAndGivenBack(t *testing.T) {
	semaphores(t, 5, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		for n := 1; n <= 5; n++ {
			require.NoError(t, m.Acquire(ctx, n))
			require.NoError(t, m.Release(ctx, n))
			ok, err := others.TryAcquireFor(ctx, n, time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, others.Release(ctx, n))
		}
	})
}

func TestTckAnyGoroutineOfTheSessionReleases(t *testing.T) {
	semaphores(t, 1, func(t *testing.T, m, others *reentrant.Semaphore) {
		require.NoError(t, m.Acquire(t.Context(), 1))
		waiter := uses(t, others, 1)
		waiter.requireWaiting(t)
		elsewhere(t, func(ctx context.Context) { require.NoError(t, m.Release(ctx, 1)) })
		require.NoError(t, <-waiter.ended)
	})
}

func TestTckACancelledAcquireLeaves(t *testing.T) {
	semaphores(t, 1, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 1))
		plain := uses(t, others, 1)
		timed := start(t, func(ctx context.Context) error {
			_, err := others.TryAcquireFor(ctx, 1, time.Hour)
			return err
		})
		for _, waiter := range []thread{plain, timed} {
			waiter.requireWaiting(t)
			waiter.interrupt()
			require.ErrorIs(t, <-waiter.ended, context.Canceled)
		}
		require.NoError(t, m.Release(ctx, 1))
	})
}

func TestTckATimedAcquireTakesItsTime(t *testing.T) {
	semaphores(t, 1, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 1))
		begun := time.Now()
		ok, err := others.TryAcquireFor(ctx, 1, time.Second)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, time.Second, time.Since(begun))
		require.NoError(t, m.Release(ctx, 1))
	})
}

// A wide request is not overtaken by narrow ones that would fit, as in Java's fair mode.
func TestTckPermitsComeInOrderOfArrival(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 2))
		wide := uses(t, others, 3)
		narrow := uses(t, others, 1)
		wide.requireWaiting(t)
		narrow.requireWaiting(t)
		require.NoError(t, m.Release(ctx, 2))
		require.NoError(t, <-wide.ended)
		require.NoError(t, <-narrow.ended)
	})
}

// In Java a release of what was not acquired adds a permit, and one of a negative number throws.
func TestTckWhatIsNotHeldIsNotReleased(t *testing.T) {
	semaphores(t, 2, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		assert.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)
		require.NoError(t, m.Acquire(ctx, 1))
		assert.ErrorIs(t, m.Release(ctx, 2), reentrant.ErrNotHeld)
		for _, n := range []int{0, -1, 3} {
			assert.Error(t, m.Release(ctx, n))
			assert.Error(t, m.Acquire(ctx, n))
			_, err := m.TryAcquire(ctx, n)
			assert.Error(t, err)
		}
		ok, err := others.TryAcquire(ctx, 2)
		require.NoError(t, err)
		assert.False(t, ok, "one is in use")
		require.NoError(t, m.Release(ctx, 1))
	})
}

func TestTckStringOfASemaphoreHasItsPermits(t *testing.T) {
	semaphores(t, 7, func(t *testing.T, m, _ *reentrant.Semaphore) {
		assert.Contains(t, m.String(), "Permits = 7")
	})
}

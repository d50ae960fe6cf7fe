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

func TestATryEndsWithOneAttemptWhileAnotherSessionWaits(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			l, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
			require.NoError(t, l.RLock(t.Context()))
			got := make(chan error)
			go func() {
				w := reentrant.WithOwner(t.Context(), "writer")
				err := writer.Lock(w)
				assert.NoError(t, writer.Unlock(w))
				got <- err
			}()
			synctest.Wait()
			begun := time.Now()
			ctx, cancel := context.WithTimeout(reentrant.WithOwner(t.Context(), "newcomer"), time.Minute)
			defer cancel()
			ok, err := l.TryRLock(ctx)
			require.NoError(t, err)
			assert.False(t, ok)
			assert.Less(t, time.Since(begun), reentrant.DefaultHeartbeat)
			require.NoError(t, l.RUnlock(t.Context()))
			require.NoError(t, <-got)
		})
	})
	t.Run("permits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			m, other := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 5)
			require.NoError(t, m.Acquire(t.Context(), 4))
			got := make(chan error)
			go func() { got <- other.Acquire(t.Context(), 3) }()
			synctest.Wait()
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ok, err := m.TryAcquire(ctx, 1)
			require.NoError(t, err)
			assert.False(t, ok)
			assert.Less(t, time.Since(begun), reentrant.DefaultHeartbeat)
			require.NoError(t, m.Release(t.Context(), 4))
			require.NoError(t, <-got)
			require.NoError(t, other.Release(t.Context(), 3))
		})
	})
}

func TestASessionForgetsARequestForUnitsWhenNoSessionWaits(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			l, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
			require.NoError(t, l.RLock(t.Context()))
			ok, err := writer.TryLockFor(t.Context(), 100*time.Millisecond)
			require.NoError(t, err)
			require.False(t, ok)
			newcomer := reentrant.WithOwner(t.Context(), "newcomer")
			ok, err = l.TryRLockFor(newcomer, 3*reentrant.DefaultHeartbeat)
			require.NoError(t, err)
			assert.True(t, ok, "only readers have the lock, and no writer waits")
			if ok {
				require.NoError(t, l.RUnlock(newcomer))
			}
			require.NoError(t, l.RUnlock(t.Context()))
		})
	})
	t.Run("permits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			m, other := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 5)
			require.NoError(t, m.Acquire(t.Context(), 4))
			ok, err := other.TryAcquireFor(t.Context(), 3, 100*time.Millisecond)
			require.NoError(t, err)
			require.False(t, ok)
			ok, err = m.TryAcquireFor(t.Context(), 1, 3*reentrant.DefaultHeartbeat)
			require.NoError(t, err)
			assert.True(t, ok, "a permit is free, and no other session waits")
			require.NoError(t, m.Release(t.Context(), 4))
			if ok {
				require.NoError(t, m.Release(t.Context(), 1))
			}
		})
	})
}

func TestASessionWaitsForNoMoreThanItsHeadNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m, other := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 5)
		require.NoError(t, m.Acquire(t.Context(), 1))
		require.NoError(t, other.Acquire(t.Context(), 3))
		large := make(chan bool)
		go func() {
			ok, err := m.TryAcquireFor(t.Context(), 3, 100*time.Millisecond)
			assert.NoError(t, err)
			large <- ok
		}()
		synctest.Wait()
		ok, err := m.TryAcquireFor(t.Context(), 1, time.Minute)
		require.NoError(t, err)
		assert.True(t, ok, "one permit is free")
		assert.False(t, <-large)
		require.NoError(t, m.Release(t.Context(), 1))
		if ok {
			require.NoError(t, m.Release(t.Context(), 1))
		}
		require.NoError(t, other.Release(t.Context(), 3))
	})
}

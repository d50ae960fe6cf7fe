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

func TestForceUnlockTakesBothSidesFromAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two, next, outside := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		ctx := t.Context()
		require.NoError(t, one.RLock(ctx))
		require.NoError(t, two.RLock(ctx))
		version, err := one.Version(ctx)
		require.NoError(t, err)
		lost := []<-chan struct{}{one.Lost(ctx), two.Lost(ctx)}
		got := make(chan error)
		go func() { got <- next.Lock(reentrant.WithOwner(ctx, "writer")) }()
		synctest.Wait()

		begun := time.Now()
		had, err := outside.ForceUnlock(ctx)
		require.NoError(t, err)
		assert.True(t, had)
		require.NoError(t, <-got)
		assert.Zero(t, time.Since(begun), "the next waiter gets the lock at once")
		token, err := next.Token(reentrant.WithOwner(ctx, "writer"))
		require.NoError(t, err)
		assert.Greater(t, token, version)
		for _, ch := range lost {
			<-ch
		}
		assert.LessOrEqual(t, time.Since(begun), reentrant.DefaultLease/2, "they learn of it at the next renewal")
		_, err = one.Version(ctx)
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.ErrorIs(t, one.RUnlock(ctx), reentrant.ErrLost)
		assert.ErrorIs(t, two.RUnlock(ctx), reentrant.ErrLost)

		had, err = outside.ForceUnlock(ctx)
		require.NoError(t, err)
		assert.True(t, had, "of a writer")
		require.NoError(t, outside.Lock(ctx))
		require.NoError(t, outside.Unlock(ctx))
		<-next.Lost(reentrant.WithOwner(ctx, "writer"))
		assert.ErrorIs(t, next.Unlock(reentrant.WithOwner(ctx, "writer")), reentrant.ErrLost)
	})
}

// A session that waits to write loses its readers' units to a ForceUnlock, and another session writes meanwhile. The
// first session notices the loss, although it is granted the write side before it asks again.
func TestReadersOfASessionThatWaitsToWriteLearnOfAForceUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		both, reader, next, outside := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		reads, writes := reentrant.WithOwner(ctx, "reads"), reentrant.WithOwner(ctx, "writes")
		require.NoError(t, both.RLock(reads))
		require.NoError(t, reader.RLock(ctx))
		lost := both.Lost(reads)
		wrote, written := make(chan error), make(chan error)
		go func() { wrote <- both.Lock(writes) }()
		synctest.Wait()
		go func() {
			if err := next.Lock(ctx); err != nil {
				written <- err
				return
			}
			written <- next.Unlock(ctx)
		}()
		synctest.Wait()
		had, err := outside.ForceUnlock(ctx)
		require.NoError(t, err)
		require.True(t, had)
		require.NoError(t, <-written)
		require.NoError(t, <-wrote)
		assert.False(t, stillOpen(lost), "the reader's Lost is still open although another session has written")
		assert.ErrorIs(t, both.RUnlock(reads), reentrant.ErrLost)
		require.NoError(t, both.Unlock(writes))
		<-reader.Lost(ctx)
		assert.ErrorIs(t, reader.RUnlock(ctx), reentrant.ErrLost)
	})
}

func TestForceReleaseTakesThePermitsOfAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two, outside := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		ctx := t.Context()
		had, err := outside.ForceRelease(ctx)
		require.NoError(t, err)
		assert.False(t, had, "no session has any")
		require.NoError(t, one.Acquire(ctx, 2))
		require.NoError(t, two.Acquire(ctx, 1))
		lost := []<-chan struct{}{one.Lost(), two.Lost()}
		had, err = outside.ForceRelease(ctx)
		require.NoError(t, err)
		assert.True(t, had)
		require.NoError(t, outside.Acquire(ctx, 3))
		for _, ch := range lost {
			<-ch
		}
		assert.ErrorIs(t, one.Release(ctx, 2), reentrant.ErrLost)
		assert.ErrorIs(t, two.Release(ctx, 1), reentrant.ErrLost)
		require.NoError(t, outside.Release(ctx, 3))
	})
}

func TestForceOfAnotherKindIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, ctx := newSession(t, b), t.Context()
		x := newSession(t, b)
		require.NoError(t, s.NewLock("lock").Lock(ctx))
		require.NoError(t, s.NewRWLock("rw").RLock(ctx))
		require.NoError(t, s.NewSemaphore("sem", 1).Acquire(ctx, 1))
		for _, force := range []func(name string) (bool, error){
			func(name string) (bool, error) { return x.NewLock(name).ForceUnlock(ctx) },
			func(name string) (bool, error) { return x.NewRWLock(name).ForceUnlock(ctx) },
			func(name string) (bool, error) { return x.NewSemaphore(name, 1).ForceRelease(ctx) },
		} {
			refused := 0
			for _, name := range []string{"lock", "rw", "sem"} {
				if had, err := force(name); err != nil {
					assert.ErrorIs(t, err, reentrant.ErrWrongKind)
					assert.False(t, had)
					refused++
				}
			}
			assert.Equal(t, 2, refused)
		}
	})
}

func TestASlotKeepsItsNumberWhenPermitsAreForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		m, outside := newSession(t, b).NewSemaphore("x", 2), newSession(t, b).NewSemaphore("x", 2)
		slot, err := m.AcquireSlot(ctx)
		require.NoError(t, err)
		had, err := outside.ForceRelease(ctx)
		require.NoError(t, err)
		require.True(t, had)
		<-m.Lost()
		assert.False(t, stillOpen(slot.Lost()), "the slot no longer has a permit")
		next, err := outside.AcquireSlot(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, next.Number(), "the first is taken")
		assert.ErrorIs(t, slot.Release(ctx), reentrant.ErrLost)
		require.NoError(t, next.Release(ctx))
	})
}

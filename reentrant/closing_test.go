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

// While a session is being closed, holders can take their lock once more and no other owner gets a lock, in every mode,
// with and without an observer.
func TestHoldersReenterWhileTheirSessionIsClosed(t *testing.T) {
	for name, mode := range everyMode {
		for watched, opts := range map[string][]reentrant.Option{
			"": nil, ", observed": {reentrant.WithObserver(observe(func(reentrant.Event) {}))},
			", with a detector": {reentrant.WithDeadlockDetection()},
		} {
			t.Run(name+watched, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSession(t, memory.New(), append(mode, opts...)...)
					l := s.NewLock("x")
					require.NoError(t, l.Lock(t.Context()))
					closed := make(chan error)
					go func() { closed <- s.Close(context.Background()) }()
					synctest.Wait()
					for range 2 {
						require.NoError(t, l.Lock(t.Context()))
						ok, err := s.NewLock("x").TryLock(t.Context())
						require.NoError(t, err)
						require.True(t, ok)
						ok, err = l.TryLockFor(t.Context(), time.Second)
						require.NoError(t, err)
						require.True(t, ok)
					}
					assert.Equal(t, 7, l.HoldCount(t.Context()))
					other := owner(t, "other")
					assert.ErrorIs(t, l.Lock(other), reentrant.ErrClosed)
					assert.ErrorIs(t, s.NewLock("y").Lock(t.Context()), reentrant.ErrClosed)
					for range 7 {
						require.NoError(t, l.Unlock(t.Context()))
					}
					assert.NoError(t, <-closed)
					assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrClosed)
				})
			})
		}
	}
}

// When Close begins, a goroutine waits for an operation by another goroutine of the same owner. The waiting one counts as a
// holder, too.
func TestAWaiterForReentryIsNotExpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewLock("x"), owner(t, "a")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Reenter, memory.DelayReply(time.Second)))
		got := make(chan error)
		for range 2 {
			go func() { got <- l.Lock(ctx) }()
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- s.Close(context.Background()) }()
		for range 2 {
			assert.NoError(t, <-got)
		}
		for range 3 {
			require.NoError(t, l.Unlock(ctx))
		}
		assert.NoError(t, <-closed)
	})
}

// A closed session sends nothing, and takes nothing from the holders of other sessions.
func TestAClosedSessionSendsNoCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		l, rw, m := s.NewLock("lock"), s.NewRWLock("rw"), s.NewSemaphore("sem", 2)
		require.NoError(t, other.NewLock("lock").Lock(ctx))
		require.NoError(t, other.NewRWLock("rw").Lock(ctx))
		require.NoError(t, other.NewSemaphore("sem", 2).Acquire(ctx, 1))
		calls := map[string]func() error{
			"Lock.ForceUnlock":       func() error { _, err := l.ForceUnlock(ctx); return err },
			"Lock.Inspect":           func() error { _, err := l.Inspect(ctx); return err },
			"Lock.IsLocked":          func() error { _, err := l.IsLocked(ctx); return err },
			"Session.InspectAll":     func() error { _, err := s.InspectAll(ctx, "lock", "free"); return err },
			"RWLock.ForceUnlock":     func() error { _, err := rw.ForceUnlock(ctx); return err },
			"RWLock.Inspect":         func() error { _, err := rw.Inspect(ctx); return err },
			"RWLock.IsWriteLocked":   func() error { _, err := rw.IsWriteLocked(ctx); return err },
			"Semaphore.ForceRelease": func() error { _, err := m.ForceRelease(ctx); return err },
			"Semaphore.Inspect":      func() error { _, err := m.Inspect(ctx); return err },
		}
		refused := func(when string) {
			sent := b.Commands()
			for name, call := range calls {
				assert.ErrorIs(t, call(), reentrant.ErrClosed, "%s of a session that is %s", name, when)
			}
			assert.Equal(t, sent, b.Commands(), "sent by a session that is %s", when)
		}
		held, side := s.NewLock("held"), s.NewRWLock("side")
		require.NoError(t, held.Lock(ctx))
		require.NoError(t, side.RLock(ctx))
		closed := make(chan error)
		go func() { closed <- s.Close(context.Background()) }()
		synctest.Wait()
		refused("closing")
		require.NoError(t, held.Verify(ctx), "a holder can ask about its hold")
		require.NoError(t, side.Verify(ctx), "a holder can ask about its hold")
		require.NoError(t, side.RUnlock(ctx))
		require.NoError(t, held.Unlock(ctx))
		require.NoError(t, <-closed)
		refused("closed")
		require.NoError(t, other.NewLock("lock").Verify(ctx))
		require.NoError(t, other.NewRWLock("rw").Verify(ctx))
		require.NoError(t, other.NewSemaphore("sem", 2).Release(ctx, 1))
		require.NoError(t, other.NewRWLock("rw").Unlock(ctx))
		require.NoError(t, other.NewLock("lock").Unlock(ctx))
	})
}

// After its last reader has left, the session keeps the read side for a while, but not if it is being closed.
func TestCloseEndsWithTheLastReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		l, a, c := s.NewRWLock("x"), owner(t, "a"), owner(t, "b")
		require.NoError(t, l.RLock(a))
		require.NoError(t, l.RLock(c))
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		closed := make(chan error)
		go func() { closed <- s.Close(ctx) }()
		synctest.Wait()
		require.NoError(t, l.RUnlock(a))
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, l.RUnlock(c))
		require.NoError(t, <-closed)
		assert.Zero(t, time.Since(start))
		ok, err := other.NewRWLock("x").TryLock(a)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, other.NewRWLock("x").Unlock(a))
	})
}

// Close returns when the last of the owners that held something has left, whatever kind of hold that was.
func TestCloseEndsWithTheLastSharedHold(t *testing.T) {
	for _, take := range []string{"read", "write", "write, then read", "permits", "slot"} {
		t.Run(take, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ctx := newSession(t, memory.New()), t.Context()
				l, m := s.NewRWLock("x"), s.NewSemaphore("m", 3)
				var leave func() error
				switch take {
				case "read":
					require.NoError(t, l.RLock(ctx))
					leave = func() error { return l.RUnlock(ctx) }
				case "write":
					require.NoError(t, l.Lock(ctx))
					leave = func() error { return l.Unlock(ctx) }
				case "write, then read":
					require.NoError(t, l.Lock(ctx))
					require.NoError(t, l.RLock(ctx))
					require.NoError(t, l.Unlock(ctx))
					leave = func() error { return l.RUnlock(ctx) }
				case "permits":
					require.NoError(t, m.Acquire(ctx, 2))
					leave = func() error { return m.Release(ctx, 2) }
				case "slot":
					slot, err := m.AcquireSlot(ctx)
					require.NoError(t, err)
					leave = func() error { return slot.Release(ctx) }
				}
				within, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				closed := make(chan error)
				go func() { closed <- s.Close(within) }()
				time.Sleep(20 * time.Second)
				left := time.Now()
				require.NoError(t, leave())
				assert.NoError(t, <-closed)
				assert.Equal(t, left, time.Now(), "Close still waits")
			})
		})
	}
}

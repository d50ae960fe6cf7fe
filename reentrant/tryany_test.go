package reentrant_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestTryAnyTakesTheFirstFreeLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		a, b := s.NewLock("a"), s.NewLock("b")
		other := reentrant.WithOwner(t.Context(), "other")
		require.NoError(t, a.Lock(other))

		got, err := reentrant.TryAny(t.Context(), a, b)
		require.NoError(t, err)
		assert.Same(t, b, got)
		require.NoError(t, b.Unlock(t.Context()))

		require.NoError(t, b.Lock(other))
		_, err = reentrant.TryAny(t.Context(), a, b)
		assert.ErrorIs(t, err, reentrant.ErrNotAcquired)
		require.NoError(t, errors.Join(a.Unlock(other), b.Unlock(other)))

		got, err = reentrant.TryAny(t.Context(), s.NewLock(""), a)
		require.NoError(t, err, "a lock that cannot be asked does not hide one that is free")
		require.NoError(t, got.Unlock(t.Context()))
	})
}

// A refusal of the backend does not mean that another owner has the lock.
func TestTryAnyReportsALockThatItCouldNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		b.SetFault(memory.Script(memory.Acquire, memory.Refuse("NOPERM"), memory.Refuse("NOPERM")))
		_, err := reentrant.TryAny(t.Context(), s.NewLock("a"), s.NewLock("b"))
		assert.True(t, backend.Refused(err))
		assert.NotErrorIs(t, err, reentrant.ErrNotAcquired)
		_, err = reentrant.TryAny(ended(), s.NewLock("a"))
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, reentrant.ErrNotAcquired)
	})
}

// A lock that the caller already has does not count as free, whether the owner is a goroutine or has a name. The hold
// does not change.
func TestTryAnyDoesNotReenter(t *testing.T) {
	for mode, opts := range map[string][]reentrant.Option{"registered": nil, "cohort": {reentrant.WithCohort()}} {
		for name, own := range map[string]func(context.Context) context.Context{
			"goroutine": func(ctx context.Context) context.Context { return ctx },
			"named":     func(ctx context.Context) context.Context { return reentrant.WithOwner(ctx, "me") },
		} {
			t.Run(mode+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, ctx := newSession(t, memory.New(), opts...), own(t.Context())
					a, b := s.NewLock("a"), s.NewLock("b")
					require.NoError(t, a.Lock(ctx))
					for _, want := range []*reentrant.Lock{b, nil} {
						got, err := reentrant.TryAny(ctx, a, b)
						assert.Same(t, want, got)
						if want == nil {
							assert.ErrorIs(t, err, reentrant.ErrNotAcquired)
						}
					}
					begun := time.Now()
					_, err := reentrant.TryAnyFor(ctx, time.Hour, a, b)
					assert.ErrorIs(t, err, reentrant.ErrNotAcquired)
					assert.Zero(t, time.Since(begun), "there is nothing to wait for")
					assert.Equal(t, 1, a.HoldCount(ctx))
					assert.Equal(t, 1, b.HoldCount(ctx))
					require.NoError(t, errors.Join(a.Unlock(ctx), b.Unlock(ctx)))
				})
			})
		}
	}
}

// TryAnyFor waits for all locks, and returns the first one that it acquires.
func TestTryAnyForTakesWhatBecomesFreeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := memory.New()
		s, elsewhere := newSession(t, backend), newSession(t, backend)
		names := []string{"a", "b", "c"}
		other := owner(t, "other")
		var locks []*reentrant.Lock
		for i, name := range names {
			l := s.NewLock(name)
			locks = append(locks, l)
			holder := []*reentrant.Session{s, elsewhere}[i%2].NewLock(name)
			require.NoError(t, holder.Lock(other))
			time.AfterFunc(time.Duration(3-i)*time.Minute, func() { assert.NoError(t, holder.Unlock(other)) })
		}
		begun := time.Now()
		_, err := reentrant.TryAnyFor(t.Context(), time.Second, locks...)
		assert.ErrorIs(t, err, reentrant.ErrNotAcquired)
		assert.Equal(t, time.Second, time.Since(begun))
		got, err := reentrant.TryAnyFor(t.Context(), time.Hour, append(locks, locks...)...)
		require.NoError(t, err)
		assert.Same(t, locks[2], got, "the last is freed first")
		assert.Equal(t, 1, got.HoldCount(t.Context()))
		require.NoError(t, got.Verify(t.Context()))
		assert.InDelta(t, time.Minute, time.Since(begun), float64(time.Second))
		assert.False(t, locks[0].HasQueuedOwners() || locks[1].HasQueuedOwners(), "the places in the queues are withdrawn")
		require.NoError(t, got.Unlock(t.Context()))
		time.Sleep(time.Hour)
		for _, l := range locks {
			locked, err := l.IsLocked(t.Context())
			require.NoError(t, err)
			assert.False(t, locked)
		}
	})
}

// If two locks are granted at the same moment, one is kept. Here neither reply is delivered before both locks are
// granted.
func TestTryAnyForKeepsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		me, other := owner(t, "me"), owner(t, "other")
		b := &liar{Backend: memory.New()}
		s := newSession(t, b)
		m := reentrant.NewMultiLock(s.NewLock("a"), s.NewLock("b"))
		require.NoError(t, m.Lock(other))
		var both sync.WaitGroup
		both.Add(2)
		b.acquire = func(*backend.AcquireReply) { both.Done(); both.Wait() }
		time.AfterFunc(time.Second, func() { assert.NoError(t, m.Unlock(other)) })
		got, err := reentrant.TryAnyFor(me, time.Minute, s.NewLock("a"), s.NewLock("b"))
		require.NoError(t, err)
		assert.Equal(t, 1, got.HoldCount(me))
		assert.Equal(t, 1, s.Stats().Held, "the other lock is released")
		require.NoError(t, got.Unlock(me))
	})
}

func TestTryAnyForEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		locks := []*reentrant.Lock{s.NewLock("a"), s.NewLock("b")}
		other := owner(t, "other")
		require.NoError(t, reentrant.NewMultiLock(locks...).Lock(other))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := reentrant.TryAnyFor(ctx, time.Hour, locks...)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, reentrant.ErrNotAcquired)
		_, err = reentrant.TryAnyFor(ended(), 0, locks...)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = reentrant.TryAnyFor(t.Context(), 0, locks...)
		assert.ErrorIs(t, err, reentrant.ErrNotAcquired)
		_, err = reentrant.TryAnyFor(t.Context(), time.Hour, locks[0], nil)
		assert.ErrorContains(t, err, "lock 2 is nil")
		require.NoError(t, reentrant.NewMultiLock(locks...).Unlock(other))
	})
}

// If a lock cannot be asked, TryAnyFor waits for the others. The error of the lock that cannot be asked is returned if no
// other lock is acquired.
func TestTryAnyForWaitsForThoseThatCanBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		bad, good := s.NewLock(""), s.NewLock("a")
		unlock := lockFor(t, owner(t, "other"), good)
		time.AfterFunc(time.Minute, unlock)
		_, err := reentrant.TryAnyFor(t.Context(), time.Second, bad, good)
		assert.ErrorContains(t, err, "must not be empty")
		assert.NotErrorIs(t, err, reentrant.ErrNotAcquired)
		got, err := reentrant.TryAnyFor(t.Context(), time.Hour, bad, good)
		require.NoError(t, err)
		assert.Same(t, good, got)
		require.NoError(t, got.Unlock(t.Context()))
	})
}

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

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// newSession opens a session that is closed at the end of the bubble's test function by the returned function.
func newSession(t testing.TB, b reentrant.Backend, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	s, err := reentrant.NewSession(b, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

func TestMultiLockTakesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		a, b := s.NewLock("a"), s.NewLock("b")
		other := reentrant.WithOwner(t.Context(), "other")
		require.NoError(t, b.Lock(other))

		m := reentrant.NewMultiLock(b, a, b)
		ok, err := m.TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		assert.False(t, a.IsHeldByCurrentOwner(t.Context()), "a was free and is given back")

		ok, err = m.TryLockFor(t.Context(), time.Second)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.False(t, a.IsHeldByCurrentOwner(t.Context()))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, m.Lock(ctx), context.DeadlineExceeded)
		assert.False(t, a.IsHeldByCurrentOwner(t.Context()))

		require.NoError(t, b.Unlock(other))
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, 1, a.HoldCount(t.Context()))
		assert.Equal(t, 1, b.HoldCount(t.Context()), "given twice, held once")
		require.NoError(t, m.Unlock(t.Context()))
		assert.Zero(t, a.HoldCount(t.Context())+b.HoldCount(t.Context()))
	})
}

func TestMultiLocksInOppositeOrderNeverDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		var inside int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 8 {
			locks := []*reentrant.Lock{s.NewLock("a"), s.NewLock("b"), s.NewLock("c")}
			if i%2 == 1 {
				locks[0], locks[2] = locks[2], locks[0]
			}
			m := reentrant.NewMultiLock(locks...)
			wg.Go(func() {
				for range 50 {
					assert.NoError(t, m.Do(t.Context(), func(context.Context) error {
						mu.Lock()
						inside++
						assert.Equal(t, 1, inside, "nobody else is inside")
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						return nil
					}))
				}
			})
		}
		wg.Wait()
	})
}

func TestMultiLockIsLostWithAnyOfItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		a, b := s.NewLock("a"), s.NewLock("b", reentrant.WithFixedLease(time.Second))
		m := reentrant.NewMultiLock(a, b)
		select {
		case <-m.Lost(t.Context()):
		default:
			t.Error("a caller that holds nothing has lost it")
		}
		err := m.Do(t.Context(), func(ctx context.Context) error {
			lost := m.Lost(t.Context())
			<-ctx.Done()
			<-lost
			return context.Cause(ctx)
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.False(t, a.IsHeldByCurrentOwner(t.Context()))
	})
}

func TestMultiLockGivesBackInAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		a, b := s.NewLock("a"), s.NewLock("b")
		assert.PanicsWithValue(t, "out", func() {
			_ = reentrant.NewMultiLock(a, b).Do(t.Context(), func(context.Context) error { panic("out") })
		})
		assert.Zero(t, a.HoldCount(t.Context())+b.HoldCount(t.Context()))
	})
}

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

// A lock may be lost while its caller waits for another: then there is nothing that it could be all of.
func TestAMultiLockThatLostOneWhileItWaitedHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		first, last := s.NewLock("a", reentrant.WithFixedLease(time.Second)), s.NewLock("b")
		unlock := lockFor(t, owner(t, "other"), other.NewLock("b"))
		time.AfterFunc(3*time.Second, unlock)
		m := reentrant.NewMultiLock(first, last)
		assert.ErrorIs(t, m.Lock(t.Context()), reentrant.ErrLost)
		assert.Zero(t, last.HoldCount(t.Context()), "all or nothing")
		assert.ErrorIs(t, m.Unlock(t.Context()), reentrant.ErrNotHeld, "nothing is owed")
	})
}

// Two locks of one name and two sessions are one lock: together they would wait for themselves.
func TestAMultiLockOfOneNameTwiceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m := reentrant.NewMultiLock(newSession(t, b).NewLock("a"), newSession(t, b).NewLock("a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		assert.ErrorContains(t, m.Lock(ctx), "different sessions")
		assert.Zero(t, time.Since(start))
		assert.ErrorContains(t, m.Unlock(ctx), "different sessions")
	})
}

// A backend that refuses is not "somebody else has it".
func TestTryAnyDoesNotCallTakenWhatItCouldNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		b.SetFault(memory.Script(memory.Acquire, memory.Refuse("NOPERM"), memory.Refuse("NOPERM")))
		_, err := reentrant.TryAny(t.Context(), s.NewLock("a"), s.NewLock("b"))
		assert.True(t, reentrant.Refused(err))
		assert.NotErrorIs(t, err, reentrant.ErrNotAcquired)
		_, err = reentrant.TryAny(ended(), s.NewLock("a"))
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, reentrant.ErrNotAcquired)
	})
}

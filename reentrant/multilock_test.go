package reentrant_test

import (
	"context"
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

// aDay is longer than any test takes in virtual time.
const aDay = 25 * time.Hour

// newSession opens a session that is closed at the end of the test. In a bubble, a test that waits for an event that
// never comes fails after a day of virtual time: the bubble cannot report a deadlock, since the session goes on
// renewing.
func newSession(t testing.TB, b backend.Backend, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	s, err := reentrant.NewSession(b, opts...)
	require.NoError(t, err)
	overtime := time.AfterFunc(aDay, func() { panic(t.Name() + " waits for what does not come") })
	t.Cleanup(func() {
		overtime.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Close(ctx)
		_ = s.Close(context.Background()) // waits for the work in the background
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
		assert.False(t, a.IsHeldByCurrentOwner(t.Context()), "a was free and is released again")

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
		assert.Equal(t, 1, b.HoldCount(t.Context()), "a lock that is given twice is held once")
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
						assert.Equal(t, 1, inside, "no other owner is inside")
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
			t.Error("Lost is closed for a caller that holds nothing")
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

// A lock may be lost while its caller waits for another one. Then the MultiLock cannot have all its locks, so it has none.
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

// Two locks of one name in two sessions are the same lock: a MultiLock of both would wait for itself.
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

// A MultiLock without locks is always free, except for a caller whose context has ended.
func TestAnEmptyMultiLockHeedsItsContext(t *testing.T) {
	m := reentrant.NewMultiLock()
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
	assert.ErrorIs(t, m.Lock(ended()), context.Canceled)
	_, err := m.TryLock(ended())
	assert.ErrorIs(t, err, context.Canceled)
	ok, err := m.TryLockFor(ended(), time.Second)
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, ok)
	assert.ErrorIs(t, m.Do(ended(), func(context.Context) error { t.Error("fn runs"); return nil }), context.Canceled)
	assert.ErrorContains(t, m.Lock(nil), "nil context") //nolint:staticcheck // that is what is tested
}

// A MultiLock reports the fewest holds and the shortest trust of any of its locks, and a loss of any of them.
func TestAMultiLockIsHeldIfAllOfItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		a, b := s.NewLock("b"), s.NewLock("a", reentrant.WithFixedLease(time.Minute))
		m := reentrant.NewMultiLock(b, a)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, a.Lock(t.Context()))
		assert.Equal(t, 1, m.HoldCount(t.Context()))
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, 2, m.HoldCount(t.Context()))
		assert.True(t, m.IsHeldByCurrentOwner(t.Context()))
		assert.Zero(t, m.HoldCount(owner(t, "other")))
		require.NoError(t, m.Verify(t.Context()))
		until, err := m.TrustedUntil(t.Context())
		require.NoError(t, err)
		want, err := a.TrustedUntil(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, until, "the trust is that of the lock that was renewed, which is less than a minute")

		time.Sleep(time.Hour)
		assert.Equal(t, 3, a.HoldCount(t.Context()))
		assert.Zero(t, m.HoldCount(t.Context()))
		assert.False(t, m.IsHeldByCurrentOwner(t.Context()))
		assert.ErrorIs(t, m.Verify(t.Context()), reentrant.ErrLost)
		_, err = m.TrustedUntil(t.Context())
		assert.ErrorIs(t, err, reentrant.ErrLost)
		require.NoError(t, a.Unlock(t.Context()))
		assert.ErrorIs(t, m.Unlock(t.Context()), reentrant.ErrLost)
		assert.ErrorIs(t, m.Unlock(t.Context()), reentrant.ErrLost)
		assert.Zero(t, m.HoldCount(t.Context()))
		assert.ErrorIs(t, m.Verify(t.Context()), reentrant.ErrNotHeld)
	})
}

func TestVerifyOfAMultiLockAsksForEachLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		m := reentrant.NewMultiLock(s.NewLock("a"), s.NewLock("b"))
		require.NoError(t, m.Lock(t.Context()))
		taken, err := s.NewLock("b").ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, taken)
		assert.True(t, m.IsHeldByCurrentOwner(t.Context()), "its session has not asked Redis yet")
		err = m.Verify(t.Context())
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.ErrorContains(t, err, `verify "b"`)
		assert.False(t, m.IsHeldByCurrentOwner(t.Context()))
		_ = m.Unlock(t.Context())
	})
}

func TestAnEmptyOrInvalidMultiLockAnswersQuestions(t *testing.T) {
	none, invalid := reentrant.NewMultiLock(), reentrant.NewMultiLock(nil)
	assert.Zero(t, none.HoldCount(t.Context()))
	assert.ErrorIs(t, none.Verify(t.Context()), reentrant.ErrNotHeld)
	_, err := none.TrustedUntil(t.Context())
	assert.ErrorIs(t, err, reentrant.ErrNotHeld)
	assert.Zero(t, invalid.HoldCount(t.Context()))
	assert.ErrorContains(t, invalid.Verify(t.Context()), "nil lock")
	_, err = invalid.TrustedUntil(t.Context())
	assert.ErrorContains(t, err, "nil lock")
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// distant returns a server that is a few milliseconds away.
func distant() backend.Backend {
	return memory.New(memory.WithFault(func(memory.Op) memory.Verdict {
		return memory.Verdict{Delay: 2 * time.Millisecond, Late: 2 * time.Millisecond}
	}))
}

// requireQueued requires that all inspecting methods agree on the waiters of the lock.
func requireQueued(t *testing.T, l *reentrant.Lock, want ...context.Context) {
	t.Helper()
	var owners []reentrant.Owner
	for _, ctx := range want {
		owners = append(owners, reentrant.CurrentOwner(ctx))
		require.True(t, l.HasQueuedOwner(reentrant.CurrentOwner(ctx)))
	}
	require.Equal(t, owners, l.QueuedOwners())
	require.Equal(t, len(want), l.QueueLength())
	require.Equal(t, len(want) > 0, l.HasQueuedOwners())
}

// lockAll makes the owners wait for the lock one after the other. The channel receives an owner when its Lock has
// returned.
func lockAll(t *testing.T, l *reentrant.Lock, owners ...context.Context) <-chan context.Context {
	locked := make(chan context.Context, len(owners))
	for _, ctx := range owners {
		go func() {
			assert.NoError(t, l.Lock(ctx))
			locked <- ctx
		}()
		time.Sleep(10 * time.Millisecond)
	}
	return locked
}

// While the next owner asks the server, it is no longer in the local line and does not hold the lock yet, so it counts as
// queued.
func TestAnOwnerIsQueuedUntilItsLockReturns(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []reentrant.Option
		fair    bool
		foreign bool // at first another session has the lock
	}{
		"handed on":               {fair: true},
		"handed on, unfair":       {},
		"never handed on":         {fair: true, opts: []reentrant.Option{reentrant.WithTurn(1, 0)}},
		"granted":                 {fair: true, foreign: true},
		"granted, unfair":         {foreign: true},
		"granted while it lasted": {fair: true, foreign: true, opts: []reentrant.Option{reentrant.WithSpin(3)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := distant()
				s, other := newSession(t, b, c.opts...), newSession(t, b)
				l := s.NewLock("x", reentrant.WithFairness(c.fair))
				first := l
				if c.foreign {
					first = other.NewLock("x")
				}
				h, owners := owner(t, "h"), []context.Context{owner(t, "a"), owner(t, "b"), owner(t, "c")}
				require.NoError(t, first.Lock(h))
				locked := lockAll(t, l, owners...)
				requireQueued(t, l, owners...)
				require.NoError(t, first.Unlock(h))
				synctest.Wait() // the grant can come at the moment at which Unlock returns
				for i := range owners {
					for len(locked) == 0 {
						requireQueued(t, l, owners[i:]...)
						time.Sleep(time.Millisecond)
						synctest.Wait()
					}
					requireQueued(t, l, owners[i+1:]...)
					require.NoError(t, l.Unlock(<-locked))
				}
				requireQueued(t, l)
			})
		})
	}
}

// In a cohort the next owner sends no command. At every moment it either waits or holds.
func TestTheNextOwnerOfACohortWaitsOrHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, distant(), reentrant.WithCohort()).NewLock("x")
		a, b := owner(t, "a"), owner(t, "b")
		require.NoError(t, l.Lock(a))
		for range 1000 {
			locked := lockAll(t, l, b)
			require.NoError(t, l.Unlock(a))
			require.True(t, l.HasQueuedOwner(reentrant.CurrentOwner(b)) || l.IsHeldByCurrentOwner(b))
			<-locked
			a, b = b, a
		}
		require.NoError(t, l.Unlock(a))
	})
}

// Several goroutines of one owner wait. When the first of them has the lock, the others re-enter it, each with a command.
func TestAGoroutineOfAnOwnerIsQueuedUntilItsLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, distant()).NewLock("x")
		h, a := owner(t, "h"), owner(t, "a")
		require.NoError(t, l.Lock(h))
		locked := lockAll(t, l, a, a, a)
		requireQueued(t, l, a, a, a)
		require.NoError(t, l.Unlock(h))
		for left := 3; left > 0; left-- {
			for len(locked) == 0 {
				require.Equal(t, left, l.QueueLength())
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			<-locked
		}
		requireQueued(t, l)
		for range 3 {
			require.NoError(t, l.Unlock(a))
		}
	})
}

// When a caller has left, its place in Redis is withdrawn in the background. Meanwhile the caller no longer counts as
// waiting.
func TestAnOwnerThatLeftIsNotQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := distant()
		s, other := newSession(t, b), newSession(t, b)
		l, h := s.NewLock("x"), owner(t, "h")
		require.NoError(t, other.NewLock("x").Lock(h))
		ok, err := l.TryLockFor(owner(t, "a"), 20*time.Millisecond)
		require.NoError(t, err)
		require.False(t, ok)
		requireQueued(t, l)
		time.Sleep(time.Millisecond)
		requireQueued(t, l)
		tried := make(chan bool)
		go func() {
			ok, _ := l.TryLock(owner(t, "a"))
			tried <- ok
		}()
		time.Sleep(time.Millisecond)
		requireQueued(t, l)
		require.False(t, <-tried)
		require.NoError(t, other.NewLock("x").Unlock(h))
	})
}

// The queue of a read-write lock admits owners by itself, so they hold the lock as soon as they no longer wait for it.
func TestTheNextOwnerOfASideWaitsOrHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := distant()
		l, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		h, a, r := owner(t, "h"), owner(t, "a"), owner(t, "r")
		require.NoError(t, other.Lock(h))
		writes := begun(func() error { return l.Lock(a) })
		reads := begun(func() error { return l.RLock(r) })
		present := func(ctx context.Context, holds func(context.Context) int) {
			t.Helper()
			require.True(t, l.HasQueuedOwner(reentrant.CurrentOwner(ctx)) || holds(ctx) == 1)
		}
		require.Equal(t, 2, l.QueueLength())
		require.NoError(t, other.Unlock(h))
		for range 20 {
			present(a, l.HoldCount)
			present(r, l.ReadHoldCount)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, <-writes)
		require.NoError(t, l.Unlock(a))
		present(r, l.ReadHoldCount)
		require.NoError(t, <-reads)
		require.Zero(t, l.QueueLength())
		require.NoError(t, l.RUnlock(r))
	})
}

// A caller waits behind another of its session, while other sessions have what both want. Its error does not say that the
// server did not reply.
func TestTheContextOfACallerInLineEndsBetweenHeartbeats(t *testing.T) {
	for kind, take := range map[string]func(context.Context, *reentrant.Session) error{
		"Lock":    func(ctx context.Context, s *reentrant.Session) error { return s.NewRWLock("x").Lock(ctx) },
		"Acquire": func(ctx context.Context, s *reentrant.Session) error { return s.NewSemaphore("x", 1).Acquire(ctx, 1) },
	} {
		t.Run(kind, func(t *testing.T) {
			eachInBubble(t, func(t *testing.T, b backend.Backend) {
				s := newSession(t, b)
				require.NoError(t, take(t.Context(), newSession(t, b)))
				ctx, cancel := context.WithCancel(t.Context())
				first := make(chan error, 1)
				go func() { first <- take(ctx, s) }()
				time.Sleep(300 * time.Millisecond)
				soon, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer end()
				err := take(soon, s)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorIs(t, err, reentrant.ErrUnavailable)
				assert.False(t, reentrant.OutcomeUnknown(err))
				cancel()
				assert.ErrorIs(t, <-first, context.Canceled)
			})
		})
	}
}

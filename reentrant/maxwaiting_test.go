package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A bounded is a lock that a caller may wait for, of any kind.
type bounded struct {
	lock, unlock func(ctx context.Context) error
	lockFor      func(ctx context.Context, wait time.Duration) (bool, error)
	queued       func() int
}

// boundedKinds has a function for each kind, which makes a lock of that kind with options. A semaphore has one permit.
var boundedKinds = map[string]func(s *reentrant.Session, name string, opts ...reentrant.LockOption) bounded{
	"lock": func(s *reentrant.Session, name string, opts ...reentrant.LockOption) bounded {
		l := s.NewLock(name, opts...)
		return bounded{l.Lock, l.Unlock, l.TryLockFor, l.QueueLength}
	},
	"unfair lock": func(s *reentrant.Session, name string, opts ...reentrant.LockOption) bounded {
		l := s.NewLock(name, append(opts, reentrant.WithFairness(false))...)
		return bounded{l.Lock, l.Unlock, l.TryLockFor, l.QueueLength}
	},
	"write side": func(s *reentrant.Session, name string, opts ...reentrant.LockOption) bounded {
		l := s.NewRWLock(name, opts...)
		return bounded{l.Lock, l.Unlock, l.TryLockFor, l.QueueLength}
	},
	"read side": func(s *reentrant.Session, name string, opts ...reentrant.LockOption) bounded {
		l := s.NewRWLock(name, opts...)
		return bounded{l.RLock, l.RUnlock, l.TryRLockFor, l.QueueLength}
	},
	"permits": func(s *reentrant.Session, name string, opts ...reentrant.LockOption) bounded {
		m := s.NewSemaphore(name, 1, opts...)
		one := func(f func(context.Context, int) error) func(context.Context) error {
			return func(ctx context.Context) error { return f(ctx, 1) }
		}
		try := func(ctx context.Context, wait time.Duration) (bool, error) { return m.TryAcquireFor(ctx, 1, wait) }
		return bounded{one(m.Acquire), one(m.Release), try, m.QueueLength}
	},
}

// takenElsewhere makes session s take a name with a lock of the given kind. It returns a function that gives the name back.
func takenElsewhere(t *testing.T, kind string, s *reentrant.Session, name string) (giveBack func()) {
	ctx := owner(t, "elsewhere")
	if kind == "read side" {
		kind = "write side" // readers do not wait for each other
	}
	l := boundedKinds[kind](s, name)
	require.NoError(t, l.lock(ctx))
	return func() { assert.NoError(t, l.unlock(ctx)) }
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	const most = 3
	for kind, make := range boundedKinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				giveBack := takenElsewhere(t, kind, newSession(t, b), "x")
				l := make(s, "x", reentrant.WithMaxWaiting(most))
				got := inLine(t, l, most)
				begun, sent := time.Now(), b.Commands()
				require.ErrorIs(t, l.lock(owner(t, "late")), reentrant.ErrQueueFull)
				ok, err := l.lockFor(owner(t, "late"), time.Hour)
				assert.False(t, ok)
				require.ErrorIs(t, err, reentrant.ErrQueueFull)
				require.ErrorContains(t, err, fmt.Sprint("queue full: ", most, " wait already"))
				assert.Zero(t, time.Since(begun))
				assert.Equal(t, sent, b.Commands(), "nothing is sent")
				assert.Equal(t, most, l.queued())
				giveBack()
				for range most {
					require.NoError(t, <-got)
				}
				require.NoError(t, l.lock(owner(t, "late")), "the queue is empty")
				require.NoError(t, l.unlock(owner(t, "late")))
			})
		})
	}
}

// inLine makes n owners wait, one after the other. Each gives back what it gets.
func inLine(t *testing.T, l bounded, n int) (got chan error) {
	got = make(chan error, n)
	for i := range n {
		ctx, cancel := context.WithTimeout(owner(t, fmt.Sprint("waiter ", i)), aDay)
		t.Cleanup(cancel)
		go func() {
			err := l.lock(ctx)
			if err == nil {
				err = l.unlock(ctx)
			}
			got <- err
		}()
		synctest.Wait()
		require.Equal(t, i+1, l.queued())
	}
	return got
}

// Owners that have the lock already do not wait for others: no bound refuses them.
func TestAHolderIsNotRefusedByAFullQueue(t *testing.T) {
	for name, mode := range everyMode {
		for _, fair := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", fair ", fair), func(t *testing.T) { testAHolderIsNotRefused(t, fair, mode) })
		}
	}
}

func testAHolderIsNotRefused(t *testing.T, fair bool, mode []reentrant.Option) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), mode...)
		l, ctx := s.NewLock("x", reentrant.WithMaxWaiting(1), reentrant.WithFairness(fair)), owner(t, "a")
		require.NoError(t, l.Lock(ctx))
		others := make(chan error)
		for i, long := range []time.Duration{65 * time.Second, time.Second} {
			go func() {
				others <- s.NewLock("x").Do(owner(t, fmt.Sprint("other ", i)), func(context.Context) error {
					time.Sleep(long)
					return nil
				})
			}()
			synctest.Wait()
		}
		again := make(chan error)
		for range 3 { // some of these Locks begin while another one is under way
			go func() { again <- l.Lock(ctx) }()
		}
		for range 3 {
			require.NoError(t, <-again)
		}
		signalled := make(chan bool)
		go func() {
			ok, err := l.NewCondition("c").AwaitFor(ctx, time.Minute)
			assert.NoError(t, err, "it comes back while one of the others has the lock, and one waits")
			signalled <- ok
		}()
		for range 2 {
			require.NoError(t, <-others)
		}
		assert.False(t, <-signalled)
		assert.Equal(t, 4, l.HoldCount(ctx))
		for range 4 {
			require.NoError(t, l.Unlock(ctx))
		}
	})
}

func TestTheBoundBelongsToTheHandleThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		giveBack := takenElsewhere(t, "lock", newSession(t, b), "x")
		free, none := s.NewLock("free"), s.NewLock("x")
		narrow := s.NewLock("x", reentrant.WithMaxWaiting(1))
		got := inLine(t, bounded{none.Lock, none.Unlock, none.TryLockFor, none.QueueLength}, 3)
		late := owner(t, "late")
		require.ErrorIs(t, narrow.Lock(late), reentrant.ErrQueueFull)
		ok, err := narrow.TryLock(late)
		require.NoError(t, err, "a try does not wait")
		assert.False(t, ok)
		_, err = reentrant.TryAnyFor(late, time.Second, narrow)
		require.ErrorIs(t, err, reentrant.ErrQueueFull)
		l, err := reentrant.TryAnyFor(late, time.Second, narrow, free)
		require.NoError(t, err)
		assert.Same(t, free, l)
		require.ErrorIs(t, reentrant.NewMultiLock(free, narrow).Lock(late), reentrant.ErrQueueFull)
		assert.Equal(t, 1, free.HoldCount(late), "and what the others gave is given back")
		require.NoError(t, free.Unlock(late))
		require.Error(t, reentrant.NewMultiLock(none, narrow).Lock(late), "which of them is to decide?")
		giveBack()
		for range 3 {
			require.NoError(t, <-got)
		}
	})
}

func TestANegativeBoundIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		for kind, make := range boundedKinds {
			require.ErrorContains(t, make(s, "x", reentrant.WithMaxWaiting(-1)).lock(t.Context()), "WithMaxWaiting(-1): must not be negative", kind)
		}
	})
}

package reentrant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// timedKinds are the ways to wait with a time limit. Another session has what they wait for until free is called.
var timedKinds = map[string]func(t *testing.T, s, other *reentrant.Session) (try func(wait time.Duration) (bool, error), free func() error){
	"lock": func(t *testing.T, s, other *reentrant.Session) (func(time.Duration) (bool, error), func() error) {
		l, o, ctx := s.NewLock("x"), other.NewLock("x"), owner(t, "other")
		require.NoError(t, o.Lock(ctx))
		return func(wait time.Duration) (bool, error) { return l.TryLockFor(t.Context(), wait) },
			func() error { return o.Unlock(ctx) }
	},
	"write": func(t *testing.T, s, other *reentrant.Session) (func(time.Duration) (bool, error), func() error) {
		l, o, ctx := s.NewRWLock("x"), other.NewRWLock("x"), owner(t, "other")
		require.NoError(t, o.RLock(ctx))
		return func(wait time.Duration) (bool, error) { return l.TryLockFor(t.Context(), wait) },
			func() error { return o.RUnlock(ctx) }
	},
	"read": func(t *testing.T, s, other *reentrant.Session) (func(time.Duration) (bool, error), func() error) {
		l, o, ctx := s.NewRWLock("x"), other.NewRWLock("x"), owner(t, "other")
		require.NoError(t, o.Lock(ctx))
		return func(wait time.Duration) (bool, error) { return l.TryRLockFor(t.Context(), wait) },
			func() error { return o.Unlock(ctx) }
	},
	"permits": func(t *testing.T, s, other *reentrant.Session) (func(time.Duration) (bool, error), func() error) {
		m, o := s.NewSemaphore("x", 3), other.NewSemaphore("x", 3)
		require.NoError(t, o.Acquire(t.Context(), 2))
		return func(wait time.Duration) (bool, error) { return m.TryAcquireFor(t.Context(), 2, wait) },
			func() error { return o.Release(t.Context(), 2) }
	},
}

// forTimedKinds runs a test with a call that waits for what another session has until free is called.
func forTimedKinds(t *testing.T, test func(t *testing.T, b *memory.Backend, s *reentrant.Session, try func(time.Duration) (bool, error), free func() error)) {
	for name, kind := range timedKinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s, other := newSession(t, b), newSession(t, b)
				try, free := kind(t, s, other)
				test(t, b, s, try, free)
			})
		})
	}
}

// The server grants what a call waits for, the message is lost, and the call's time is up before the session asks again.
func TestATimedWaitWhoseGrantIsLostHasIt(t *testing.T) {
	forTimedKinds(t, func(t *testing.T, b *memory.Backend, _ *reentrant.Session, try func(time.Duration) (bool, error), free func() error) {
		b.SetFault(func(op memory.Op) memory.Verdict {
			return memory.Verdict{Lost: op.Verb == memory.Push && op.Session == "A"}
		})
		time.AfterFunc(200*time.Millisecond, func() { assert.NoError(t, free()) })
		begun := time.Now()
		ok, err := try(400 * time.Millisecond)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 400*time.Millisecond, time.Since(begun))
		b.SetFault(nil)
	})
}

// The server grants what a call waits for, but is silent when the call's time is up, so the session cannot learn of the grant.
func TestATimedWaitSaysThatTheServerWasSilentAtItsEnd(t *testing.T) {
	forTimedKinds(t, func(t *testing.T, b *memory.Backend, _ *reentrant.Session, try func(time.Duration) (bool, error), free func() error) {
		time.AfterFunc(200*time.Millisecond, func() {
			b.SetFault(func(op memory.Op) memory.Verdict {
				if op.Session == "A" && op.Verb != memory.Push {
					return memory.DelayReply(time.Hour)
				}
				return memory.Verdict{Lost: op.Session == "A"}
			})
			assert.NoError(t, free())
		})
		begun := time.Now()
		ok, err := try(400 * time.Millisecond)
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		assert.True(t, reentrant.OutcomeUnknown(err))
		assert.False(t, ok)
		assert.Equal(t, 650*time.Millisecond, time.Since(begun), "an eighth of a command's time more")
		b.SetFault(nil)
	})
}

// When the call's time is up, the other session still has what the call waits for. The reply to one command says so.
func TestATimedWaitInVainAsksOnceMore(t *testing.T) {
	forTimedKinds(t, func(t *testing.T, b *memory.Backend, s *reentrant.Session, try func(time.Duration) (bool, error), free func() error) {
		slowly(b, 20*time.Millisecond)
		var before atomic.Uint64
		time.AfterFunc(399*time.Millisecond, func() { before.Store(s.Stats().Commands) })
		begun := time.Now()
		ok, err := try(400 * time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 420*time.Millisecond, time.Since(begun))
		synctest.Wait()
		assert.Equal(t, before.Load()+2, s.Stats().Commands, "it asks once more, and withdraws")
		require.NoError(t, free())
	})
}

// If a reply comes when the time is already up, the session asks no more.
func TestATimedWaitShorterThanARoundTripAsksOnce(t *testing.T) {
	forTimedKinds(t, func(t *testing.T, b *memory.Backend, s *reentrant.Session, try func(time.Duration) (bool, error), free func() error) {
		slowly(b, 20*time.Millisecond)
		before, begun := s.Stats().Commands, time.Now()
		ok, err := try(time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 20*time.Millisecond, time.Since(begun))
		time.Sleep(time.Second / 2)
		assert.Equal(t, before+2, s.Stats().Commands, "it asks, and withdraws")
		require.NoError(t, free())
	})
}

// A call whose context ends returns at once.
func TestAWaitWhoseContextEndsAsksNoMore(t *testing.T) {
	waits := map[string]func(s *reentrant.Session, ctx context.Context) error{
		"lock": func(s *reentrant.Session, ctx context.Context) error { return s.NewLock("x").Lock(ctx) },
		"timed lock": func(s *reentrant.Session, ctx context.Context) error {
			ok, err := s.NewLock("x").TryLockFor(ctx, time.Second)
			assert.False(t, ok)
			return err
		},
		"write": func(s *reentrant.Session, ctx context.Context) error {
			ok, err := s.NewRWLock("rw").TryLockFor(ctx, time.Second)
			assert.False(t, ok)
			return err
		},
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s, other := newSession(t, b), newSession(t, b)
				require.NoError(t, other.NewLock("x").Lock(t.Context()))
				require.NoError(t, other.NewRWLock("rw").RLock(t.Context()))
				slowly(b, 20*time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(400*time.Millisecond, cancel)
				begun := time.Now()
				require.ErrorIs(t, wait(s, ctx), context.Canceled)
				assert.Equal(t, 400*time.Millisecond, time.Since(begun))
				require.NoError(t, other.NewLock("x").Unlock(t.Context()))
				require.NoError(t, other.NewRWLock("rw").RUnlock(t.Context()))
			})
		})
	}
}

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

// If a re-entry fails because the hold is lost meanwhile, no Unlock is owed for the re-entry.
func TestAReentryThatFindsALossIsNotOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, err := reentrant.NewSession(b)
		require.NoError(t, err)
		l, o := s.NewLock("x"), owner(t, "o")
		require.NoError(t, l.Lock(o))
		b.SetFault(memory.Script(memory.Reenter, memory.DelayReply(time.Second)))
		locked := make(chan error, 1)
		go func() { locked <- l.Lock(o) }()
		synctest.Wait() // its command is on its way
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Close(short), context.DeadlineExceeded)
		require.ErrorIs(t, <-locked, reentrant.ErrLost)
		require.ErrorIs(t, l.Unlock(o), reentrant.ErrLost)
		require.ErrorIs(t, l.Unlock(o), reentrant.ErrNotHeld)
	})
}

// An owner returns from a wait to a hold that another of its goroutines has taken, and finds that the hold is lost. Each of
// the two goroutines owes Unlocks for its own holds only.
func TestAReturnThatFindsALossIsOwedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, err := reentrant.NewSession(b)
		require.NoError(t, err)
		l, o := s.NewLock("x"), owner(t, "o")
		c := l.NewCondition("c")
		require.NoError(t, l.Lock(o))
		require.NoError(t, l.Lock(o))
		waited := make(chan error)
		go func() {
			_, err := c.AwaitFor(o, time.Second)
			waited <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Lock(o), "by another goroutine")
		b.SetFault(memory.Script(memory.Reenter, memory.DelayReply(time.Second)))
		closed := make(chan error)
		go func() {
			time.Sleep(1200 * time.Millisecond) // the wait has ended, and its command is on its way
			short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			closed <- s.Close(short)
		}()
		require.ErrorIs(t, <-waited, reentrant.ErrLost)
		for range 3 {
			require.ErrorIs(t, l.Unlock(o), reentrant.ErrLost)
		}
		require.ErrorIs(t, l.Unlock(o), reentrant.ErrNotHeld)
		require.ErrorIs(t, <-closed, context.DeadlineExceeded)
	})
}

// If a reply was lost, the outcome stays unknown, even if later tries were never sent.
func TestALostReplyStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.SetFault(memory.Script(memory.Reenter, memory.LoseReply, memory.Refuse("NOPERM")))
		err := l.Lock(t.Context())
		assert.True(t, backend.OutcomeUnknown(err), "%v", err)
		b.SetFault(func(op memory.Op) memory.Verdict {
			return memory.Verdict{Mute: op.Verb == memory.Release && op.Try == 1, Lost: op.Verb == memory.Release && op.Try > 1}
		})
		err = l.Unlock(t.Context())
		assert.True(t, backend.OutcomeUnknown(err), "%v", err)
	})
}

// Signal works though the caller's context has ended: a holder whose request was cancelled still wakes a waiter.
func TestSignalUnderAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		done := awaits(t, owner(t, "w"), s)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, l.NewCondition("ready").Signal(ended))
		require.NoError(t, l.Unlock(ended))
		_, woken := returned(done, time.Second)
		assert.True(t, woken)
	})
}

func TestAnErrorOfVerifyNamesTheCallAndTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.SetFault(memory.Script(memory.Inspect, memory.Lose))
		assert.ErrorContains(t, l.Verify(t.Context()), `reentrant: verify "x": `)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// If an owner has lost holds and a live one, Unlock releases the live one first. Release does the opposite.
func TestGoroutinesOfAnOwnerShareWhatItOwes(t *testing.T) {
	type hold struct {
		lock, unlock func(context.Context) error
		liveFirst    bool
	}
	holds := map[string]func(s *reentrant.Session) hold{
		"lock": func(s *reentrant.Session) hold {
			l := s.NewLock("x")
			return hold{l.Lock, l.Unlock, true}
		},
		"write side": func(s *reentrant.Session) hold {
			l := s.NewRWLock("x")
			return hold{l.Lock, l.Unlock, true}
		},
		"read side": func(s *reentrant.Session) hold {
			l := s.NewRWLock("x")
			return hold{l.RLock, l.RUnlock, true}
		},
		"permit": func(s *reentrant.Session) hold {
			m := s.NewSemaphore("x", 1)
			return hold{
				lock:   func(ctx context.Context) error { return m.Acquire(ctx, 1) },
				unlock: func(ctx context.Context) error { return m.Release(ctx, 1) },
			}
		},
	}
	for name, of := range holds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				h, ctx := of(newSession(t, b)), owner(t, "shared")
				require.NoError(t, h.lock(ctx))
				b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
				time.Sleep(2 * reentrant.DefaultLease)
				b.SetFault(nil)
				require.NoError(t, h.lock(ctx), "another goroutine of the owner")
				first, second := h.unlock(ctx), h.unlock(ctx)
				if h.liveFirst {
					first, second = second, first
				}
				assert.ErrorIs(t, first, reentrant.ErrLost)
				assert.NoError(t, second)
				assert.ErrorIs(t, h.unlock(ctx), reentrant.ErrNotHeld)
			})
		})
	}
}

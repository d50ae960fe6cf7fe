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

// heldWhileAsking makes s, which must be session B, hold one of a semaphore's three permits. ask makes s acquire two more, by
// a command that reaches the server after 50 ms. All messages to the session are lost.
func heldWhileAsking(t *testing.T, b *memory.Backend, s *reentrant.Session) (m *reentrant.Semaphore, ask func() <-chan error) {
	m = s.NewSemaphore("x", 3)
	require.NoError(t, m.Acquire(t.Context(), 1))
	var slow atomic.Bool
	b.SetFault(func(op memory.Op) memory.Verdict {
		switch {
		case op.Session != "B":
			return memory.Pass
		case op.Verb == memory.Push:
			return memory.Lose
		case slow.Swap(false):
			return memory.Verdict{Delay: 50 * time.Millisecond}
		}
		return memory.Pass
	})
	return m, func() <-chan error {
		slow.Store(true)
		done := make(chan error, 1)
		go func() { done <- m.Acquire(t.Context(), 2) }()
		synctest.Wait()
		return done
	}
}

// The message by which a try asks the session is lost. The reply to the session's own command names the try, too.
func TestASessionAnswersATryThatItsReplyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, holder := newSession(t, b), newSession(t, b)
		m, ask := heldWhileAsking(t, b, holder)
		done := ask()
		begun := time.Now()
		ok, err := s.NewSemaphore("x", 3).TryAcquire(t.Context(), 3)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 50*time.Millisecond, time.Since(begun), "not a heartbeat")
		b.SetFault(nil)
		require.NoError(t, <-done)
		sent := holder.Stats().Commands
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, sent, holder.Stats().Commands, "it answers once")
		require.NoError(t, m.Release(t.Context(), 3))
	})
}

// The session answers once, though a later reply names the try again, because another session has not answered.
func TestASessionAnswersATryThatItsReplyNamesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, holder, silent := newSession(t, b), newSession(t, b), newSession(t, b)
		require.NoError(t, holder.NewSemaphore("x", 5).Acquire(t.Context(), 1))
		require.NoError(t, silent.NewSemaphore("x", 5).Acquire(t.Context(), 1))
		b.SetFault(func(op memory.Op) memory.Verdict {
			return memory.Verdict{Lost: op.Verb == memory.Push && op.Session == "C", Delay: 10 * time.Millisecond}
		})
		sent := holder.Stats().Commands
		ok, err := s.NewSemaphore("x", 5).TryAcquire(t.Context(), 4)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, sent+1, holder.Stats().Commands)
		b.SetFault(nil)
		require.NoError(t, holder.NewSemaphore("x", 5).Release(t.Context(), 1))
		require.NoError(t, silent.NewSemaphore("x", 5).Release(t.Context(), 1))
	})
}

// asReaderOf returns a read-write lock that the owner of ctx has written under and goes on reading: s, which must be session B,
// gives back all units but one. That command reaches the server after 50 ms, and all messages to the session are lost.
func asReaderOf(t *testing.T, b *memory.Backend, s *reentrant.Session) (l *reentrant.RWLock, ctx context.Context) {
	l, ctx = s.NewRWLock("x"), owner(t, "reader")
	require.NoError(t, l.Lock(ctx))
	require.NoError(t, l.RLock(ctx))
	b.SetFault(func(op memory.Op) memory.Verdict {
		v := memory.Verdict{Lost: op.Verb == memory.Push && op.Session == "B"}
		if op.Session == "B" {
			v.Delay = 50 * time.Millisecond
		}
		return v
	})
	require.NoError(t, l.Unlock(ctx))
	synctest.Wait()
	return l, ctx
}

func TestWantedKnowsAWaiterFromAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, holder := newSession(t, b), newSession(t, b)
		l, ctx := asReaderOf(t, b, holder)
		wanted := l.Wanted(ctx)
		waits := make(chan error)
		go func() { waits <- s.NewRWLock("x").Lock(t.Context()) }()
		time.Sleep(49 * time.Millisecond)
		require.True(t, unasked(wanted), "the message is lost")
		time.Sleep(2 * time.Millisecond)
		assert.False(t, unasked(wanted))
		b.SetFault(nil)
		require.NoError(t, l.RUnlock(ctx))
		require.NoError(t, <-waits)
	})
}

func TestWantedTakesNoTryInAReplyForAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, holder := newSession(t, b), newSession(t, b)
		l, ctx := asReaderOf(t, b, holder)
		wanted, begun := l.Wanted(ctx), time.Now()
		ok, err := s.NewRWLock("x").TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 100*time.Millisecond, time.Since(begun), "two commands of the holder")
		assert.True(t, unasked(wanted))
		b.SetFault(nil)
		require.NoError(t, l.RUnlock(ctx))
	})
}

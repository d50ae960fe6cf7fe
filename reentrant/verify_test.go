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

// Redis has already ended the hold for Await, and the reply has not reached the session yet.
func TestVerifyDuringAwaitLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewLock("x"), owner(t, "a")
		c := l.NewCondition("c")
		require.NoError(t, l.Lock(ctx))
		lost := l.Lost(ctx)
		b.SetFault(memory.Script(memory.Await, memory.DelayReply(time.Second)))
		waited := make(chan error)
		go func() {
			_, err := c.AwaitFor(ctx, 10*time.Second)
			waited <- err
		}()
		synctest.Wait()
		begun := time.Now()
		assert.ErrorIs(t, l.Verify(ctx), reentrant.ErrNotHeld, "the wait has begun")
		assert.LessOrEqual(t, time.Since(begun), 1500*time.Millisecond)
		assert.NoError(t, <-waited)
		select {
		case <-lost:
			t.Error("nothing was lost")
		default:
		}
		assert.Zero(t, s.Stats().Lost)
		assert.NoError(t, l.Verify(ctx))
		assert.NoError(t, l.Unlock(ctx))
	})
}

// Redis has already given the hold the epoch of a Resume, and the reply has not reached the session yet.
func TestVerifyDuringResumeLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewLock("x"), order(t)
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Resume, memory.DelayReply(time.Second)))
		resumed := make(chan error)
		go func() { resumed <- l.Resume(ctx) }()
		synctest.Wait()
		assert.NoError(t, l.Verify(ctx))
		assert.NoError(t, <-resumed)
		assert.Zero(t, s.Stats().Lost)
		assert.NoError(t, l.Unlock(ctx))
	})
}

// A Verify that repeats its command ends with its context.
func TestVerifyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, ctx := newSession(t, b).NewLock("x"), owner(t, "a")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Await, memory.DelayReply(time.Second)))
		waited := make(chan error)
		go func() {
			_, err := l.NewCondition("c").AwaitFor(ctx, 0)
			waited <- err
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		begun := time.Now()
		assert.ErrorIs(t, l.Verify(short), context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(begun))
		assert.NoError(t, <-waited)
		assert.NoError(t, l.Unlock(ctx))
	})
}

// The server forgets a reader, another session writes, and then a late copy of the reader's request is carried out. The
// server then has units of the session under the epoch that the session trusts, but they are not the units that it got.
func TestVerifyFindsUnitsOfAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		b.SetFault(memory.Script(memory.Share, memory.Duplicate(time.Second)))
		l, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		ctx := t.Context()
		require.NoError(t, l.RLock(ctx))
		require.NoError(t, l.Verify(ctx))
		lost := l.Lost(ctx)
		time.Sleep(time.Millisecond) // so that the server's clock has gone on
		b.Flush()
		require.NoError(t, other.Lock(ctx))
		require.NoError(t, other.Unlock(ctx))
		time.Sleep(time.Second + time.Millisecond)
		st, err := other.Inspect(ctx)
		require.NoError(t, err)
		require.Len(t, st.Holders, 1, "the copy was carried out")

		require.ErrorIs(t, l.Verify(ctx), reentrant.ErrLost)
		<-lost
		require.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrLost)
	})
}

package reentrant_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// These tests are about the hold that Await gives up, and the hold with which Await returns.

// requireClosed asserts that a channel returned by Lost is closed.
func requireClosed(t *testing.T, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
	default:
		require.Fail(t, "Lost is not closed")
	}
}

// A context and a channel that end with the hold before Await also end with the hold after Await.
func TestALossAfterAwaitEndsTheContextOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		l := a.NewLock("x")
		go func() {
			time.Sleep(time.Second)
			signals(t, c)
		}()
		err := l.Do(t.Context(), func(ctx context.Context) error {
			lost := l.Lost(ctx)
			require.NoError(t, l.NewCondition("ready").Await(ctx))
			_, err := c.NewLock("x").ForceUnlock(t.Context())
			require.NoError(t, err)
			time.Sleep(30 * time.Second)
			assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost)
			requireClosed(t, lost)
			return nil
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
	})
}

// If a server refuses an Await half-way, it may have given the lock away: the caller has lost it, and no signal goes to
// the caller.
func TestAnAwaitThatStopsHalfWayKeepsNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		ctx, l := owner(t, "a"), a.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		lost := l.Lost(ctx)
		b.SetFault(memory.Script(memory.Await, memory.Stop("NOPERM this user has no permissions to run the 'lpop' command")))
		err := l.NewCondition("ready").Await(ctx)
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.True(t, reentrant.Refused(err) && reentrant.OutcomeUnknown(err), "%v", err)
		requireClosed(t, lost)
		assert.False(t, l.IsHeldByCurrentOwner(ctx))
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		synctest.Wait()
		requireASignalFor(t, a, c)
	})
}

// requireASignalFor makes the session by send a signal, and requires that a waiter of the session other gets that signal.
func requireASignalFor(t *testing.T, by, other *reentrant.Session) {
	t.Helper()
	woken := awaits(t, owner(t, "c"), other)
	time.Sleep(time.Millisecond)
	signals(t, by)
	err, ok := returned(woken, time.Second)
	require.True(t, ok, "the signal goes to a waiter")
	require.NoError(t, err)
}

// awaitsTooLong calls Await with a hold that ends while the command is under way, because a check finds that the fixed lease
// ends sooner than the session believed. It calls the function meanwhile after the server has carried out the command, and
// before the reply comes.
func awaitsTooLong(t *testing.T, b *memory.Backend, a *reentrant.Session, ctx context.Context, meanwhile func()) error {
	t.Helper()
	l := a.NewLock("x", reentrant.WithFixedLease(10*time.Second))
	require.NoError(t, l.Lock(ctx))
	time.Sleep(7 * time.Second)
	b.SetFault(func(op memory.Op) memory.Verdict {
		switch op.Verb {
		case memory.Inspect:
			return memory.Verdict{Delay: 900 * time.Millisecond, Late: 300 * time.Millisecond} // so the check finds .9 s less
		case memory.Await:
			return memory.DelayReply(1600 * time.Millisecond)
		}
		return memory.Pass
	})
	defer b.SetFault(nil)
	reentrant.Reopened(a)
	time.Sleep(950 * time.Millisecond)
	awaited := time.Now()
	time.AfterFunc(100*time.Millisecond, meanwhile)
	_, err := l.NewCondition("ready").AwaitFor(ctx, 20*time.Second)
	assert.Equal(t, 1600*time.Millisecond, time.Since(awaited), "the reply came")
	return err
}

// The owner has been notified of the loss when the server's reply comes. So Await returns ErrLost, and takes no signal.
func TestAHoldThatEndsWhileAwaitIsUnderWayIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var ends []reentrant.EventKind
		watch := observe(func(e reentrant.Event) {
			if e.Kind == reentrant.EventLost || e.Kind == reentrant.EventReleased {
				ends = append(ends, e.Kind)
			}
		})
		a, c := newSession(t, b, reentrant.WithObserver(watch)), newSession(t, b)
		ctx, l := owner(t, "a"), a.NewLock("x")
		lost := make(chan (<-chan struct{}), 1)
		require.ErrorIs(t, awaitsTooLong(t, b, a, ctx, func() { lost <- l.Lost(ctx) }), reentrant.ErrLost)
		requireClosed(t, <-lost)
		assert.False(t, l.IsHeldByCurrentOwner(ctx))
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
		synctest.Wait()
		assert.Equal(t, []reentrant.EventKind{reentrant.EventLost}, ends, "a hold ends once")
		requireASignalFor(t, a, c)
		require.NoError(t, l.Lock(ctx))
		select {
		case <-l.Lost(ctx):
			t.Error("a later hold is reported as lost")
		default:
		}
		require.NoError(t, l.Unlock(ctx))
	})
}

// The signal, and the grant that came with it, are not for an owner that has lost its hold.
func TestALostAwaitThatWasSignalledGivesTheLockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		require.ErrorIs(t, awaitsTooLong(t, b, a, owner(t, "a"), func() { signals(t, c) }), reentrant.ErrLost)
		synctest.Wait()
		begun := time.Now()
		lockFor(t, owner(t, "c"), c.NewLock("x"))()
		assert.Zero(t, time.Since(begun))
	})
}

func TestAnAwaitThatCannotComeBackEndsTheContextOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		err := l.Do(t.Context(), func(ctx context.Context) error {
			lost := l.Lost(ctx)
			b.SetFault(memory.Script(memory.Acquire, memory.Refuse("NOPERM")))
			_, err := l.NewCondition("ready").AwaitFor(ctx, time.Second)
			assert.ErrorIs(t, err, reentrant.ErrLost)
			assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost)
			requireClosed(t, lost)
			return nil
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
	})
}

// A renewal that arrives after Await has given up the hold finds nothing, and that is no loss.
func TestARenewalThatCrossesAwaitFindsNothingLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b, reentrant.WithLease(9*time.Second)), newSession(t, b)
		l := a.NewLock("x")
		b.SetFault(memory.Script(memory.Await, memory.DelayReply(100*time.Millisecond)))
		go func() {
			time.Sleep(5 * time.Second)
			signals(t, c)
		}()
		err := l.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(3*time.Second - 50*time.Millisecond) // the renewal is sent 50 ms later
			err := l.NewCondition("ready").Await(ctx)
			assert.NoError(t, context.Cause(ctx))
			return err
		})
		assert.NoError(t, err)
		assert.Zero(t, a.Stats().Lost)
	})
}

// The connection breaks after Await has given up the hold, so the session renews all holds. Redis no longer has the owner's
// hold. The session must not try to renew that hold over and over until the reply to Await comes.
func TestARenewalThatCrossesAwaitIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		var renewals atomic.Int64
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch op.Verb {
			case memory.Await:
				return memory.DelayReply(time.Second)
			case memory.Renew: // each takes a moment, so that time passes however many renewals there are
				renewals.Add(1)
				return memory.DelayReply(time.Millisecond)
			}
			return memory.Pass
		})
		waits := awaits(t, owner(t, "w"), a)
		time.Sleep(100 * time.Millisecond)
		b.Restart()
		time.Sleep(900 * time.Millisecond)
		assert.Positive(t, renewals.Load())
		assert.Less(t, renewals.Load(), int64(5))
		time.Sleep(time.Second)
		signals(t, c)
		assert.NoError(t, <-waits)
		assert.Zero(t, a.Stats().Lost)
	})
}

// The reply to await comes after the command's time limit: the second copy finds the ticket.
func TestTheReplyToAwaitIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		l := a.NewLock("x")
		unlock := lockFor(t, t.Context(), l)
		b.SetFault(memory.Script(memory.Await, memory.DelayReply(5*time.Second)))
		go func() {
			time.Sleep(4 * time.Second)
			signals(t, c)
		}()
		time.Sleep(2 * time.Second)
		require.NoError(t, l.NewCondition("ready").Await(t.Context()))
		unlock()
	})
}

func TestAContextThatEndsWhileAwaitIsUnderWayKeepsTheHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		unlock := lockFor(t, t.Context(), l)
		b.SetFault(memory.Script(memory.Await, memory.DelayReply(100*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := l.NewCondition("ready").Await(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, reentrant.ErrLost)
		assert.Equal(t, 1, l.HoldCount(t.Context()))
		unlock()
	})
}

func TestAwaitInAClosingSessionKeepsTheHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		unlock := lockFor(t, t.Context(), l)
		closed := make(chan error)
		go func() { closed <- s.Close(context.Background()) }()
		synctest.Wait()
		err := l.NewCondition("ready").Await(t.Context())
		assert.ErrorIs(t, err, reentrant.ErrClosed)
		assert.NotErrorIs(t, err, reentrant.ErrLost, "a holder keeps its lock until it unlocks")
		assert.Equal(t, 1, l.HoldCount(t.Context()))
		unlock()
		require.NoError(t, <-closed)
	})
}

// A copy of the acquire is still under way when Await gives up its hold.
func TestLateCopiesAreRefusedAfterAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		l := a.NewLock("x")
		b.SetFault(memory.Script(memory.Acquire, memory.Delay(500*time.Millisecond)))
		done := make(chan error, 1)
		ctx := owner(t, "w")
		go func() {
			unlock := lockFor(t, ctx, l)
			_, err := l.NewCondition("ready").AwaitFor(ctx, 3*time.Second)
			unlock()
			done <- err
		}()
		synctest.Wait()
		b.Restart() // the connection breaks, and that copy arrives nevertheless
		time.Sleep(100 * time.Millisecond)
		other := c.NewLock("x")
		lockFor(t, t.Context(), other)() // the record no longer says whose attempt was the last
		time.Sleep(time.Second)
		st, err := other.Inspect(t.Context())
		require.NoError(t, err)
		assert.False(t, st.Locked, "no owner wants the lock: %+v", st)
		require.NoError(t, <-done)
	})
}

// Two goroutines of an owner have more holds together than one owner may have: the goroutine that returns from its wait has
// lost its holds, and the other keeps its own.
func TestAwaitThatWouldExceedTheLimitOfHoldsLosesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		c := l.NewCondition("ready")
		ctx := owner(t, "shared")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		done := make(chan error, 1)
		go func() { done <- c.Await(ctx) }()
		synctest.Wait()
		require.NoError(t, l.Lock(ctx))
		reentrant.SetHolds(l, ctx, math.MaxInt32-1)
		require.NoError(t, c.Signal(ctx))
		synctest.Wait()
		require.Len(t, done, 1, "the wait has ended")
		err := <-done
		assert.ErrorIs(t, err, reentrant.ErrTooManyHolds)
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.Equal(t, math.MaxInt32-1, l.HoldCount(ctx))
		reentrant.SetHolds(l, ctx, 1)
		require.NoError(t, l.Unlock(ctx))
		for range 2 {
			assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost, "an Unlock is owed for each lost hold")
		}
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
	})
}

// In each mode of a session Await returns with all holds, also if another goroutine of the same owner has holds.
func TestAwaitRestoresAllHoldsInEveryMode(t *testing.T) {
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				a, other := newSession(t, b, m.session...), newSession(t, b)
				l := a.NewLock("x", m.lock...)
				c := l.NewCondition("ready")
				for range 3 {
					require.NoError(t, l.Lock(t.Context()))
				}
				_, err := c.AwaitFor(t.Context(), time.Second)
				require.NoError(t, err)
				assert.Equal(t, 3, l.HoldCount(t.Context()))
				go func() {
					time.Sleep(time.Second)
					signals(t, other)
				}()
				require.NoError(t, c.Await(t.Context()))
				assert.Equal(t, 3, l.HoldCount(t.Context()))
				for range 3 {
					require.NoError(t, l.Unlock(t.Context()))
				}

				ctx := owner(t, "shared")
				require.NoError(t, l.Lock(ctx))
				require.NoError(t, l.Lock(ctx))
				done := make(chan error)
				go func() { done <- c.Await(ctx) }()
				synctest.Wait()
				require.NoError(t, l.Lock(ctx))
				require.NoError(t, c.Signal(ctx))
				require.NoError(t, <-done)
				assert.Equal(t, 3, l.HoldCount(ctx))
				for range 3 {
					require.NoError(t, l.Unlock(ctx))
				}
			})
		})
	}
}

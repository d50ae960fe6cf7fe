package reentrant_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// Regression tests: each has the interleaving that showed the bug.

// ended returns a context that has already ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func owner(t *testing.T, name string) context.Context { return reentrant.WithOwner(t.Context(), name) }

// The reply to an acquire arrives after Close has stopped waiting, when no watchdog would renew the hold.
func TestALockThatIsGrantedAfterCloseIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		b.SetFault(memory.Script(memory.Acquire, memory.DelayReply(time.Second)))
		l := s.NewLock("x")
		got := make(chan error)
		go func() { got <- l.Lock(owner(t, "a")) }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- s.Close(ended()) }()
		assert.ErrorIs(t, <-got, reentrant.ErrClosed)
		assert.ErrorIs(t, <-closed, context.Canceled)
		assert.ErrorIs(t, s.Close(t.Context()), reentrant.ErrClosed, "and has ended, which the first need not wait for")
		ok, err := other.NewLock("x").TryLock(owner(t, "c"))
		require.NoError(t, err)
		assert.True(t, ok, "the lock was released")
		require.NoError(t, other.NewLock("x").Unlock(owner(t, "c")))
	})
}

// Close does not end the clean-ups of the waiters that it sends away.
func TestCloseGivesPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		held := other.NewLock("x")
		require.NoError(t, held.Lock(owner(t, "c")))
		got := make(chan error)
		go func() { got <- s.NewLock("x").Lock(owner(t, "a")) }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- s.Close(ended()) }()
		assert.ErrorIs(t, <-got, reentrant.ErrClosed)
		assert.ErrorIs(t, <-closed, context.Canceled)
		assert.ErrorIs(t, s.Close(t.Context()), reentrant.ErrClosed, "and has ended, which the first need not wait for")
		st, err := held.Inspect(t.Context())
		require.NoError(t, err)
		assert.Empty(t, st.Waiting)
		require.NoError(t, held.Unlock(owner(t, "c")))
	})
}

// A pushed grant may be older than the reply that another session has the lock.
func TestAGrantFromBeforeAReplyIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, waiter, third := newSession(t, b), newSession(t, b), newSession(t, b)
		require.NoError(t, holder.NewLock("x").Lock(owner(t, "a")))
		got := make(chan error)
		l := waiter.NewLock("x")
		go func() { got <- l.Lock(owner(t, "b")) }()
		synctest.Wait()
		b.SetFault(memory.Script(memory.Push, memory.Delay(1200*time.Millisecond)))
		require.NoError(t, holder.NewLock("x").Unlock(owner(t, "a")))
		_, err := third.NewLock("x").ForceUnlock(t.Context())
		require.NoError(t, err)
		ok, err := third.NewLock("x").TryLock(owner(t, "c"))
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(1500 * time.Millisecond) // the reply to the heartbeat is "waiting", and then the push arrives
		assert.False(t, l.IsHeldByCurrentOwner(owner(t, "b")))
		require.NoError(t, third.NewLock("x").Unlock(owner(t, "c")))
		require.NoError(t, <-got)
		require.NoError(t, l.Unlock(owner(t, "b")))
	})
}

// A renewal that keeps being refused is repeated with pauses until the lease ends.
func TestFailingRenewalsKeepTheirPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		n := 0
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Renew {
				n++
				return memory.Lose
			}
			return memory.Pass
		})
		<-l.Lost(t.Context())
		assert.Greater(t, n, 2, "the renewal is sent again")
		assert.Less(t, n, 60)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	})
}

// A hand-over that kept the TTL gets its reply after that lease has ended: the next copy asks for a full lease.
func TestAHandOverWhoseReplyIsLateIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithHeartbeat(10*time.Millisecond))
		l := s.NewLock("x")
		start, n := time.Now(), 0
		require.NoError(t, l.Lock(owner(t, "a")))
		got := make(chan error)
		go func() { got <- l.Lock(owner(t, "b")) }()
		synctest.Wait()
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Acquire && time.Since(start) < 9900*time.Millisecond {
				return memory.Lose
			}
			if op.Verb == memory.Acquire {
				n++
			}
			return memory.Pass
		})
		require.NoError(t, l.Unlock(owner(t, "a")))
		require.NoError(t, <-got)
		assert.LessOrEqual(t, n, 3)
		require.NoError(t, l.Unlock(owner(t, "b")))
	})
}

// A timed try distinguishes "time is up" from "Redis cannot be reached", and does not wait much longer than its time
// limit.
func TestATimedTryDoesNotHideThatRedisIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
		start := time.Now()
		ok, err := s.NewLock("x").TryLockFor(t.Context(), 1100*time.Millisecond)
		assert.False(t, ok)
		assert.Error(t, err, "no other owner has the lock")
		assert.Equal(t, 1100*time.Millisecond, time.Since(start))
		b.SetFault(nil)
		b.Partition(s.ID(), true)
		start = time.Now()
		ok, err = s.NewLock("x").TryLockFor(t.Context(), 10*time.Millisecond)
		assert.False(t, ok)
		assert.Error(t, err)
		assert.Less(t, time.Since(start), time.Second)
		b.Partition(s.ID(), false)
	})
}

// An owner may lose the same lock more often than the session remembers losses.
func TestEveryLossIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x", reentrant.WithFixedLease(100*time.Millisecond))
		for range 1100 {
			require.NoError(t, l.Lock(t.Context()))
			time.Sleep(200 * time.Millisecond)
			require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		}
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
	})
}

// A log handler that blocks does not delay the notice of a loss.
func TestASlowLoggerDelaysNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		slow := make(slowHandler)
		s := newSession(t, b, reentrant.WithLogger(slog.New(slow)))
		var locks []*reentrant.Lock
		for _, name := range []string{"x", "y"} {
			l := s.NewLock(name)
			require.NoError(t, l.Lock(t.Context()))
			locks = append(locks, l)
		}
		b.Partition(s.ID(), true)
		start := time.Now()
		for _, l := range locks {
			<-l.Lost(t.Context())
		}
		assert.Less(t, time.Since(start), reentrant.DefaultLease)
		close(slow)
		b.Partition(s.ID(), false)
	})
}

// A slowHandler blocks until it is closed.
type slowHandler chan struct{}

func (slowHandler) Enabled(context.Context, slog.Level) bool    { return true }
func (h slowHandler) Handle(context.Context, slog.Record) error { <-h; return nil }
func (h slowHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h slowHandler) WithGroup(string) slog.Handler             { return h }

// A re-entry that waits for Redis takes account of a renewal that the watchdog makes meanwhile.
func TestAReentryThatWaitsLivesAsLongAsItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		start := time.Now()
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Reenter && time.Since(start) < 15*time.Second {
				return memory.Lose
			}
			return memory.Pass
		})
		require.NoError(t, l.Lock(t.Context()))
		assert.Equal(t, 2, l.HoldCount(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// If heads are handed the lock and leave at once, each hand-over still counts toward the turn of their process.
func TestHeadsThatLeaveDoNotStarveOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b, reentrant.WithTurn(2, 0)), newSession(t, b)
		l := s.NewLock("x")
		holder := owner(t, "0")
		require.NoError(t, l.Lock(holder))
		got := make(chan error, 1)
		go func() { got <- other.NewLock("x").Lock(owner(t, "c")) }()
		synctest.Wait()
		for round := 1; ; round++ {
			require.Less(t, round, 10, "the other process starves")
			leaver, leave := context.WithCancel(owner(t, "leaver"))
			left, next, locked := make(chan error, 1), owner(t, fmt.Sprint(round)), make(chan error, 1)
			go func() { left <- l.Lock(leaver) }()
			synctest.Wait()
			go func() { locked <- l.Lock(next) }()
			synctest.Wait()
			b.SetFault(func(op memory.Op) memory.Verdict {
				if op.Verb != memory.Acquire || leaver.Err() != nil {
					return memory.Pass
				}
				leave() // the waiter leaves at the moment at which it is the head
				return memory.Lose
			})
			require.NoError(t, l.Unlock(holder))
			require.ErrorIs(t, <-left, context.Canceled)
			synctest.Wait()
			b.SetFault(nil)
			holder = next
			if len(got) == 0 {
				require.NoError(t, <-locked)
				continue
			}
			require.NoError(t, <-got)
			require.NoError(t, other.NewLock("x").Unlock(owner(t, "c")))
			require.NoError(t, <-locked)
			require.NoError(t, l.Unlock(holder))
			return
		}
	})
}

func TestNilLocksAreTheErrorOfEveryCall(t *testing.T) {
	m := reentrant.NewMultiLock(nil)
	assert.ErrorContains(t, m.Lock(t.Context()), "nil lock")
	assert.ErrorContains(t, m.Unlock(t.Context()), "nil lock")
	<-m.Lost(t.Context())
}

// From the loss of a hold on, every call of its owner reports the loss, also after the end of the margin.
func TestALostHoldIsLostAtOnceForEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, memory.New()).NewLock("x", reentrant.WithFixedLease(10*time.Second))
		require.NoError(t, l.Lock(t.Context()))
		<-l.Lost(t.Context())
		for range 2 { // within the margin, and after it
			_, err := l.Token(t.Context())
			assert.ErrorIs(t, err, reentrant.ErrLost)
			assert.ErrorIs(t, l.Verify(t.Context()), reentrant.ErrLost)
			assert.Zero(t, l.HoldCount(t.Context()))
			time.Sleep(time.Second)
		}
		assert.ErrorIs(t, l.NewCondition("c").Signal(t.Context()), reentrant.ErrLost)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
	})
}

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

// order is a portable owner.
func order(t *testing.T) context.Context { return reentrant.WithPortableOwner(t.Context(), "order 7") }

// fixed returns a lock with a lease that is longer than any of these tests.
func fixed(s *reentrant.Session) *reentrant.Lock {
	return s.NewLock("x", reentrant.WithFixedLease(time.Hour))
}

// silent returns a fault that loses all messages, and leaves what becomes of commands to the given scripts.
func silent(scripts ...func(memory.Op) memory.Verdict) func(memory.Op) memory.Verdict {
	return func(op memory.Op) memory.Verdict {
		if op.Verb == memory.Push {
			return memory.Lose
		}
		for _, script := range scripts {
			if v := script(op); v != memory.Pass {
				return v
			}
		}
		return memory.Pass
	}
}

// isFree asserts that, for the session, no owner has the lock.
func isFree(t *testing.T, l *reentrant.Lock) {
	t.Helper()
	next := owner(t, "next")
	ok, err := l.TryLock(next)
	require.NoError(t, err)
	require.True(t, ok, "the session believes that the lock is held")
	require.NoError(t, l.Unlock(next))
}

// The message that a hold was resumed elsewhere is lost with the connection. When there is a new connection the session asks
// Redis until it replies. If it did not ask, a hold with a fixed lease would stay held in this session until the lease ended.
func TestAHoldThatMovedWhileTheChannelWasClosed(t *testing.T) {
	for _, answers := range [][]memory.Verdict{
		nil,
		{memory.Lose, memory.LoseReply, memory.Refuse("LOADING"), memory.Refuse("LOADING"), memory.Refuse("LOADING")},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			one, two := newSession(t, b), newSession(t, b)
			l, m, ctx := fixed(one), two.NewLock("x"), order(t)
			require.NoError(t, l.Lock(ctx))
			lost := l.Lost(ctx)
			b.SetFault(silent(memory.Script(memory.Inspect, answers...)))
			require.NoError(t, m.Resume(ctx))
			require.NoError(t, m.Unlock(ctx))
			synctest.Wait()
			require.True(t, l.IsHeldByCurrentOwner(ctx), "its session has not been notified")

			b.Restart()
			begun := time.Now()
			<-lost
			assert.LessOrEqual(t, time.Since(begun), time.Duration(len(answers))*(reentrant.DefaultHeartbeat+2*time.Second))
			synctest.Wait() // the waiters come after the owner
			isFree(t, l)
			assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		})
	}
}

// If an event makes a hold doubtful while a check is under way, the check's reply may be older than the event, and so proves
// nothing.
func TestAHoldThatMovedWhileAReplyWasUnderWay(t *testing.T) {
	for name, hint := range map[string]func(*reentrant.Session){
		"the channel was reopened": reentrant.Reopened,
		"some hold was taken up":   func(s *reentrant.Session) { reentrant.TakenUp(s, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				one, two := newSession(t, b), newSession(t, b)
				l, m, ctx := fixed(one), two.NewLock("x"), order(t)
				require.NoError(t, l.Lock(ctx))
				b.SetFault(silent(memory.Script(memory.Inspect, memory.DelayReply(time.Second))))
				hint(one)
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, m.Resume(ctx))
				require.NoError(t, m.Unlock(ctx))
				hint(one)
				time.Sleep(time.Minute)
				isFree(t, l)
				assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
			})
		})
	}
}

// Another session resumes a hold while the reply that grants it is under way. The message arrives before the reply, or
// is lost with the channel.
func TestAHoldThatMovedBeforeItsReplyCame(t *testing.T) {
	for name, gets := range map[string]struct {
		verb  memory.Verb
		first bool // the session already has the hold
		by    func(*reentrant.Lock, context.Context) error
	}{
		"Lock":              {memory.Acquire, false, (*reentrant.Lock).Lock},
		"Resume":            {memory.Resume, false, (*reentrant.Lock).Resume},
		"Resume of its own": {memory.Resume, true, (*reentrant.Lock).Resume},
	} {
		for _, heard := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memory.New()
					one, two := newSession(t, b), newSession(t, b)
					here, there, ctx := fixed(one), two.NewLock("x"), order(t)
					switch {
					case gets.first:
						require.NoError(t, here.Lock(ctx))
					case gets.verb == memory.Resume:
						require.NoError(t, there.Lock(ctx))
					}
					late := memory.Script(gets.verb, memory.DelayReply(time.Second))
					if heard {
						b.SetFault(late)
					} else {
						b.SetFault(silent(late))
					}
					got := make(chan error, 1)
					go func() { got <- gets.by(here, ctx) }()
					time.Sleep(time.Millisecond)
					require.NoError(t, there.Resume(ctx))
					require.NoError(t, there.Unlock(ctx))
					if !heard {
						reentrant.Reopened(one)
					}
					require.NoError(t, <-got)
					time.Sleep(2 * reentrant.DefaultHeartbeat)
					isFree(t, here)
					assert.ErrorIs(t, here.Unlock(ctx), reentrant.ErrLost)
					assert.ErrorIs(t, here.Unlock(ctx), reentrant.ErrNotHeld)
				})
			})
		}
	}
}

// Redis has given the lock to this session again, but for another owner, which was signalled. The hold that moved is lost all
// the same.
func TestAHoldThatMovedIsLostWhenAnotherOwnerOfItsSessionGetsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		woken := awaits(t, owner(t, "w"), one)
		l, m, ctx := fixed(one), two.NewLock("x"), order(t)
		require.NoError(t, l.Lock(ctx))
		b.SetFault(silent())
		require.NoError(t, m.Resume(ctx))
		require.NoError(t, m.NewCondition("ready").Signal(ctx))
		require.NoError(t, m.Unlock(ctx))
		b.SetFault(nil)
		b.Restart()
		_, ok := returned(woken, time.Minute)
		require.True(t, ok, "the owner waits for the end of a hold that has ended")
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
	})
}

// A hold that did not move is kept.
func TestAHoldThatDidNotMoveIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := fixed(s), order(t)
		require.NoError(t, l.Lock(ctx))
		asked, script := 0, memory.Script(memory.Inspect, memory.Lose, memory.Lose)
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Inspect {
				asked++
			}
			return script(op)
		})
		for range 2 { // a check that is under way is not sent twice
			reentrant.Reopened(s)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 3, asked, "the check is repeated until there is a reply")
		require.NoError(t, l.Unlock(ctx))
	})
}

// An owner that gives up its hold to wait for a condition has lost nothing.
func TestAHoldThatAwaitGivesUpHasNotMoved(t *testing.T) {
	for _, fault := range []memory.Verdict{memory.LoseReply, memory.DelayReply(time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s := newSession(t, b)
			l, ctx := fixed(s), order(t)
			require.NoError(t, l.Lock(ctx))
			lost := l.Lost(ctx)
			b.SetFault(memory.Script(memory.Await, fault))
			done := make(chan error, 1)
			go func() { done <- l.NewCondition("ready").Await(ctx) }()
			time.Sleep(time.Millisecond)
			reentrant.Reopened(s)
			time.Sleep(time.Minute)
			signals(t, s)
			require.NoError(t, <-done)
			select {
			case <-lost:
				assert.Fail(t, "the owner is notified of a loss")
			default:
			}
			require.NoError(t, l.Unlock(ctx))
		})
	}
}

// Checks without a reply delay neither other calls nor Close.
func TestAnOwnershipCheckDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, rival := newSession(t, b), newSession(t, b)
		ctx := order(t)
		var locks []*reentrant.Lock
		for i := range 100 {
			locks = append(locks, s.NewLock(fmt.Sprintf("held %d", i), reentrant.WithFixedLease(time.Hour)))
			require.NoError(t, locks[i].Lock(ctx))
		}
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Inspect {
				return memory.DelayReply(time.Minute)
			}
			return memory.Pass
		})
		free := lockFor(t, owner(t, "rival"), rival.NewLock("x"))
		reentrant.Reopened(s)
		waiting, cancel := context.WithTimeout(owner(t, "leaver"), time.Second)
		defer cancel()
		require.Error(t, s.NewLock("x").Lock(waiting)) // what it leaves is cleaned up before the next owner of this session can go on
		free()
		begun := time.Now()
		lockFor(t, owner(t, "next"), s.NewLock("x"))()
		assert.Less(t, time.Since(begun), time.Second)
		for _, l := range locks {
			require.NoError(t, l.Unlock(ctx))
		}
		begun = time.Now()
		require.NoError(t, s.Close(t.Context()))
		assert.LessOrEqual(t, time.Since(begun), 2*time.Second, "Close waits only for the command under way")
	})
}

package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// In these tests every signal goes to a waiter that returns with the lock, whatever messages are lost.

// awaits starts an owner that takes x, waits for "ready", unlocks, and sends the result of Await. It returns when the
// owner waits.
func awaits(t *testing.T, ctx context.Context, s *reentrant.Session) <-chan error {
	t.Helper()
	l := s.NewLock("x")
	done := make(chan error, 1)
	go func() {
		if err := l.Lock(ctx); err != nil {
			done <- err
			return
		}
		err := l.NewCondition("ready").Await(ctx)
		if e := l.Unlock(ctx); !errors.Is(e, reentrant.ErrLost) {
			assert.NoError(t, e)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// signals makes an owner of the session signal a waiter for "ready".
func signals(t *testing.T, s *reentrant.Session) {
	t.Helper()
	ctx, l := owner(t, "signaller"), s.NewLock("x")
	unlock := lockFor(t, ctx, l)
	assert.NoError(t, l.NewCondition("ready").Signal(ctx))
	unlock()
}

// returned reports whether an Await has returned within d, and what it returned.
func returned(done <-chan error, d time.Duration) (error, bool) {
	select {
	case err := <-done:
		return err, true
	case <-time.After(d):
		return nil, false
	}
}

// The reply to a withdrawal is lost: the reply to the second copy must not say that there was no signal.
func TestAWithdrawalThatIsRepeatedSpendsNoSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		ctx, cancel := context.WithCancel(owner(t, "first"))
		first := awaits(t, ctx, a)
		second := awaits(t, owner(t, "second"), d)
		lost := memory.Script(memory.Leave, memory.LoseReply)
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Push && op.Session == "A" {
				return memory.Delay(100 * time.Millisecond)
			}
			return lost(op)
		})
		signals(t, c)
		cancel()
		assert.NoError(t, <-first, "the signal came first")
		_, woken := returned(second, 20*time.Second)
		assert.False(t, woken, "one signal woke two")
	})
}

// The time limit of the wait passes while the reply to a heartbeat, which reports the signal, is on its way.
func TestABeatDoesNotAcknowledgeWhatItReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b, reentrant.WithJitter(0)), newSession(t, b), newSession(t, b)
		start := time.Now()
		first := make(chan bool, 1)
		go func() {
			ctx, l := owner(t, "first"), a.NewLock("x")
			unlock := lockFor(t, ctx, l)
			ok, err := l.NewCondition("ready").AwaitFor(ctx, 1050*time.Millisecond)
			assert.NoError(t, err)
			unlock()
			first <- ok
		}()
		synctest.Wait()
		second := awaits(t, owner(t, "second"), d)
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Verb == memory.Push && op.Session == "A":
				return memory.Lose
			case op.Verb == memory.Beat && op.Session == "A":
				return memory.DelayReply(100 * time.Millisecond)
			}
			return memory.Pass
		})
		time.Sleep(900*time.Millisecond - time.Since(start))
		signals(t, c)
		assert.True(t, <-first, "the signal came first")
		_, woken := returned(second, 20*time.Second)
		assert.False(t, woken, "one signal woke two")
	})
}

// A signalled waiter waits for the lock when its session is closed.
func TestClosePassesASignalOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		first, second := awaits(t, owner(t, "first"), a), awaits(t, owner(t, "second"), d)
		ctx, l := owner(t, "signaller"), c.NewLock("x")
		unlock := lockFor(t, ctx, l)
		require.NoError(t, l.NewCondition("ready").Signal(ctx))
		synctest.Wait()
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, <-first, reentrant.ErrLost)
		unlock()
		err, woken := returned(second, 20*time.Second)
		assert.True(t, woken, "the signal was used up by a waiter that never got the lock")
		assert.NoError(t, err)
	})
}

// The message of a signal is lost, and the session closes before it asks for signals. Close must give back the place in line
// for the lock that the session got with the signal.
func TestCloseGivesThePlaceOfASignalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		waits := awaits(t, owner(t, "w"), a)
		ctx, l := owner(t, "signaller"), c.NewLock("x")
		unlock := lockFor(t, ctx, l)
		b.SetFault(memory.Script(memory.Push, memory.Lose))
		require.NoError(t, l.NewCondition("ready").Signal(ctx))
		next, locked := owner(t, "next"), make(chan error)
		go func() { locked <- d.NewLock("x").Lock(next) }()
		synctest.Wait() // it is in line behind the session that was signalled
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, <-waits, reentrant.ErrLost)
		unlocked := time.Now()
		unlock()
		require.NoError(t, <-locked)
		assert.Less(t, time.Since(unlocked), time.Second, "the lock was granted to a session that is closed")
		assert.NoError(t, d.NewLock("x").Unlock(next))
	})
}

// When an owner has returned, its signal is acknowledged: no other waiter gets it, however long the owner works.
func TestASignalIsAcknowledgedByTheOwnersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		first, second := awaits(t, owner(t, "first"), a), awaits(t, owner(t, "second"), d)
		signals(t, c)
		require.NoError(t, <-first)
		_, woken := returned(second, time.Minute)
		assert.False(t, woken, "one signal woke two")
	})
}

// Close acknowledges the signal of an owner that returned since the last heartbeat.
func TestCloseAcknowledgesTheSignalsOfOwnersThatHaveReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		first, second := awaits(t, owner(t, "first"), a), awaits(t, owner(t, "second"), d)
		signals(t, c)
		require.NoError(t, <-first)
		require.NoError(t, a.Close(t.Context()))
		_, woken := returned(second, time.Minute)
		assert.False(t, woken, "one signal woke two")
	})
}

// The message that grants the lock arrives, and the message of the signal does not.
func TestAGrantReportsItsSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b, reentrant.WithJitter(0)), newSession(t, b)
		done := awaits(t, owner(t, "w"), a)
		b.SetFault(memory.Script(memory.Push, memory.Lose))
		signals(t, c)
		err, ok := returned(done, 100*time.Millisecond)
		assert.True(t, ok, "the owner need not wait for its session's next heartbeat")
		assert.NoError(t, err)
	})
}

func TestSignalAllKeepsTheOrderOfArrival(t *testing.T) {
	for range 20 { // the scheduler decides in which order goroutines run
		synctest.Test(t, func(t *testing.T) {
			l := newSession(t, memory.New()).NewLock("x")
			c := l.NewCondition("ready")
			const n = 8
			var order []int // guarded by l
			done := make(chan struct{}, n)
			for i := range n {
				go func() {
					ctx := owner(t, fmt.Sprint(i))
					unlock := lockFor(t, ctx, l)
					assert.NoError(t, c.Await(ctx))
					order = append(order, i)
					unlock()
					done <- struct{}{}
				}()
				synctest.Wait()
			}
			unlock := lockFor(t, t.Context(), l)
			require.NoError(t, c.SignalAll(t.Context()))
			synctest.Wait()
			unlock()
			for range n {
				<-done
			}
			require.IsIncreasing(t, order)
		})
	}
}

// A hold is lost while Signal has no reply: a waiter may have been signalled, and the error says so.
func TestALostSignalSaysThatItMayHaveBeenGiven(t *testing.T) {
	for name, unknown := range map[string]bool{"executed": true, "never sent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				a, c := newSession(t, b), newSession(t, b)
				l := a.NewLock("x", reentrant.WithFixedLease(2*time.Second))
				done := awaits(t, owner(t, "w"), c)
				require.NoError(t, l.Lock(t.Context()))
				n := 0
				b.SetFault(func(op memory.Op) memory.Verdict {
					if op.Verb != memory.Signal {
						return memory.Pass
					}
					if n++; n == 1 && unknown {
						return memory.LoseReply
					}
					return memory.Lose
				})
				err := l.NewCondition("ready").Signal(t.Context())
				assert.ErrorIs(t, err, reentrant.ErrLost)
				assert.Equal(t, unknown, backend.OutcomeUnknown(err), "%v", err)
				_, woken := returned(done, 10*time.Second)
				assert.Equal(t, unknown, woken)
			})
		})
	}
}

// Redis loses its data, and with them the tickets of owners that wait. They wake at their next beat: no signal could find them.
func TestWaitersWakeWhenRedisHasLostItsData(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, context.Context, *reentrant.Session) <-chan error{"lock": awaits, "write side": writeAwaits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				waiter := begin(t, owner(t, "waiter"), newSession(t, b))
				b.Flush()
				err, ok := returned(waiter, 2*reentrant.DefaultHeartbeat)
				assert.True(t, ok)
				assert.NoError(t, err)
			})
		})
	}
}

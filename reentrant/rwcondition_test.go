package reentrant_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// These tests are about conditions of a read-write lock's write side, beyond what they share with conditions of a Lock
// (tck_condition_test.go).

// writeAwaits starts an owner that takes the write side, waits for "ready", unlocks, and sends what Await returned.
func writeAwaits(t *testing.T, ctx context.Context, s *reentrant.Session) <-chan error {
	t.Helper()
	l := s.NewRWLock("x")
	done := make(chan error, 1)
	go func() {
		if err := l.Lock(ctx); err != nil {
			done <- err
			return
		}
		err := l.NewCondition("ready").Await(ctx)
		_ = l.Unlock(ctx)
		done <- err
	}()
	synctest.Wait()
	return done
}

// writeSignals makes an owner of the session signal a waiter for "ready".
func writeSignals(t *testing.T, s *reentrant.Session) {
	t.Helper()
	ctx, l := owner(t, "signaller"), s.NewRWLock("x")
	require.NoError(t, l.Lock(ctx))
	assert.NoError(t, l.NewCondition("ready").Signal(ctx))
	assert.NoError(t, l.Unlock(ctx))
}

// The write side guards a bounded buffer with two places, which two processes write and read, as in the documentation of
// java.util.concurrent's Condition. An owner with the read side counts the items meanwhile.
func TestABoundedBufferOverAWriteSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		const items = 100
		var buffer, got []int // guarded by the write side
		puts, takes := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				notFull, notEmpty := puts.NewCondition("not full"), puts.NewCondition("not empty")
				for i := range items {
					assert.NoError(t, puts.Do(t.Context(), func(ctx context.Context) error {
						for len(buffer) == 2 {
							if err := notFull.Await(ctx); err != nil {
								return err
							}
						}
						buffer = append(buffer, i)
						return notEmpty.Signal(ctx)
					}))
				}
			})
			wg.Go(func() {
				notFull, notEmpty := takes.NewCondition("not full"), takes.NewCondition("not empty")
				for range items {
					assert.NoError(t, takes.Do(t.Context(), func(ctx context.Context) error {
						for len(buffer) == 0 {
							if err := notEmpty.Await(ctx); err != nil {
								return err
							}
						}
						got, buffer = append(got, buffer[0]), buffer[1:]
						return notFull.Signal(ctx)
					}))
				}
			})
		}
		wg.Go(func() {
			for range items {
				assert.NoError(t, takes.RDo(t.Context(), func(context.Context) error {
					assert.LessOrEqual(t, len(buffer), 2)
					return nil
				}))
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		assert.Len(t, got, 2*items)
		assert.Empty(t, buffer)
	})
}

func TestConditionsNeedTheWriteSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewRWLock("x")
		c := l.NewCondition("ready")
		require.NoError(t, l.RLock(t.Context()))
		before := b.Commands()
		assert.ErrorIs(t, c.Await(t.Context()), reentrant.ErrNotHeld, "a reader does not wait")
		assert.ErrorIs(t, c.SignalAll(t.Context()), reentrant.ErrNotHeld)
		_, err := l.HasWaiters(c)
		assert.ErrorIs(t, err, reentrant.ErrNotHeld)
		assert.Equal(t, 1, l.ReadHoldCount(t.Context()))
		assert.Equal(t, before, b.Commands())
		require.NoError(t, l.RUnlock(t.Context()))
	})
}

// As in Java, await gives up the whole state of the lock, read holds too, and restores it when it returns.
func TestAwaitGivesUpBothSidesAndBringsThemBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		for range 3 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.RLock(t.Context()))
		}
		require.NoError(t, l.RUnlock(t.Context()))
		first, err := l.Token(t.Context())
		require.NoError(t, err)
		var meanwhile reentrant.Token
		var wg sync.WaitGroup
		wg.Go(func() {
			require.NoError(t, other.Lock(t.Context()), "the owner that waits has neither side")
			assert.Zero(t, l.ReadLockCount())
			meanwhile, err = other.Token(t.Context())
			assert.NoError(t, err)
			assert.NoError(t, other.NewCondition("ready").Signal(t.Context()))
			assert.NoError(t, other.Unlock(t.Context()))
		})
		require.NoError(t, l.NewCondition("ready").Await(t.Context()))
		wg.Wait()
		assert.Equal(t, 3, l.HoldCount(t.Context()))
		assert.Equal(t, 2, l.ReadHoldCount(t.Context()))
		last, err := l.Token(t.Context())
		require.NoError(t, err)
		assert.Less(t, first, meanwhile)
		assert.Less(t, meanwhile, last, "the restored hold has a new token")
		for range 3 {
			require.NoError(t, l.Unlock(t.Context()))
		}
		version, err := l.Version(t.Context())
		require.NoError(t, err)
		assert.Greater(t, version, last)
		for range 2 {
			require.NoError(t, l.RUnlock(t.Context()))
		}
		assert.ErrorIs(t, l.RUnlock(t.Context()), reentrant.ErrNotHeld)
	})
}

// The waiters of a session acquire the lock in the order of their signals, whichever goroutine runs first.
func TestSignalAllOfAWriteSideKeepsTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		l := s.NewRWLock("x")
		var order []int // guarded by the lock
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				assert.NoError(t, l.Do(t.Context(), func(ctx context.Context) error {
					err := l.NewCondition("ready").Await(ctx)
					order = append(order, i)
					return err
				}))
			})
			synctest.Wait()
		}
		o := other.NewRWLock("x")
		require.NoError(t, o.Lock(t.Context()))
		require.NoError(t, o.NewCondition("ready").SignalAll(t.Context()))
		require.NoError(t, o.Unlock(t.Context()))
		wg.Wait()
		assert.IsIncreasing(t, order)
	})
}

func TestALossAfterAwaitOfAWriteSideEndsTheContextOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		l := a.NewRWLock("x")
		go func() {
			time.Sleep(time.Second)
			writeSignals(t, c)
		}()
		err := l.Do(t.Context(), func(ctx context.Context) error {
			lost := l.Lost(ctx)
			require.NoError(t, l.NewCondition("ready").Await(ctx))
			b.Flush()
			time.Sleep(30 * time.Second)
			assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost)
			requireClosed(t, lost)
			return nil
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
	})
}

// An owner that waits for a condition is not notified when other owners of its session lose the lock.
func TestAWaiterOfAWriteSideLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		l := a.NewRWLock("x")
		var wg sync.WaitGroup
		entered := make(chan struct{})
		wg.Go(func() {
			assert.NoError(t, l.Do(t.Context(), func(ctx context.Context) error {
				close(entered)
				synctest.Wait()
				err := l.NewCondition("ready").Await(ctx)
				assert.NoError(t, context.Cause(ctx))
				return err
			}))
		})
		<-entered
		require.NoError(t, l.RLock(t.Context()), "the owner is in line until the writer waits for the condition")
		lost := l.Lost(t.Context())
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Renew {
				return memory.Lose
			}
			return memory.Pass
		})
		<-lost
		b.SetFault(nil)
		assert.ErrorIs(t, l.RUnlock(t.Context()), reentrant.ErrLost)
		writeSignals(t, c)
		wg.Wait()
	})
}

// An Await that cannot acquire the write side again returns a loss, and its owner owes an Unlock for each hold.
func TestAnAwaitOfAWriteSideThatCannotComeBackIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		err := l.Do(t.Context(), func(ctx context.Context) error {
			require.NoError(t, l.Lock(ctx))
			require.NoError(t, l.RLock(ctx))
			lost := l.Lost(ctx)
			go func() {
				require.NoError(t, other.Lock(t.Context()))
				time.Sleep(time.Minute)
				require.NoError(t, other.Unlock(t.Context()))
			}()
			begun := time.Now()
			_, err := l.NewCondition("ready").AwaitFor(ctx, time.Second)
			assert.ErrorIs(t, err, reentrant.ErrLost)
			assert.NoError(t, t.Context().Err())
			assert.NotErrorIs(t, err, context.Canceled)
			assert.Equal(t, time.Second+reentrant.DefaultLease, time.Since(begun))
			assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost)
			requireClosed(t, lost)
			assert.Zero(t, l.HoldCount(ctx))
			assert.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrLost)
			assert.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrNotHeld)
			assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
			return nil
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
		time.Sleep(time.Minute)
	})
}

// If a signalled owner cannot acquire the write side again, its signal goes to the next waiter.
func TestAnOverdueWriterPassesItsSignalOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		ctx, cancel := context.WithCancel(owner(t, "first"))
		first := writeAwaits(t, ctx, a)
		second := writeAwaits(t, owner(t, "second"), c)
		l := d.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.NewCondition("ready").Signal(t.Context()))
		synctest.Wait()
		cancel()
		time.Sleep(2 * reentrant.DefaultLease)
		require.NoError(t, l.Unlock(t.Context()))
		assert.ErrorIs(t, <-first, reentrant.ErrLost)
		err, woken := returned(second, time.Minute)
		assert.True(t, woken)
		assert.NoError(t, err)
	})
}

// If the process of a signalled writer dies before the writer returns, another waiter gets the signal.
func TestASignalOfAWriterThatDiesGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b), newSession(t, b), newSession(t, b)
		ctx, cancel := context.WithCancel(owner(t, "first"))
		first := writeAwaits(t, ctx, a)
		second := writeAwaits(t, owner(t, "second"), c)
		l := d.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.NewCondition("ready").Signal(t.Context()))
		synctest.Wait()
		b.Partition("A", true)
		require.NoError(t, l.Unlock(t.Context()))
		err, woken := returned(second, time.Minute)
		assert.True(t, woken)
		assert.NoError(t, err)
		b.Partition("A", false)
		cancel()
		assert.NoError(t, <-first, "the signal came before the context ended")
	})
}

// The lock of the conditions has a lease that is long enough for two commands, whatever the session's lease is.
func TestALostReleaseDelaysSignalsByTwoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b, reentrant.WithLease(time.Minute)), newSession(t, b, reentrant.WithLease(time.Minute))
		l := a.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Release {
				return memory.Lose
			}
			return memory.Pass
		})
		require.NoError(t, l.NewCondition("ready").Signal(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		begun := time.Now()
		writeSignals(t, c)
		assert.LessOrEqual(t, time.Since(begun), 4*time.Second+10*time.Millisecond)
	})
}

// A session is signalled after its process has died, and so the lock of the conditions is granted to it. The next signal must
// wait for the end of that grant, and is tried for a lease, so the grant must be shorter than a lease, even if three
// heartbeats are as long as a lease.
func TestASignalOutlastsAGrantToADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		lease := reentrant.WithLease(3 * time.Second)
		a, c := newSession(t, b, lease), newSession(t, b, lease)
		waiter := writeAwaits(t, owner(t, "waiter"), a)
		l := c.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.Partition("A", true)
		require.NoError(t, l.NewCondition("ready").Signal(t.Context()))
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, l.NewCondition("ready").Signal(t.Context()))
		assert.LessOrEqual(t, time.Since(begun), 2*time.Second+10*time.Millisecond, "the time of two commands")
		require.NoError(t, l.Unlock(t.Context()))
		b.Partition("A", false)
		assert.NoError(t, <-waiter)
	})
}

// A session has the lock of the conditions by the reply to its second request, and the message of the grant comes while it
// signals. The signal's reply is lost: the second copy must find the lock, since only then does the session know that the
// first copy was carried out.
func TestALateGrantDoesNotGiveTheConditionsBackWhileTheyAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		first, second := newSession(t, b), newSession(t, b)
		conditions := backend.ConditionsOf("x")
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Lock != conditions:
				return memory.Pass
			case op.Session == "A" && op.Verb == memory.Release:
				return memory.Delay(50 * time.Millisecond) // so B is queued
			case op.Session == "B" && op.Verb == memory.Acquire && op.Try == 1:
				return memory.Verdict{Mute: true, Late: 100 * time.Millisecond}
			case op.Session == "B" && op.Verb == memory.Push:
				return memory.Delay(150 * time.Millisecond)
			case op.Session == "B" && op.Verb == memory.Signal && op.Try == 1:
				return memory.Verdict{Mute: true, Late: 200 * time.Millisecond}
			}
			return memory.Pass
		})
		writeSignals(t, first)
		writeSignals(t, second)
	})
}

// A writer loses its side while it begins to wait: the signal, and the lock of the conditions that came with it, are not for
// that writer. The messages about both are lost.
func TestAWriterThatLosesItsSideAndIsSignalledGivesTheConditionsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Session == "A" && op.Verb == memory.Await:
				return memory.DelayReply(time.Second)
			case op.Session == "A" && op.Verb == memory.Push:
				return memory.Lose
			}
			return memory.Pass
		})
		ctx, l := owner(t, "waiter"), a.NewRWLock("x")
		waiter := writeAwaits(t, ctx, a)
		had, err := c.NewRWLock("x").ForceUnlock(t.Context())
		require.NoError(t, err)
		require.True(t, had)
		writeSignals(t, c)
		require.ErrorIs(t, l.Verify(ctx), reentrant.ErrLost)
		require.ErrorIs(t, <-waiter, reentrant.ErrLost)
		synctest.Wait()
		begun := time.Now()
		writeSignals(t, c)
		assert.Zero(t, time.Since(begun))
	})
}

// The waiter has its ticket before it gives up the write side.
func TestASignalFindsAWriterThatHasJustBegunToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		b.SetFault(memory.Script(memory.Await, memory.Delay(500*time.Millisecond)))
		waiter := writeAwaits(t, owner(t, "waiter"), a)
		writeSignals(t, c)
		err, woken := returned(waiter, time.Minute)
		assert.True(t, woken, "the signal was lost")
		assert.NoError(t, err)
	})
}

// A writer is granted the lock of the conditions, whose lease ends before the writer gets its ticket, so the writer asks for
// both again.
func TestAWriterAsksAgainForATicketThatItDidNotGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		b.SetFault(memory.Script(memory.Await, memory.Delay(5*time.Second), memory.Delay(5*time.Second)))
		waiter := writeAwaits(t, owner(t, "waiter"), a)
		_, woken := returned(waiter, 20*time.Second)
		assert.False(t, woken, "the writer returned without a signal")
		writeSignals(t, c)
		err, woken := returned(waiter, time.Minute)
		assert.True(t, woken, "the writer has no ticket")
		assert.NoError(t, err)
	})
}

// The message of the signal is lost. The grant of the place that came with the signal reports it, too.
func TestAGrantReportsAWritersSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		waiter := writeAwaits(t, owner(t, "waiter"), a)
		b.SetFault(memory.Script(memory.Push, memory.Lose))
		begun := time.Now()
		writeSignals(t, c)
		assert.NoError(t, <-waiter)
		assert.Zero(t, time.Since(begun))
	})
}

func TestAnAwaitThatCannotBeginKeepsTheWriteSide(t *testing.T) {
	for name, fault := range map[string]memory.Fault{
		"refused":           memory.Script(memory.Await, memory.Refuse("NOPERM")),
		"refused the lock":  memory.Script(memory.Acquire, memory.Refuse("NOPERM")),
		"the reply is late": memory.Script(memory.Await, memory.DelayReply(100*time.Millisecond)),
		"nothing arrives": func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Await || op.Verb == memory.Acquire {
				return memory.Lose
			}
			return memory.Pass
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l := newSession(t, b).NewRWLock("x")
				require.NoError(t, l.Lock(t.Context()))
				require.NoError(t, l.RLock(t.Context()))
				token, err := l.Token(t.Context())
				require.NoError(t, err)
				b.SetFault(fault)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				err = l.NewCondition("ready").Await(ctx)
				require.Error(t, err)
				assert.NotErrorIs(t, err, reentrant.ErrLost)
				b.SetFault(nil)
				assert.Equal(t, 1, l.HoldCount(t.Context()))
				assert.Equal(t, 1, l.ReadHoldCount(t.Context()))
				if name != "the reply is late" { // in this case the owner gave up the write side, and acquired it again
					again, err := l.Token(t.Context())
					require.NoError(t, err)
					assert.Equal(t, token, again)
				}
				require.NoError(t, l.RUnlock(t.Context()))
				require.NoError(t, l.Unlock(t.Context()))
				time.Sleep(time.Second)
				assert.Empty(t, b.Left(backend.ConditionsOf("x")))
			})
		})
	}
}

// Redis is gone for good: each call returns within a lease, when the write side is lost.
func TestConditionsOfAWriteSideEndWithItsLoss(t *testing.T) {
	for name, call := range map[string]func(c *reentrant.Condition, ctx context.Context) error{
		"Await":                (*reentrant.Condition).Await,
		"AwaitUninterruptibly": (*reentrant.Condition).AwaitUninterruptibly,
		"Signal":               (*reentrant.Condition).Signal,
		"SignalAll":            (*reentrant.Condition).SignalAll,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l := newSession(t, b).NewRWLock("x")
				require.NoError(t, l.Lock(t.Context()))
				b.Partition("A", true)
				begun := time.Now()
				err := call(l.NewCondition("ready"), t.Context())
				assert.ErrorIs(t, err, reentrant.ErrLost)
				assert.NotErrorIs(t, err, context.Canceled)
				assert.LessOrEqual(t, time.Since(begun), reentrant.DefaultLease)
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
				b.Partition("A", false)
			})
		})
	}
}

// A holder in a session that is being closed can still signal, but not begin to wait.
func TestAHolderInAClosingSessionSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		waiter := writeAwaits(t, owner(t, "waiter"), c)
		neighbour := writeAwaits(t, owner(t, "neighbour"), a)
		l := a.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		closed := make(chan error)
		go func() { closed <- a.Close(context.Background()) }()
		synctest.Wait()
		err := l.NewCondition("ready").Await(t.Context())
		assert.ErrorIs(t, err, reentrant.ErrClosed)
		assert.NotErrorIs(t, err, reentrant.ErrLost)
		require.NoError(t, l.NewCondition("ready").SignalAll(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-closed)
		assert.NoError(t, <-waiter)
		err = <-neighbour
		assert.ErrorIs(t, err, reentrant.ErrClosed)
		assert.ErrorIs(t, err, reentrant.ErrLost)
		time.Sleep(time.Second)
		assert.Empty(t, b.Left(backend.ConditionsOf("x")), "nothing of the session is left")
	})
}

func TestCloseWaitsForWritersThatLeaveTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		waiter := writeAwaits(t, owner(t, "waiter"), s)
		b.SetFault(memory.Script(memory.Leave, memory.Delay(500*time.Millisecond)))
		require.NoError(t, s.Close(t.Context()))
		assert.Empty(t, b.Left(backend.ConditionsOf("x")))
		assert.ErrorIs(t, <-waiter, reentrant.ErrClosed)
	})
}

// Two goroutines of one owner call Await at once: the first gives up the holds, and the second finds none.
func TestGoroutinesOfOneOwnerWaitOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewRWLock("x"), owner(t, "both")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- l.NewCondition("ready").Await(ctx) }()
		}
		synctest.Wait()
		assert.ErrorIs(t, <-results, reentrant.ErrNotHeld)
		writeSignals(t, newSession(t, b))
		assert.NoError(t, <-results)
		assert.Equal(t, 2, l.HoldCount(ctx))
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

// While an owner waits, another of its goroutines may acquire the lock: the restored holds are added to its holds, or
// are refused.
func TestASharedOwnerComesBackToWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewRWLock("x"), owner(t, "both")
		await := func() <-chan error {
			require.NoError(t, l.Lock(ctx))
			require.NoError(t, l.Lock(ctx))
			done := make(chan error, 1)
			go func() { done <- l.NewCondition("ready").Await(ctx) }()
			synctest.Wait()
			return done
		}
		done := await()
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.NewCondition("ready").Signal(ctx))
		require.NoError(t, <-done)
		assert.Equal(t, 3, l.HoldCount(ctx))
		for range 3 {
			require.NoError(t, l.Unlock(ctx))
		}

		done = await()
		require.NoError(t, l.RLock(ctx))
		cond := l.NewCondition("ready")
		short, cancel := context.WithCancel(owner(t, "signaller"))
		defer cancel()
		signalled := make(chan error, 1)
		go func() {
			err := l.Lock(short)
			if err == nil {
				err = cond.Signal(short)
				_ = l.Unlock(short)
			}
			signalled <- err
		}()
		synctest.Wait()
		require.NoError(t, l.RUnlock(ctx))
		require.NoError(t, <-signalled)
		require.NoError(t, <-done)
		for range 2 {
			require.NoError(t, l.Unlock(ctx))
		}
	})
}

func TestNamesOfConditionsAreReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		name := backend.ConditionsOf("x")
		assert.ErrorContains(t, s.NewLock(name).Lock(t.Context()), "reserved")
		assert.ErrorContains(t, s.NewRWLock(name).Lock(t.Context()), "reserved")
		assert.ErrorContains(t, s.NewSemaphore(name, 1).Acquire(t.Context(), 1), "reserved")
		states, err := s.InspectAll(t.Context(), name)
		require.NoError(t, err)
		assert.ErrorContains(t, states[0].Err, "reserved")
	})
}

func TestAwaitOfAWriteSideThatWouldExceedTheLimitOfHoldsLosesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewRWLock("x"), owner(t, "both")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		done := make(chan error, 1)
		go func() { done <- l.NewCondition("ready").Await(ctx) }()
		synctest.Wait()
		require.NoError(t, l.Lock(ctx))
		reentrant.AddWrites(l, ctx, math.MaxInt32-2)
		require.NoError(t, l.NewCondition("ready").Signal(ctx))
		err := <-done
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.ErrorIs(t, err, reentrant.ErrTooManyHolds)
		assert.Equal(t, math.MaxInt32-1, l.HoldCount(ctx))
		reentrant.AddWrites(l, ctx, 2-math.MaxInt32)
		require.NoError(t, l.Unlock(ctx))
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
	})
}

// Observers get events of the write side only.
func TestAnObserverSeesAWaitOfAWriteSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var events []reentrant.Event
		s := newSession(t, b, reentrant.WithObserver(observe(func(e reentrant.Event) { events = append(events, e) })))
		l := s.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		ok, err := l.NewCondition("ready").AwaitFor(t.Context(), time.Second)
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		var kinds []reentrant.EventKind
		for _, e := range events {
			assert.Equal(t, "x", e.Lock)
			assert.Equal(t, reentrant.ModeWrite, e.Mode)
			assert.NotZero(t, e.Token)
			kinds = append(kinds, e.Kind)
		}
		assert.Equal(t, []reentrant.EventKind{reentrant.EventAcquired, reentrant.EventReleased, reentrant.EventAcquired, reentrant.EventReleased}, kinds)
		assert.Zero(t, s.Stats().Lost)
	})
}

// Two goroutines act for one owner, and both have called Lost. One of them returns from a wait while the other is
// inside: in whichever order they get the write side, a loss closes both channels.
func TestEveryGoroutineOfAnOwnerIsNotifiedOfALossAfterAWait(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s := newSession(t, b)
			l, ctx := s.NewRWLock("x"), owner(t, "both")
			done := make(chan error, 1)
			go func() {
				err := l.Lock(ctx)
				if err == nil {
					err = l.NewCondition("ready").Await(ctx)
				}
				done <- err
			}()
			synctest.Wait()
			other := owner(t, "signaller")
			require.NoError(t, l.Lock(other))
			require.NoError(t, l.NewCondition("ready").Signal(other))
			lost := make(chan (<-chan struct{}), 1)
			go func() {
				assert.NoError(t, l.Lock(ctx))
				lost <- l.Lost(ctx)
			}()
			synctest.Wait()
			require.NoError(t, l.Unlock(other))
			told := <-lost
			require.NoError(t, <-done)
			synctest.Wait()
			assert.True(t, stillOpen(told))
			b.Flush()
			time.Sleep(time.Minute)
			assert.False(t, stillOpen(told))
			assert.False(t, stillOpen(l.Lost(ctx)))
			for range 2 {
				assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
			}
		})
	}
}

package reentrant_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// waits returns those ways to wait for the condition that can be cancelled. A wait that was not signalled in time returns
// errTimeUp.
func waits(c *reentrant.Condition) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Await":    c.Await,
		"AwaitFor": func(ctx context.Context) error { return timely(c.AwaitFor(ctx, time.Minute)) },
		"Await until": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return c.Await(ctx)
		},
	}
}

func timely(ok bool, err error) error {
	if err == nil && !ok {
		return errTimeUp
	}
	return err
}

var errTimeUp = errors.New("the time is up")

// allWaits returns all ways to wait for the condition.
func allWaits(c *reentrant.Condition) map[string]func(ctx context.Context) error {
	all := waits(c)
	all["AwaitUninterruptibly"] = c.AwaitUninterruptibly
	return all
}

// signallers returns kits of the same lock in this process and in another one.
func signallers(t *testing.T, k condKit) map[string]condKit {
	t.Helper()
	return map[string]condKit{"this process": k, "another process": newCondKit(t, k.backend, k.monitorKind)}
}

// sleep waits for the condition with the given number of holds. However the wait ends, the caller must have the holds again,
// and sleep releases them.
func (k condKit) sleep(t *testing.T, ctx context.Context, holds int, wait func(ctx context.Context) error) error {
	t.Helper()
	for range holds {
		if err := k.Lock(ctx); err != nil {
			return err
		}
	}
	err := wait(ctx)
	assert.Equal(t, holds, k.HoldCount(ctx), "however the wait ends")
	owners, e := k.WaitingOwners(k.cond)
	assert.NoError(t, e)
	assert.NotContains(t, owners, reentrant.CurrentOwner(ctx), "an owner that has returned does not wait")
	for range holds {
		assert.NoError(t, k.Unlock(ctx))
	}
	return err
}

// awaits starts a thread that calls sleep.
func (k condKit) awaits(t *testing.T, holds int, wait func(ctx context.Context) error) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error { return k.sleep(t, ctx, holds, wait) })
}

// requireWaiters checks the results of all methods that return the waiters of the condition. The caller holds the lock.
func (k condKit) requireWaiters(t *testing.T, want ...thread) {
	t.Helper()
	var owners []reentrant.Owner
	for _, th := range want {
		owners = append(owners, th.Owner)
	}
	require.Equal(t, owners, k.waiters(t))
	n, err := k.WaitQueueLength(k.cond)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	has, err := k.HasWaiters(k.cond)
	require.NoError(t, err)
	require.Equal(t, len(want) > 0, has)
}

// ReentrantLockTest.testAwait_IMSE, AbstractQueuedSynchronizerTest.testAwait_IMSE; AwaitUninterruptibly is in neither.
func TestTckAwaitWithoutTheLockIsRefused(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		refused := func(ctx context.Context, state string) {
			begun, before := time.Now(), k.backend.Commands()
			for way, wait := range allWaits(k.cond) {
				assert.ErrorIs(t, wait(ctx), reentrant.ErrNotHeld, "%s with a lock that is %s", way, state)
			}
			assert.Zero(t, time.Since(begun), state)
			assert.Equal(t, before, k.backend.Commands(), "nothing was sent")
		}
		refused(t.Context(), "free")
		unlock := k.locked(t)
		elsewhere(t, func(ctx context.Context) { refused(ctx, "another's") })
		k.requireWaiters(t)
		assert.Equal(t, 1, k.HoldCount(t.Context()))
		unlock()
		y := k.make(k.session, "y")
		require.NoError(t, y.Lock(t.Context()))
		defer func() { assert.NoError(t, y.Unlock(t.Context())) }()
		synctest.Wait() // until the release of the first lock was sent in the background
		refused(t.Context(), "free, while another lock is held")
	})
}

// ReentrantLockTest.testSignal_IMSE, AbstractQueuedSynchronizerTest.testSignal_IMSE, testSignalAll_IMSE.
func TestTckSignalWithoutTheLockIsRefused(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		waiter := k.awaits(t, 1, k.cond.Await)
		for from, s := range signallers(t, k) {
			refused := func(ctx context.Context) {
				assert.ErrorIs(t, s.cond.Signal(ctx), reentrant.ErrNotHeld, from)
				assert.ErrorIs(t, s.cond.SignalAll(ctx), reentrant.ErrNotHeld, from)
			}
			refused(t.Context())
			unlock := k.locked(t)
			elsewhere(t, refused)
			k.requireWaiters(t, waiter)
			unlock()
			waiter.requireWaiting(t)
		}
		defer k.locked(t)()
		require.NoError(t, k.cond.Signal(t.Context()))
	})
}

// ReentrantLockTest.testAwaitNanos_Timeout, testAwait_Timeout, testAwaitUntil_Timeout;
// AbstractQueuedSynchronizerTest.testAwaitTimed_Timeout, testAwaitNanos_Timeout, testAwaitUntil_Timeout.
func TestTckATimedAwaitEndsWithItsTime(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		unlock := k.locked(t)
		begun := time.Now()
		ok, err := k.cond.AwaitFor(t.Context(), 12*time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 12*time.Millisecond, time.Since(begun))

		begun = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, k.cond.Await(ctx), context.DeadlineExceeded)
		assert.Equal(t, 12*time.Millisecond, time.Since(begun))

		assert.Equal(t, 1, k.HoldCount(t.Context()))
		k.requireWaiters(t)
		unlock()
	})
}

// AbstractQueuedSynchronizerTest.testAwait_Zero, testAwait_NegativeInfinity. The lock is given up all the same.
func TestTckAwaitForWithoutTimeGivesUpTheLock(t *testing.T) {
	for _, wait := range []time.Duration{0, -1, math.MinInt64} {
		t.Run(wait.String(), func(t *testing.T) {
			condKits(t, func(t *testing.T, k condKit) {
				unlock := k.locked(t)
				other := k.queues(t)
				begun := time.Now()
				ok, err := k.cond.AwaitFor(t.Context(), wait)
				require.NoError(t, err)
				assert.False(t, ok)
				assert.Zero(t, time.Since(begun))
				assert.Equal(t, 1, k.HoldCount(t.Context()))
				if k.fair { // an unfair wait may acquire the lock again before the other goroutine wakes
					synctest.Wait()
					assert.Len(t, other.ended, 1, "the other owner had the lock meanwhile")
				}
				unlock()
				require.NoError(t, <-other.ended)
			})
		})
	}
}

// Not in Java's tests: the longest time limit does not overflow.
func TestTckAwaitForWaitsTheLongestTime(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		waiter := k.awaits(t, 1, func(ctx context.Context) error { return timely(k.cond.AwaitFor(ctx, math.MaxInt64)) })
		waiter.requireWaiting(t)
		unlock := k.locked(t)
		require.NoError(t, k.cond.Signal(t.Context()))
		unlock()
		require.NoError(t, <-waiter.ended)
	})
}

// ReentrantLockTest.testAwait; AbstractQueuedSynchronizerTest.testSignal_await, testSignal_awaitTimed,
// testSignal_awaitNanos, testSignal_awaitUntil.
func TestTckASignalledWaiterRunsAfterTheUnlock(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for way, wait := range allWaits(k.cond) {
			waiter := k.awaits(t, 1, wait)
			unlock := k.locked(t)
			k.requireWaiters(t, waiter)
			assert.False(t, k.HasQueuedOwners(), "%s: it waits for the condition, not for the lock", way)
			require.NoError(t, k.cond.Signal(t.Context()))
			k.requireWaiters(t)
			waiter.requireWaiting(t)
			assert.Equal(t, []reentrant.Owner{waiter.Owner}, k.QueuedOwners(), way)
			time.Sleep(time.Minute)
			waiter.requireWaiting(t)
			unlock()
			require.NoError(t, <-waiter.ended, way)
		}
	})
}

// A waiter that is signalled by another process runs after that process's unlock. The inspecting methods show only the waiters of
// their own process.
func TestTckASignalFromAnotherProcessRunsAfterTheUnlock(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		other := newCondKit(t, k.backend, k.monitorKind)
		for way, wait := range allWaits(k.cond) {
			waiter := k.awaits(t, 1, wait)
			unlock := other.locked(t)
			other.requireWaiters(t)
			require.NoError(t, other.cond.Signal(t.Context()))
			waiter.requireWaiting(t)
			assert.Equal(t, []reentrant.Owner{waiter.Owner}, k.QueuedOwners(), way)
			unlock()
			require.NoError(t, <-waiter.ended, way)
		}
	})
}

// ReentrantLockTest.testHasWaitersNPE, testGetWaitQueueLengthNPE, testGetWaitingThreadsNPE, testHasWaitersIAE,
// testHasWaitersIMSE, testGetWaitQueueLengthIAE, testGetWaitQueueLengthIMSE, testGetWaitingThreadsIAE,
// testGetWaitingThreadsIMSE; the same of AbstractQueuedSynchronizerTest, and its testOwns.
func TestTckInspectingAConditionNeedsItAndItsLock(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		foreign := map[string]*reentrant.Condition{
			"another lock":                     k.make(k.session, "y").NewCondition("ready"),
			"the same lock in another process": newCondKit(t, k.backend, k.monitorKind).cond,
		}
		refused := func() {
			for name, inspect := range inspectors(k) {
				assert.ErrorContains(t, inspect(nil), "nil condition", name)
				for whose, c := range foreign {
					assert.ErrorIs(t, inspect(c), reentrant.ErrForeignCondition, "%s of %s", name, whose)
				}
			}
		}
		refused()
		for name, inspect := range inspectors(k) {
			assert.ErrorIs(t, inspect(k.cond), reentrant.ErrNotHeld, name)
		}
		unlock := k.locked(t)
		refused()
		for name, inspect := range inspectors(k) {
			assert.NoError(t, inspect(k.cond), name)
			assert.NoError(t, inspect(k.make(k.session, "x").NewCondition("ready")), "%s through another handle", name)
		}
		unlock()
	})
}

// inspectors are the methods that return the waiters of a condition.
func inspectors(k condKit) map[string]func(c *reentrant.Condition) error {
	return map[string]func(c *reentrant.Condition) error{
		"HasWaiters":      func(c *reentrant.Condition) error { _, err := k.HasWaiters(c); return err },
		"WaitQueueLength": func(c *reentrant.Condition) error { _, err := k.WaitQueueLength(c); return err },
		"WaitingOwners":   func(c *reentrant.Condition) error { _, err := k.WaitingOwners(c); return err },
	}
}

// ReentrantLockTest.testHasWaiters, testGetWaitQueueLength, testGetWaitingThreads; the same of
// AbstractQueuedSynchronizerTest, where all signalled waiters are then in the queue of the lock.
func TestTckWaitersAreSeenAsTheyAre(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		unlock := k.locked(t)
		k.requireWaiters(t)
		unlock()
		t1 := k.awaits(t, 1, k.cond.Await)
		t2 := k.awaits(t, 1, func(ctx context.Context) error {
			k.requireWaiters(t, t1)
			return k.cond.Await(ctx)
		})
		unlock = k.locked(t)
		k.requireWaiters(t, t1, t2)
		require.NoError(t, k.cond.SignalAll(t.Context()))
		k.requireWaiters(t)
		synctest.Wait()
		k.requireWaiters(t)
		queue := []reentrant.Owner{t1.Owner, t2.Owner}
		if k.fair {
			assert.Equal(t, queue, k.QueuedOwners())
		} else { // they queue in the order in which their goroutines run
			assert.ElementsMatch(t, queue, k.QueuedOwners())
		}
		unlock()
		require.NoError(t, <-t1.ended)
		require.NoError(t, <-t2.ended)
	})
}

// ReentrantLockTest.testAwaitUninterruptibly, AbstractQueuedSynchronizerTest.testAwaitUninterruptibly. One waiter is
// cancelled before it waits, another while it waits.
func TestTckAwaitUninterruptiblyIgnoresItsContext(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		deaf := func(ctx context.Context) error {
			err := k.cond.AwaitUninterruptibly(ctx)
			assert.ErrorIs(t, ctx.Err(), context.Canceled, "the interrupt is remembered")
			return err
		}
		before := k.awaits(t, 1, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return deaf(ctx)
		})
		while := k.awaits(t, 1, deaf)
		while.interrupt()
		before.requireWaiting(t)
		while.requireWaiting(t)
		unlock := k.locked(t)
		k.requireWaiters(t, before, while)
		require.NoError(t, k.cond.SignalAll(t.Context()))
		unlock()
		require.NoError(t, <-before.ended)
		require.NoError(t, <-while.ended)
	})
}

// ReentrantLockTest.testInterruptible_await, testInterruptible_awaitTimed, testInterruptible_awaitNanos,
// testInterruptible_awaitUntil; the same of AbstractQueuedSynchronizerTest. What awaits checks is what Java's test checks
// in its finally.
func TestTckACancelledWaitEndsWithTheLock(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for way, wait := range waits(k.cond) {
			waiter := k.awaits(t, 3, wait)
			waiter.interrupt()
			require.ErrorIs(t, <-waiter.ended, context.Canceled, way)
		}
	})
}

// nearlyALease is how long, at least, a wait that has ended still waits for the lock.
const nearlyALease = reentrant.DefaultLease - time.Second

// Not in Java's tests: a wait that ends without a signal waits for the lock like any other call, for a lease.
func TestTckAnEndedWaitWaitsForTheLock(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for from, holder := range signallers(t, k) {
			for way, wait := range waits(k.cond) {
				waiter := k.awaits(t, 3, wait)
				unlock := holder.locked(t)
				want := context.Canceled
				switch way {
				case "Await":
					waiter.interrupt()
				case "AwaitFor":
					want = errTimeUp
					time.Sleep(time.Minute)
				case "Await until":
					want = context.DeadlineExceeded
					time.Sleep(time.Minute)
				}
				time.Sleep(nearlyALease)
				waiter.requireWaiting(t)
				assert.Equal(t, []reentrant.Owner{waiter.Owner}, k.QueuedOwners(), "%s, held by %s", way, from)
				holder.requireWaiters(t)
				unlock()
				require.ErrorIs(t, <-waiter.ended, want, "%s, held by %s", way, from)
			}
		}
	})
}

// ReentrantLockTest.testSignalAll_await, testSignalAll_awaitTimed, testSignalAll_awaitNanos, testSignalAll_awaitUntil;
// the same of AbstractQueuedSynchronizerTest.
func TestTckSignalAllWakesAll(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for from, signaller := range signallers(t, k) {
			for way, wait := range allWaits(k.cond) {
				t1, t2 := k.awaits(t, 1, wait), k.awaits(t, 1, wait)
				unlock := k.locked(t)
				k.requireWaiters(t, t1, t2)
				unlock()
				unlock = signaller.locked(t)
				require.NoError(t, signaller.cond.SignalAll(t.Context()))
				t1.requireWaiting(t)
				t2.requireWaiting(t)
				signaller.requireWaiters(t)
				unlock()
				require.NoError(t, <-t1.ended, "%s, signalled from %s", way, from)
				require.NoError(t, <-t2.ended, "%s, signalled from %s", way, from)
			}
		}
	})
}

// ReentrantLockTest.testSignalWakesFifo.
func TestTckSignalsGoToTheLongestWaiter(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		t1, t2 := k.awaits(t, 1, k.cond.Await), k.awaits(t, 1, k.cond.Await)
		unlock := k.locked(t)
		assert.False(t, k.HasQueuedOwners())
		require.NoError(t, k.cond.Signal(t.Context()))
		k.requireWaiters(t, t2)
		k.requireQueue(t, t1)
		require.NoError(t, k.cond.Signal(t.Context()))
		k.requireWaiters(t)
		k.requireQueue(t, t1, t2)
		unlock()
		require.NoError(t, <-t1.ended)
		require.NoError(t, <-t2.ended)
	})
}

// Not in Java's tests: a signalled waiter queues behind the owners that already wait for the lock.
func TestTckASignalledWaiterQueuesBehindOthers(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		waiter := k.awaits(t, 1, k.cond.Await)
		unlock := k.locked(t)
		early := k.queues(t)
		require.NoError(t, k.cond.Signal(t.Context()))
		synctest.Wait()
		late := k.queues(t)
		k.requireQueue(t, early, waiter, late)
		unlock()
		for _, th := range []thread{early, waiter, late} {
			require.NoError(t, <-th.ended)
		}
	})
}

// ReentrantLockTest.testAwaitLockCount.
func TestTckEachWaiterHasItsOwnHoldsBack(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for from, signaller := range signallers(t, k) {
			t1, t2 := k.awaits(t, 1, k.cond.Await), k.awaits(t, 2, k.cond.Await)
			unlock := signaller.locked(t)
			assert.Equal(t, 1, signaller.HoldCount(t.Context()), "nothing is left of what the waiters gave up")
			require.NoError(t, signaller.cond.SignalAll(t.Context()))
			unlock()
			require.NoError(t, <-t1.ended, from)
			require.NoError(t, <-t2.ended, from)
		}
	})
}

// ReentrantLockTest.testBug8187408. Waits without the lock are refused, and do not disturb the owners that have it.
func TestTckAnAwaitWithoutTheLockDisturbsNoOwner(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for n := 2; n < 10; n++ {
			var rogue, all sync.WaitGroup
			attack := func() {
				rogue.Go(func() {
					for range 100 {
						assert.ErrorIs(t, k.cond.Await(t.Context()), reentrant.ErrNotHeld)
					}
				})
			}
			attack()
			for range n {
				all.Go(func() { assert.NoError(t, k.sleep(t, t.Context(), 1, k.cond.Await)) })
			}
			rogue.Wait()
			synctest.Wait()
			attack()
			unlock := k.locked(t)
			assert.Len(t, k.waiters(t), n)
			require.NoError(t, k.cond.SignalAll(t.Context()))
			unlock()
			all.Wait()
			rogue.Wait()
		}
	})
}

// Not in Java's tests: a wait that ends after its signal counts as signalled, even if it takes a lease to acquire the
// lock.
func TestTckAWaitThatEndsAfterItsSignalIsSignalled(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for from, signaller := range signallers(t, k) {
			for way, wait := range waits(k.cond) {
				waiter := k.awaits(t, 3, wait)
				unlock := signaller.locked(t)
				require.NoError(t, signaller.cond.Signal(t.Context()))
				switch way {
				case "Await":
					waiter.interrupt()
				default:
					time.Sleep(time.Minute)
				}
				time.Sleep(nearlyALease)
				waiter.requireWaiting(t)
				unlock()
				require.NoError(t, <-waiter.ended, "%s, signalled from %s", way, from)
			}
		}
	})
}

// Not in Java's tests: a signal and a cancellation come at the same moment. Either this waiter gets the signal or
// another one does.
func TestTckNoSignalIsUsedUpByAWaiterThatLeaves(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for from, signaller := range signallers(t, k) {
			for range 20 {
				t1, t2 := k.awaits(t, 1, k.cond.Await), k.awaits(t, 1, k.cond.Await)
				unlock := signaller.locked(t)
				t1.interrupt()
				require.NoError(t, signaller.cond.Signal(t.Context()))
				unlock()
				if err := <-t1.ended; err == nil {
					t2.requireWaiting(t)
					signaller.signals(t)
				} else {
					require.ErrorIs(t, err, context.Canceled, from)
				}
				require.NoError(t, <-t2.ended, from)
			}
		}
	})
}

// Not in Java's tests: a signal skips a waiter that has left, even while that one still waits for the lock.
func TestTckASignalPassesOverAWaiterThatHasLeft(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		for from, signaller := range signallers(t, k) {
			t1, t2 := k.awaits(t, 1, k.cond.Await), k.awaits(t, 1, k.cond.Await)
			unlock := signaller.locked(t)
			t1.interrupt()
			t1.requireWaiting(t)
			require.NoError(t, signaller.cond.Signal(t.Context()))
			unlock()
			require.ErrorIs(t, <-t1.ended, context.Canceled, from)
			require.NoError(t, <-t2.ended, from)
		}
	})
}

// Not in Java's tests: a signal without a waiter is not kept.
func TestTckASignalWithoutAWaiterIsNotKept(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		unlock := k.locked(t)
		require.NoError(t, k.cond.Signal(t.Context()))
		require.NoError(t, k.cond.SignalAll(t.Context()))
		ok, err := k.cond.AwaitFor(t.Context(), time.Second)
		require.NoError(t, err)
		assert.False(t, ok)
		unlock()
	})
}

// Both of Java's tests state "we implement spurious-wakeup freedom". Also: signals of one condition do not wake waiters
// of another.
func TestTckNoWaiterWakesUnsignalled(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		waiter := k.awaits(t, 1, k.cond.Await)
		for from, s := range signallers(t, k) {
			unlock := s.locked(t)
			for _, c := range []*reentrant.Condition{s.NewCondition("other"), s.make(s.session, "y").NewCondition("ready")} {
				err := c.SignalAll(t.Context())
				assert.True(t, err == nil || errors.Is(err, reentrant.ErrNotHeld), "%v", err)
			}
			unlock()
			time.Sleep(10 * time.Minute)
			waiter.requireWaiting(t)
			newCondKit(t, memory.New(), k.monitorKind).signals(t) // a lock at another server
			waiter.requireWaiting(t)
			require.Empty(t, k.QueuedOwners(), from)
		}
		unlock := k.locked(t)
		k.requireWaiters(t, waiter)
		require.NoError(t, k.cond.Signal(t.Context()))
		unlock()
		require.NoError(t, <-waiter.ended)
	})
}

// JDK-6460501: waits that end without a signal leave nothing behind, while others wait all the time.
func TestTckTimedWaitsLeaveNothingBehind(t *testing.T) {
	condKits(t, func(t *testing.T, k condKit) {
		patient := k.awaits(t, 1, k.cond.Await)
		for range 20 {
			var timed []thread
			for range 3 {
				timed = append(timed, k.awaits(t, 1, func(ctx context.Context) error {
					return timely(k.cond.AwaitFor(ctx, time.Millisecond))
				}))
			}
			for _, th := range timed {
				require.ErrorIs(t, <-th.ended, errTimeUp)
			}
			unlock := k.locked(t)
			k.requireWaiters(t, patient)
			k.requireQueue(t)
			unlock()
		}
		unlock := k.locked(t)
		require.NoError(t, k.cond.Signal(t.Context()))
		k.requireWaiters(t)
		unlock()
		require.NoError(t, <-patient.ended)
	})
}

// Covered by tests of other files:
//
//   - await with a context that has ended, held or not (the order of Java's checks): TestTckAnEndedContextWinsOverEverything,
//     TestConditionsNeedTheLock
//   - await at the maximum of holds: TestTckHoldsEndAtTheMaximum
//   - a wait that cannot have the lock again (JDK-8325397): TestAnAwaitThatCannotComeBackEndsTheContextOfDo,
//     TestAwaitThatWouldExceedTheLimitOfHoldsLosesThem, TestClosePassesASignalOn
//   - signalAll keeps the order of arrival on a fair lock: TestSignalAllKeepsTheOrderOfArrival
//   - a signal and a time limit that cross under faults: TestAWithdrawalThatIsRepeatedSpendsNoSignal,
//     TestABeatDoesNotAcknowledgeWhatItReports

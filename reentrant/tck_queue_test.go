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

// requireQueue checks the results of all methods that return the waiters of the lock.
func (k kit) requireQueue(t *testing.T, all []thread, want ...thread) {
	t.Helper()
	synctest.Wait()
	var owners []reentrant.Owner
	for _, th := range want {
		owners = append(owners, th.Owner)
	}
	require.Equal(t, owners, k.QueuedOwners())
	require.Equal(t, len(want), k.QueueLength())
	require.Equal(t, len(want) > 0, k.HasQueuedOwners())
	for _, th := range all {
		queued := false
		for _, w := range want {
			queued = queued || w.Owner == th.Owner
		}
		require.Equal(t, queued, k.HasQueuedOwner(th.Owner))
	}
	require.False(t, k.HasQueuedOwner(reentrant.CurrentOwner(t.Context())), "the holder does not wait")
	require.False(t, k.HasQueuedOwner(reentrant.Owner{}), "the zero owner does not wait")
}

// Two threads wait, the first leaves, and the second gets the lock.
func TestTckTheQueueIsSeenAsItIs(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		k.requireQueue(t, nil)
		unlock := k.locked(t)
		k.requireQueue(t, nil)
		t1 := k.queues(t)
		k.requireQueue(t, []thread{t1}, t1)
		t2 := k.queues(t)
		both := []thread{t1, t2}
		k.requireQueue(t, both, t1, t2)
		t1.interrupt()
		require.ErrorIs(t, <-t1.ended, context.Canceled)
		k.requireQueue(t, both, t2)
		unlock()
		require.NoError(t, <-t2.ended)
		k.requireQueue(t, both)
	})
}

// Without newcomers an unfair lock goes round in order of arrival too.
func TestTckTheLockGoesRoundInOrderOfArrival(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		var order []int // guarded by the lock
		var threads []thread
		for i := range 40 {
			threads = append(threads, start(t, func(ctx context.Context) error {
				return k.Do(ctx, func(context.Context) error {
					order = append(order, i)
					return nil
				})
			}))
		}
		require.Empty(t, order)
		unlock()
		for _, th := range threads {
			require.NoError(t, <-th.ended)
		}
		require.Len(t, order, len(threads))
		require.IsIncreasing(t, order)
	})
}

// Even if running threads acquire the lock again at once and always, a waiter gets it in the end: on a fair lock it is
// the next, on an unfair one a bounded number of others come first.
func TestTckNoOwnerWaitsForEver(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		unlock := k.locked(t)
		waiter := k.queues(t)
		rounds := 0
		for k.HasQueuedOwners() {
			unlock()
			unlock = k.locked(t)
			rounds++
			require.LessOrEqual(t, rounds, 17, "the waiter was overtaken more often than the bound")
			if k.fair {
				require.Empty(t, k.QueuedOwners(), "the waiter's turn came first")
			}
		}
		require.NoError(t, <-waiter.ended)
		unlock()
	})
}

// Waiters that leave at the same moment leave no dead node that would keep others out.
func TestTckWaitersThatLeaveTogetherBlockNoOthers(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		for range 20 {
			unlock := k.locked(t)
			t1, t2 := k.queues(t), k.queues(t)
			t1.interrupt()
			t2.interrupt()
			require.ErrorIs(t, <-t1.ended, context.Canceled)
			require.ErrorIs(t, <-t2.ended, context.Canceled)
			unlock()
			k.requireQueue(t, nil)
			ok, err := k.TryLockFor(t.Context(), 0) // which does not barge on a fair lock
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, k.Unlock(t.Context()))
		}
	})
}

// Redis refuses the attempt of the head of the queue. That waiter gets Redis's error, even if it was cancelled at the
// same moment, and the next one gets the lock.
func TestTckARefusedHeadGetsTheErrorAndTheNextTheLock(t *testing.T) {
	for name, cancelled := range map[string]bool{"only refused": false, "refused and cancelled": true} {
		t.Run(name, func(t *testing.T) {
			kits(t, func(t *testing.T, k kit) {
				unlock := k.locked(t)
				t1, t2 := k.queues(t), k.queues(t)
				k.requireQueue(t, []thread{t1, t2}, t1, t2)
				refuse := memory.Script(memory.Acquire, memory.Refuse("OOM command not allowed"))
				k.backend.SetFault(func(op memory.Op) memory.Verdict {
					v := refuse(op)
					if cancelled && v.Refused != "" {
						t1.interrupt() // at the moment at which it is the head
					}
					return v
				})
				unlock()
				err := <-t1.ended
				assert.ErrorContains(t, err, "OOM command not allowed")
				assert.True(t, backend.Refused(err))
				require.NoError(t, <-t2.ended)
			})
		})
	}
}

// The head leaves at the moment at which the lock becomes free: the next waiter must not miss that.
func TestTckALeavingHeadWakesTheNext(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		for range 20 {
			unlock := k.locked(t)
			t1, t2 := k.queues(t), k.queues(t)
			t1.interrupt()
			unlock()
			if err := <-t1.ended; err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			select {
			case err := <-t2.ended:
				require.NoError(t, err)
			case <-time.After(10 * time.Millisecond):
				require.Fail(t, "the next one was not woken")
			}
		}
	})
}

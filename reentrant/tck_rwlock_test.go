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

// What the JDK's ReentrantReadWriteLockTest checks, as far as it applies. docs/divergence.md has the list, case by case.

// An rwKit is what a case works with: a read-write lock, and the same lock as other owners have it, in the same session or
// in another.
type rwKit struct {
	*reentrant.RWLock
	others *reentrant.RWLock
}

// rwKits runs a case with the others in the same session, and in another. A case leaves the lock free and no owner waiting.
func rwKits(t *testing.T, f func(t *testing.T, k rwKit)) {
	t.Helper()
	for name, apart := range map[string]bool{"OneSession": false, "TwoSessions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				k := rwKit{RWLock: newSession(t, b).NewRWLock("x")}
				k.others = k.RWLock
				if apart {
					k.others = newSession(t, b).NewRWLock("x")
				}
				f(t, k)
				synctest.Wait()
				for _, l := range []*reentrant.RWLock{k.RWLock, k.others} {
					assert.Empty(t, l.QueuedOwners())
					assert.Zero(t, l.ReadLockCount())
				}
				writing, err := k.IsWriteLocked(t.Context())
				require.NoError(t, err)
				assert.False(t, writing)
			})
		})
	}
}

// writes starts another owner that takes the write side once and gives it back.
func (k rwKit) writes(t *testing.T) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := k.others.Lock(ctx); err != nil {
			return err
		}
		return k.others.Unlock(ctx)
	})
}

// reads starts another owner that takes the read side once and gives it back.
func (k rwKit) reads(t *testing.T) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := k.others.RLock(ctx); err != nil {
			return err
		}
		return k.others.RUnlock(ctx)
	})
}

func TestTckANewRWLockIsFree(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		assert.Zero(t, k.HoldCount(t.Context()))
		assert.Zero(t, k.ReadHoldCount(t.Context()))
		assert.Zero(t, k.ReadLockCount())
		assert.False(t, k.IsHeldByCurrentOwner(t.Context()))
		assert.False(t, k.HasQueuedOwners())
	})
}

func TestTckEachSideIsHeldUntilItsUnlock(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		assert.True(t, k.IsHeldByCurrentOwner(ctx))
		elsewhere(t, func(ctx context.Context) {
			assert.False(t, k.others.IsHeldByCurrentOwner(ctx))
			writing, err := k.others.IsWriteLocked(ctx)
			assert.NoError(t, err)
			assert.True(t, writing)
		})
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, k.RLock(ctx))
		assert.Equal(t, 1, k.ReadLockCount())
		writing, err := k.IsWriteLocked(ctx)
		require.NoError(t, err)
		assert.False(t, writing)
		require.NoError(t, k.RUnlock(ctx))
	})
}

func TestTckHoldsOfEachSideAreCounted(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		const holds = 20
		for i := range holds {
			require.NoError(t, k.Lock(ctx))
			require.NoError(t, k.RLock(ctx))
			assert.Equal(t, i+1, k.HoldCount(ctx))
			assert.Equal(t, i+1, k.ReadHoldCount(ctx))
			elsewhere(t, func(ctx context.Context) { assert.Zero(t, k.others.ReadHoldCount(ctx)) })
		}
		for i := holds; i > 0; i-- {
			assert.Equal(t, i, k.HoldCount(ctx))
			assert.Equal(t, i, k.ReadHoldCount(ctx))
			require.NoError(t, k.RUnlock(ctx))
			require.NoError(t, k.Unlock(ctx))
		}
	})
}

func TestTckOnlyTheOwnerOfASideGivesItUp(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		assert.ErrorIs(t, k.Unlock(ctx), reentrant.ErrNotHeld)
		assert.ErrorIs(t, k.RUnlock(ctx), reentrant.ErrNotHeld)
		require.NoError(t, k.Lock(ctx))
		assert.ErrorIs(t, k.RUnlock(ctx), reentrant.ErrNotHeld, "the other side")
		elsewhere(t, func(ctx context.Context) { assert.ErrorIs(t, k.others.Unlock(ctx), reentrant.ErrNotHeld) })
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, k.RLock(ctx))
		assert.ErrorIs(t, k.Unlock(ctx), reentrant.ErrNotHeld, "the other side")
		elsewhere(t, func(ctx context.Context) { assert.ErrorIs(t, k.others.RUnlock(ctx), reentrant.ErrNotHeld) })
		require.NoError(t, k.RUnlock(ctx))
	})
}

func TestTckACancelledWaiterForEitherSideLeaves(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		timed := func(take func(context.Context, time.Duration) (bool, error)) thread {
			return start(t, func(ctx context.Context) error {
				_, err := take(ctx, time.Hour)
				return err
			})
		}
		for _, waiter := range []thread{k.writes(t), k.reads(t), timed(k.others.TryLockFor), timed(k.others.TryRLockFor)} {
			waiter.requireWaiting(t)
			waiter.interrupt()
			require.ErrorIs(t, <-waiter.ended, context.Canceled)
		}
		require.NoError(t, k.Unlock(ctx))
	})
}

func TestTckTheTriesOfALockThatIsWrittenAreFalseAtOnce(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		elsewhere(t, func(ctx context.Context) {
			for _, try := range []func(context.Context) (bool, error){k.others.TryLock, k.others.TryRLock} {
				ok, err := try(ctx)
				assert.NoError(t, err)
				assert.False(t, ok)
			}
		})
		require.NoError(t, k.Unlock(ctx))
	})
}

func TestTckTheTimedTriesOfALockThatIsWrittenTakeTheirTime(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		elsewhere(t, func(ctx context.Context) {
			for _, try := range []func(context.Context, time.Duration) (bool, error){k.others.TryLockFor, k.others.TryRLockFor} {
				begun := time.Now()
				ok, err := try(ctx, time.Second)
				assert.NoError(t, err)
				assert.False(t, ok)
				assert.Equal(t, time.Second, time.Since(begun))
			}
		})
		require.NoError(t, k.Unlock(ctx))
	})
}

func TestTckReadersReadTogether(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		elsewhere(t, func(ctx context.Context) {
			require.NoError(t, k.others.RLock(ctx))
			ok, err := k.others.TryRLock(ctx)
			assert.NoError(t, err)
			assert.True(t, ok)
			require.NoError(t, k.others.RUnlock(ctx))
			require.NoError(t, k.others.RUnlock(ctx))
		})
		require.NoError(t, k.RUnlock(ctx))
	})
}

func TestTckAWriterWaitsForTheLastReader(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		require.NoError(t, k.RLock(ctx))
		elsewhere(t, func(ctx context.Context) {
			ok, err := k.others.TryLock(ctx)
			assert.NoError(t, err)
			assert.False(t, ok)
		})
		writer := k.writes(t)
		writer.requireWaiting(t)
		require.NoError(t, k.RUnlock(ctx))
		writer.requireWaiting(t)
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, <-writer.ended)
	})
}

func TestTckReadersWaitForTheWriterAndEnterTogether(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		first, second := k.reads(t), k.reads(t)
		first.requireWaiting(t)
		second.requireWaiting(t)
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, <-first.ended)
		require.NoError(t, <-second.ended)
	})
}

func TestTckAWriterReadsToo(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		require.NoError(t, k.RLock(ctx))
		ok, err := k.TryRLock(ctx)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, k.Lock(ctx))
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, k.Unlock(ctx))
	})
}

// In Java's fair mode too, an owner that has a side gets in past those that wait for it.
func TestTckAnOwnerThatIsInsideReadsPastThoseWhoWait(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		for _, writes := range []bool{false, true} {
			take, give := k.RLock, k.RUnlock
			if writes {
				take, give = k.Lock, k.Unlock
			}
			require.NoError(t, take(ctx))
			writer, reader := k.writes(t), k.reads(t)
			require.NoError(t, k.RLock(ctx))
			require.NoError(t, k.RUnlock(ctx))
			writer.requireWaiting(t)
			reader.requireWaiting(t)
			require.NoError(t, give(ctx))
			require.NoError(t, <-writer.ended)
			require.NoError(t, <-reader.ended)
		}
	})
}

func TestTckAWriterGoesOnAsAReader(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		require.NoError(t, k.RLock(ctx))
		require.NoError(t, k.Unlock(ctx))
		reader := k.reads(t)
		require.NoError(t, <-reader.ended)
		writer := k.writes(t)
		writer.requireWaiting(t)
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, <-writer.ended)
	})
}

// Java waits for ever here.
func TestTckAReaderDoesNotBecomeAWriter(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		assert.ErrorIs(t, k.Lock(ctx), reentrant.ErrUpgrade)
		_, err := k.TryLockFor(ctx, time.Hour)
		assert.ErrorIs(t, err, reentrant.ErrUpgrade)
		assert.Equal(t, 1, k.ReadHoldCount(ctx))
		require.NoError(t, k.RUnlock(ctx))
	})
}

// A try asks once, and others that wait are not passed; Java's tryLock barges.
func TestTckATryOfARWLockPassesNoWaiter(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		writer := k.writes(t)
		writer.requireWaiting(t)
		elsewhere(t, func(ctx context.Context) {
			ok, err := k.others.TryRLock(ctx)
			assert.NoError(t, err)
			assert.False(t, ok)
		})
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, <-writer.ended)
	})
}

func TestTckTheQueueOfARWLockIsSeenAsItIs(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		writer := k.writes(t)
		assert.Equal(t, []reentrant.Owner{writer.Owner}, k.others.QueuedOwners())
		reader := k.reads(t)
		assert.Equal(t, []reentrant.Owner{writer.Owner, reader.Owner}, k.others.QueuedOwners())
		assert.Equal(t, 2, k.others.QueueLength())
		assert.True(t, k.others.HasQueuedOwners())
		assert.True(t, k.others.HasQueuedOwner(writer.Owner))
		assert.False(t, k.others.HasQueuedOwner(reentrant.CurrentOwner(ctx)))
		writer.interrupt()
		require.ErrorIs(t, <-writer.ended, context.Canceled)
		assert.Equal(t, []reentrant.Owner{reader.Owner}, k.others.QueuedOwners())
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, <-reader.ended)
	})
}

func TestTckStringOfARWLockCountsBothSides(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		assert.Contains(t, k.String(), "Write locks = 0, Read locks = 0")
		require.NoError(t, k.Lock(ctx))
		assert.Contains(t, k.String(), "Write locks = 1, Read locks = 0")
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, k.RLock(ctx))
		require.NoError(t, k.RLock(ctx))
		assert.Contains(t, k.String(), "Write locks = 0, Read locks = 2")
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, k.RUnlock(ctx))
	})
}

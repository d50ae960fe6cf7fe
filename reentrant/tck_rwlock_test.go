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

// The cases of the JDK's ReentrantReadWriteLockTest, as far as they apply. testdata/jdk-tests.md has the list, case by case.

// An rwKit is what a test works with: a read-write lock, and the same lock for other owners, in the same session or in
// another.
type rwKit struct {
	*reentrant.RWLock
	others *reentrant.RWLock
}

// rwKits runs a test with the other owners in the same session, and with them in another. A test must leave the lock
// free and without waiters.
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

// writes starts another owner that acquires the write side once and releases it.
func (k rwKit) writes(t *testing.T) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := k.others.Lock(ctx); err != nil {
			return err
		}
		return k.others.Unlock(ctx)
	})
}

// reads starts another owner that acquires the read side once and releases it.
func (k rwKit) reads(t *testing.T) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := k.others.RLock(ctx); err != nil {
			return err
		}
		return k.others.RUnlock(ctx)
	})
}

// sideTakers are the ways to take either side of a lock. An attempt that finds it held returns errTaken.
func sideTakers(l *reentrant.RWLock) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Lock":           l.Lock,
		"TryLock":        func(ctx context.Context) error { return found(l.TryLock(ctx)) },
		"TryLockFor(0)":  func(ctx context.Context) error { return found(l.TryLockFor(ctx, 0)) },
		"TryLockFor":     func(ctx context.Context) error { return found(l.TryLockFor(ctx, time.Hour)) },
		"RLock":          l.RLock,
		"TryRLock":       func(ctx context.Context) error { return found(l.TryRLock(ctx)) },
		"TryRLockFor(0)": func(ctx context.Context) error { return found(l.TryRLockFor(ctx, 0)) },
		"TryRLockFor":    func(ctx context.Context) error { return found(l.TryRLockFor(ctx, time.Hour)) },
	}
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

// As in the JDK's Count: the holds of each reader are counted, and those of all readers together.
func TestTckReadHoldsOfManyOwnersAreCounted(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		var readers []context.Context
		for i := range 10 {
			readers = append(readers, owner(t, fmt.Sprint("reader ", i)))
		}
		const depth = 5
		ways := []string{"RLock", "TryRLock", "TryRLockFor"}
		for held := range depth {
			for i, ctx := range readers {
				assert.Equal(t, held, k.ReadHoldCount(ctx))
				assert.Equal(t, held*len(readers)+i, k.ReadLockCount())
				require.NoError(t, sideTakers(k.RWLock)[ways[(held+i)%len(ways)]](ctx))
			}
		}
		elsewhere(t, func(ctx context.Context) {
			ok, err := k.others.TryLock(ctx)
			assert.NoError(t, err)
			assert.False(t, ok)
		})
		for left := depth - 1; left >= 0; left-- {
			for i, ctx := range readers {
				require.NoError(t, k.RUnlock(ctx))
				assert.Equal(t, left, k.ReadHoldCount(ctx))
				assert.Equal(t, (left+1)*len(readers)-i-1, k.ReadLockCount())
				assert.Zero(t, k.HoldCount(ctx))
			}
		}
		for _, ctx := range readers {
			assert.ErrorIs(t, k.RUnlock(ctx), reentrant.ErrNotHeld)
		}
	})
}

func TestTckTheTriesOfAFreeRWLockTakeItAndReenter(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		sides := []struct {
			ways   []string
			count  func(context.Context) int
			unlock func(context.Context) error
		}{
			{[]string{"TryLock", "TryLockFor(0)", "TryLockFor"}, k.HoldCount, k.Unlock},
			{[]string{"TryRLock", "TryRLockFor(0)", "TryRLockFor"}, k.ReadHoldCount, k.RUnlock},
		}
		for _, side := range sides {
			for _, first := range side.ways {
				require.NoError(t, sideTakers(k.RWLock)[first](ctx), first)
				for i, again := range side.ways {
					require.NoError(t, sideTakers(k.RWLock)[again](ctx), again)
					assert.Equal(t, i+2, side.count(ctx), again)
				}
				for range len(side.ways) + 1 {
					require.NoError(t, side.unlock(ctx))
				}
				assert.Zero(t, side.count(ctx))
			}
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
			assert.False(t, k.others.HasQueuedOwner(waiter.Owner))
		}
		assert.Equal(t, 1, k.HoldCount(ctx), "the holder's lock is unchanged")
		require.NoError(t, k.Unlock(ctx))
	})
}

// A call under a context that has ended does nothing, re-entry included.
func TestTckAnEndedContextTakesNeitherSide(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		refused := func(state string, reads, writes int) {
			for way, take := range sideTakers(k.RWLock) {
				assert.ErrorIs(t, take(gone), context.Canceled, "%s of a lock that is %s", way, state)
			}
			assert.Equal(t, reads, k.ReadHoldCount(gone), state)
			assert.Equal(t, writes, k.HoldCount(gone), state)
		}
		refused("free", 0, 0)
		require.NoError(t, k.Lock(t.Context()))
		refused("written", 0, 1)
		elsewhere(t, func(context.Context) {
			for way, take := range sideTakers(k.others) {
				assert.ErrorIs(t, take(gone), context.Canceled, "%s of a lock that another writes", way)
			}
		})
		require.NoError(t, k.Unlock(gone), "a release is not refused")
		require.NoError(t, k.RLock(t.Context()))
		refused("read", 1, 0)
		require.NoError(t, k.RUnlock(gone))
	})
}

func TestTckATimedTryHasTheSideThatComesInTime(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		for way, unlock := range map[string]func(context.Context) error{"TryLockFor": k.others.Unlock, "TryRLockFor": k.others.RUnlock} {
			require.NoError(t, k.Lock(ctx))
			waiter := start(t, func(ctx context.Context) error {
				begun := time.Now()
				if err := sideTakers(k.others)[way](ctx); err != nil {
					return err
				}
				assert.Equal(t, time.Second, time.Since(begun), way)
				return unlock(ctx)
			})
			waiter.requireWaiting(t)
			time.Sleep(time.Second)
			require.NoError(t, k.Unlock(ctx))
			require.NoError(t, <-waiter.ended, way)
		}
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
			for _, way := range []string{"TryRLock", "TryRLockFor(0)", "TryRLockFor", "RLock"} {
				assert.NoError(t, sideTakers(k.others)[way](ctx), way)
				assert.NoError(t, k.others.RUnlock(ctx), way)
			}
			assert.Equal(t, 1, k.ReadLockCount())
		})
		require.NoError(t, k.RUnlock(ctx))
	})
}

func TestTckAWriterWaitsForTheLastReader(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		require.NoError(t, k.RLock(ctx))
		require.NoError(t, <-k.reads(t).ended, "another reader comes and goes")
		elsewhere(t, func(ctx context.Context) {
			ok, err := k.others.TryLock(ctx)
			assert.NoError(t, err)
			assert.False(t, ok)
		})
		writer := start(t, func(ctx context.Context) error {
			if err := k.others.Lock(ctx); err != nil {
				return err
			}
			assert.Zero(t, k.ReadLockCount())
			return k.others.Unlock(ctx)
		})
		writer.requireWaiting(t)
		assert.Equal(t, 2, k.ReadLockCount())
		require.NoError(t, k.RUnlock(ctx))
		writer.requireWaiting(t)
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, <-writer.ended)
	})
}

// A reader does not pass a writer that waits, not even in the session that reads.
func TestTckAReaderWaitsBehindAWriter(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		for _, readers := range []*reentrant.RWLock{k.RWLock, k.others} {
			require.NoError(t, k.RLock(ctx))
			wrote := false // guarded by the lock
			writer := start(t, func(ctx context.Context) error {
				if err := k.others.Lock(ctx); err != nil {
					return err
				}
				wrote = true
				return k.others.Unlock(ctx)
			})
			reader := start(t, func(ctx context.Context) error {
				if err := readers.RLock(ctx); err != nil {
					return err
				}
				assert.True(t, wrote)
				assert.Equal(t, 1, readers.ReadLockCount())
				return readers.RUnlock(ctx)
			})
			writer.requireWaiting(t)
			reader.requireWaiting(t)
			assert.Equal(t, 1, k.ReadLockCount())
			require.NoError(t, k.RUnlock(ctx))
			require.NoError(t, <-writer.ended)
			require.NoError(t, <-reader.ended)
		}
	})
}

func TestTckAWriterThatLeavesLetsReadersIn(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		writer, reader := k.writes(t), k.reads(t)
		writer.requireWaiting(t)
		reader.requireWaiting(t)
		writer.interrupt()
		require.ErrorIs(t, <-writer.ended, context.Canceled)
		require.NoError(t, <-reader.ended)
		require.NoError(t, k.RUnlock(ctx))
	})
}

func TestTckReadersWaitForTheWriterAndEnterTogether(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		inside, leave := make(chan struct{}, 2), make(chan struct{})
		stays := func(ctx context.Context) error {
			if err := k.others.RLock(ctx); err != nil {
				return err
			}
			inside <- struct{}{}
			<-leave
			return k.others.RUnlock(ctx)
		}
		first, second := start(t, stays), start(t, stays)
		first.requireWaiting(t)
		second.requireWaiting(t)
		assert.Empty(t, inside)
		require.NoError(t, k.Unlock(ctx))
		for range 2 {
			<-inside // before either of them leaves
		}
		close(leave)
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

// As in Java's fair mode, an owner that has a side can enter past those that wait for it.
func TestTckAnOwnerThatIsInsideReadsPastWaiters(t *testing.T) {
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

func TestTckAWriterReentersPastWaiters(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.Lock(ctx))
		writer, reader := k.writes(t), k.reads(t)
		for _, way := range []string{"Lock", "TryLock", "TryLockFor(0)", "TryLockFor"} {
			require.NoError(t, sideTakers(k.RWLock)[way](ctx), way)
			assert.Equal(t, 2, k.HoldCount(ctx), way)
			require.NoError(t, k.Unlock(ctx))
			assert.Equal(t, 1, k.HoldCount(ctx), way)
		}
		writer.requireWaiting(t)
		reader.requireWaiting(t)
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, <-writer.ended)
		require.NoError(t, <-reader.ended)
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

// A try makes one attempt and passes no waiter; Java's tryLock does pass waiters.
func TestTckATryOfARWLockPassesNoWaiter(t *testing.T) {
	rwKits(t, func(t *testing.T, k rwKit) {
		ctx := t.Context()
		require.NoError(t, k.RLock(ctx))
		writer := k.writes(t)
		writer.requireWaiting(t)
		for _, l := range []*reentrant.RWLock{k.RWLock, k.others} {
			elsewhere(t, func(ctx context.Context) {
				for _, way := range []string{"TryLock", "TryLockFor(0)", "TryRLock", "TryRLockFor(0)"} {
					assert.ErrorIs(t, sideTakers(l)[way](ctx), errTaken, way)
				}
			})
		}
		require.NoError(t, found(k.TryRLock(ctx)), "the owner that tries is inside")
		require.NoError(t, k.RUnlock(ctx))
		writer.requireWaiting(t)
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
		require.NoError(t, k.Lock(ctx))
		assert.Contains(t, k.String(), "Write locks = 2, Read locks = 0")
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, k.Unlock(ctx))
		require.NoError(t, k.RLock(ctx))
		require.NoError(t, k.RLock(ctx))
		assert.Contains(t, k.String(), "Write locks = 0, Read locks = 2")
		require.NoError(t, k.RUnlock(ctx))
		require.NoError(t, k.RUnlock(ctx))
	})
}

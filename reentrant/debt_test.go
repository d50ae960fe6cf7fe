package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// loseAll makes the sessions of b lose what they hold.
func loseAll(b *memory.Backend) {
	b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
	time.Sleep(2 * reentrant.DefaultLease)
	b.SetFault(nil)
}

// One outage takes more holds from a session than it ever had at once before. The Unlocks of the first losses are owed
// for as long as those of the last.
func TestOwedUnlocksAreNotForgottenForOtherLosses(t *testing.T) {
	const readers = 1500
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		m, l := s.NewSemaphore("permits", 1), s.NewRWLock("x")
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 1))
		time.Sleep(time.Second) // so that the permit is lost before the read sides
		owners := make([]context.Context, readers)
		for i := range owners {
			owners[i] = owner(t, fmt.Sprint(i))
			require.NoError(t, l.RLock(owners[i]))
		}
		loseAll(b)

		require.NoError(t, m.Acquire(ctx, 1), "by another caller")
		lost := m.Lost()
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrLost, "by the first caller")
		ok, err := m.TryAcquire(ctx, 1)
		require.NoError(t, err)
		require.False(t, ok, "the second caller has the permit")
		select {
		case <-lost:
			t.Fatal("the second caller got the error of a loss")
		default:
		}
		require.NoError(t, m.Release(ctx, 1))
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)

		for _, o := range owners {
			require.ErrorIs(t, l.RUnlock(o), reentrant.ErrLost)
			require.ErrorIs(t, l.RUnlock(o), reentrant.ErrNotHeld, "each caller owes one Release")
		}
	})
}

// A loss of a Lock never counts as one of an RWLock or a Semaphore, whatever the lock's name is.
func TestEachKindOfHoldIsOwedForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, ctx := newSession(t, b), t.Context()
		plain := []*reentrant.Lock{s.NewLock("\x00read\x00x"), s.NewLock("\x00write\x00x"), s.NewLock("x/plain")}
		rw, m := s.NewRWLock("x"), s.NewSemaphore("x", 1)
		for _, l := range plain {
			require.NoError(t, l.Lock(ctx))
		}
		loseAll(b)
		require.ErrorIs(t, rw.RUnlock(ctx), reentrant.ErrNotHeld)
		require.ErrorIs(t, rw.Unlock(ctx), reentrant.ErrNotHeld)
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)
		for _, l := range plain {
			require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
			require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
		}
		require.NoError(t, rw.RLock(ctx))
		loseAll(b)
		require.ErrorIs(t, rw.Unlock(ctx), reentrant.ErrNotHeld, "the owner had the read side")
		require.ErrorIs(t, rw.RUnlock(ctx), reentrant.ErrLost)
		require.ErrorIs(t, rw.RUnlock(ctx), reentrant.ErrNotHeld)
	})
}

// A Release takes no longer for many lost permits than for one. It covers lost and held permits together, or it fails
// and changes nothing.
func TestManyLostPermitsAreReleasedAtOnce(t *testing.T) {
	const many = 1 << 30
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := t.Context()
		m := newSession(t, b).NewSemaphore("x", 2*many-1)
		require.NoError(t, m.Acquire(ctx, many))
		loseAll(b)
		require.NoError(t, m.Acquire(ctx, 2))
		require.ErrorIs(t, m.Release(ctx, many+3), reentrant.ErrNotHeld)
		require.ErrorIs(t, m.Release(ctx, many+1), reentrant.ErrLost)
		require.NoError(t, m.Release(ctx, 1))
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)
	})
}

// A hold with a fixed lease may be left to expire. If many are, the session remembers only the latest.
func TestHoldsLeftToExpireAreForgotten(t *testing.T) {
	const many = 4000
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, ctx := newSession(t, b), t.Context()
		locks := make([]*reentrant.Lock, many)
		for i := range locks {
			locks[i] = s.NewLock(fmt.Sprint(i), reentrant.WithFixedLease(time.Second))
			require.NoError(t, locks[i].Lock(ctx))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, locks[0].Unlock(ctx), reentrant.ErrNotHeld)
		for _, l := range locks[many-1024:] {
			require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		}
	})
}

// Do and a Slot release their own permits: if these are not lost, the release does not count for lost permits of others.
func TestDoAndSlotsReleaseTheirOwnPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		m := newSession(t, b).NewSemaphore("x", 2)
		require.NoError(t, m.Acquire(ctx, 1))
		loseAll(b)
		require.NoError(t, m.Do(ctx, 1, func(context.Context) error { return nil }))
		ok, err := m.TryDo(ctx, 1, func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, ok)
		slot, err := m.AcquireSlot(ctx)
		require.NoError(t, err)
		lost := slot.Lost()
		require.NoError(t, slot.Release(ctx))
		require.True(t, stillOpen(lost))
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrLost, "by the caller that lost it")
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)
	})
}

// The Release of another caller has counted for the permit that a Do lost. So the permit that the Do releases is that
// caller's.
func TestADoWhoseLossWasReleasedByAnotherReleasesThatCallersPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		m := newSession(t, b).NewSemaphore("x", 1)
		require.NoError(t, m.Do(ctx, 1, func(context.Context) error {
			loseAll(b)
			require.NoError(t, m.Acquire(ctx, 1))
			require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrLost)
			return nil
		}))
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)
		require.NoError(t, m.Acquire(ctx, 1))
		require.NoError(t, m.Release(ctx, 1))
	})
}

package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// locksOf returns locks of a session with the given names.
func locksOf(s *reentrant.Session, names ...string) (locks []*reentrant.Lock) {
	for _, name := range names {
		locks = append(locks, s.NewLock(name))
	}
	return locks
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	return names
}

func TestAThousandFreeLocksTakeOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way, n = 50 * time.Millisecond, 1000
		b := memory.New()
		m := reentrant.NewMultiLock(locksOf(newSession(t, b), numbered(n)...)...)
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Verdict{Delay: way, Late: way} })
		for range 2 {
			begun := time.Now()
			require.NoError(t, m.Lock(t.Context()))
			assert.Equal(t, 2*way, time.Since(begun))
			require.True(t, m.IsHeldByCurrentOwner(t.Context()))
			begun = time.Now()
			require.NoError(t, m.Unlock(t.Context()))
			assert.Equal(t, 2*way, time.Since(begun))
		}
		assert.Equal(t, 2*n, b.Count(memory.Acquire))
		assert.Equal(t, 2*n, b.Count(memory.Release))
	})
}

// While a MultiLock waits for a lock, it holds the locks that come before it in the order of names, and none that come
// after it.
func TestAMultiLockWaitsWithoutWhatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		names := numbered(20)
		taken := two.NewLock(names[2])
		other := owner(t, "other")
		require.NoError(t, taken.Lock(other))
		m := reentrant.NewMultiLock(locksOf(one, names...)...)
		mine := owner(t, "mine")
		got := make(chan error, 1)
		go func() { got <- m.Lock(mine) }()
		synctest.Wait()
		for i, name := range names {
			l := two.NewLock(name)
			ok, err := l.TryLock(other)
			require.NoError(t, err)
			assert.Equal(t, i >= 2, ok, name)
			if ok {
				require.NoError(t, l.Unlock(other))
			}
		}
		require.NoError(t, taken.Unlock(other))
		require.NoError(t, <-got)
		assert.Equal(t, 1, m.HoldCount(mine))
		require.NoError(t, m.Unlock(mine))
		assert.Zero(t, m.HoldCount(mine))
	})
}

// A sweep that re-entered a lock which the owner already had releases only that hold.
func TestASweepLeavesWhatTheOwnerHadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		names := numbered(20)
		require.NoError(t, two.NewLock(names[1]).Lock(owner(t, "other")))
		mine := owner(t, "mine")
		l := one.NewLock(names[2])
		require.NoError(t, l.Lock(mine))
		m := reentrant.NewMultiLock(locksOf(one, names...)...)
		ok, err := m.TryLockFor(mine, time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		assert.Equal(t, 1, l.HoldCount(mine))
		assert.False(t, one.NewLock(names[0]).IsHeldByCurrentOwner(mine))
		require.NoError(t, l.Unlock(mine))
	})
}

// Five processes of 20 owners each want 20 of 200 locks, chosen at random: no lock has two owners at once, and all owners
// end.
func TestRandomSetsOfLocksNeverDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		names := numbered(200)
		inside := make([]atomic.Int32, len(names))
		var owners sync.WaitGroup
		for range 5 {
			s := newSession(t, b)
			for i := range 20 {
				owners.Go(func() {
					ctx := owner(t, fmt.Sprint(i))
					random := rand.New(rand.NewPCG(uint64(i), 7))
					for range testsize.Of(10, 4) {
						set := random.Perm(len(names))[:20]
						var wants []string
						for _, n := range set {
							wants = append(wants, names[n])
						}
						m := reentrant.NewMultiLock(locksOf(s, wants...)...)
						if !assert.NoError(t, m.Lock(ctx)) {
							return
						}
						for _, n := range set {
							assert.EqualValues(t, 1, inside[n].Add(1), "two owners are inside")
						}
						time.Sleep(time.Millisecond)
						for _, n := range set {
							inside[n].Add(-1)
						}
						assert.NoError(t, m.Unlock(ctx))
					}
				})
			}
		}
		owners.Wait()
	})
}

// If a server refuses one lock of many, the call returns, and does not wait.
func TestAPassReturnsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m := reentrant.NewMultiLock(locksOf(newSession(t, b), numbered(20)...)...)
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Acquire && op.Lock == "n0001" {
				return memory.Refuse("NOPERM")
			}
			return memory.Pass
		})
		err := m.Lock(t.Context())
		assert.ErrorContains(t, err, `"n0001"`)
		assert.True(t, reentrant.Refused(err))
		b.SetFault(nil)
		synctest.Wait()
		assert.Zero(t, m.HoldCount(t.Context()))
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

// If an attempt of a sweep may have been carried out, the outcome is reported as unknown, even if the wait for the lock
// ends with another error.
func TestASweepKeepsAnUnknownOutcomeInMind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m := reentrant.NewMultiLock(locksOf(newSession(t, b), numbered(20)...)...)
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Lock != "n0000":
				return memory.Pass
			case op.Verb == memory.Acquire && op.Try == 1:
				return memory.LoseReply
			}
			return memory.Lose
		})
		ctx, cancel := context.WithTimeout(owner(t, "a"), time.Second)
		defer cancel()
		err := m.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, reentrant.OutcomeUnknown(err))
		b.SetFault(nil)
	})
}

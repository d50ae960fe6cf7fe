package reentrant_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestConditionsNeedTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		c := l.NewCondition("ready")
		assert.ErrorIs(t, c.Await(t.Context()), reentrant.ErrNotHeld)
		_, err := c.AwaitFor(t.Context(), time.Second)
		assert.ErrorIs(t, err, reentrant.ErrNotHeld)
		assert.ErrorIs(t, c.AwaitUninterruptibly(t.Context()), reentrant.ErrNotHeld)
		assert.ErrorIs(t, c.Signal(t.Context()), reentrant.ErrNotHeld)
		assert.ErrorIs(t, c.SignalAll(t.Context()), reentrant.ErrNotHeld)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, c.Await(ended), context.Canceled, "a context that has ended comes first, as an interrupt does in Java")
		defer lockFor(t, t.Context(), l)()
		assert.ErrorIs(t, c.Await(ended), context.Canceled)
		assert.Equal(t, 1, l.HoldCount(t.Context()), "the holds are unchanged")
	})
}

func TestInspectingConditionsChecksInJavasOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l, other := s.NewLock("x"), s.NewLock("y")
		_, err := l.HasWaiters(nil)
		assert.ErrorContains(t, err, "nil condition")
		_, err = l.WaitQueueLength(other.NewCondition("ready"))
		assert.ErrorIs(t, err, reentrant.ErrForeignCondition)
		_, err = l.WaitingOwners(l.NewCondition("ready"))
		assert.ErrorIs(t, err, reentrant.ErrNotHeld)
	})
}

// The inspecting methods show exactly the waiters of a condition, while they wait, after the signal, and when they
// return.
func TestWaitersAreSeenUntilTheyAreSignalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		c := l.NewCondition("ready")
		var wg sync.WaitGroup
		var owners []context.Context
		for _, name := range []string{"t1", "t2"} {
			ctx := reentrant.WithOwner(t.Context(), name)
			owners = append(owners, ctx)
			wg.Go(func() {
				unlock := lockFor(t, ctx, l)
				assert.NoError(t, c.Await(ctx))
				unlock()
			})
			synctest.Wait()
		}
		require.NoError(t, l.Lock(t.Context()))
		waiting, err := l.WaitingOwners(c)
		require.NoError(t, err)
		assert.Equal(t, []reentrant.Owner{reentrant.CurrentOwner(owners[0]), reentrant.CurrentOwner(owners[1])}, waiting)
		assert.False(t, l.HasQueuedOwners(), "the owners wait for the condition, not for the lock")

		require.NoError(t, c.Signal(t.Context()))
		n, err := l.WaitQueueLength(c)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "at once")
		synctest.Wait()
		assert.True(t, l.HasQueuedOwner(reentrant.CurrentOwner(owners[0])), "the longest waiter now waits for the lock")
		require.NoError(t, c.SignalAll(t.Context()))
		has, err := l.HasWaiters(c)
		require.NoError(t, err)
		assert.False(t, has)
		require.NoError(t, l.Unlock(t.Context()))
		wg.Wait()
	})
}

func TestAwaitRestoresAllHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, other := newSession(t, b), newSession(t, b)
		l := a.NewLock("x")
		for range 3 {
			require.NoError(t, l.Lock(t.Context()))
		}
		c := l.NewCondition("ready")
		ok, err := c.AwaitFor(t.Context(), -time.Second)
		require.NoError(t, err)
		assert.False(t, ok, "although the time was up, the lock was given up and taken again")
		assert.Equal(t, 3, l.HoldCount(t.Context()))

		go func() {
			o := other.NewLock("x")
			unlock := lockFor(t, t.Context(), o)
			assert.NoError(t, o.NewCondition("ready").Signal(t.Context()), "in every process, an equal name means the same condition")
			unlock()
		}()
		require.NoError(t, c.Await(t.Context()))
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, st.Holds)
		assert.Equal(t, 3, l.HoldCount(t.Context()))
		for range 3 {
			require.NoError(t, l.Unlock(t.Context()))
		}
	})
}

func TestAwaitUninterruptiblyIsNotEndedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		c := l.NewCondition("ready")
		ctx, cancel := context.WithCancel(reentrant.WithOwner(t.Context(), "deaf"))
		returned := make(chan error)
		go func() {
			assert.NoError(t, l.Lock(ctx))
			returned <- c.AwaitUninterruptibly(ctx)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		unlock := lockFor(t, t.Context(), l)
		n, err := l.WaitQueueLength(c)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "the owner still waits")
		require.NoError(t, c.Signal(t.Context()))
		unlock()
		require.NoError(t, <-returned)
		assert.Equal(t, 1, l.HoldCount(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

// A bounded buffer over three sessions, with two conditions, under a storm of faults: every item comes out once, in the
// order in which it went in, and no goroutine waits for ever.
func TestABoundedBufferLosesAndDoublesNothing(t *testing.T) {
	for seed := range uint64(10) {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { buffer(t, seed) })
		})
	}
}

func buffer(t *testing.T, seed uint64) {
	server := memory.New(memory.WithFault(unruly(seed)))
	b := &boundedBuffer{t: t}
	var workers sync.WaitGroup
	for range 3 {
		l := newSession(t, server).NewLock("buffer")
		s := &bufferSession{b, l, l.NewCondition("not full"), l.NewCondition("not empty")}
		workers.Go(s.produce)
		workers.Go(s.consume)
	}
	workers.Wait()
	for i, item := range b.out {
		require.Equal(t, i, item)
	}
	assert.Len(t, b.out, bufferItems)
}

// unruly returns a fault that loses, delays and doubles some of the commands and messages.
func unruly(seed uint64) memory.Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 2))
	return func(op memory.Op) memory.Verdict {
		mu.Lock()
		defer mu.Unlock()
		d := time.Duration(random.IntN(300)) * time.Millisecond
		switch n := random.IntN(40); {
		case n == 0 && op.Verb != memory.Connect:
			return memory.LoseReply
		case n == 1 && op.Verb == memory.Push:
			return memory.Lose
		case n == 2:
			return memory.DelayReply(d)
		case n == 3 && op.Verb != memory.Connect:
			return memory.Duplicate(d)
		}
		return memory.Pass
	}
}

const bufferItems, bufferCapacity = 60, 3

// A boundedBuffer is guarded by the lock under test.
type boundedBuffer struct {
	t          *testing.T
	next       int // the next item
	stock, out []int
	inside     int
}

func (b *boundedBuffer) hasRoom() bool { return len(b.stock) < bufferCapacity || b.next == bufferItems }
func (b *boundedBuffer) hasItem() bool { return len(b.stock) > 0 || len(b.out) == bufferItems }

// put puts the next item in, and returns false if there is none left.
func (b *boundedBuffer) put() bool {
	if b.next == bufferItems {
		return false
	}
	b.stock = append(b.stock, b.next)
	b.next++
	return true
}

// take takes an item out, and returns false if all were taken.
func (b *boundedBuffer) take() bool {
	if len(b.out) == bufferItems {
		return false
	}
	b.out = append(b.out, b.stock[0])
	b.stock = b.stock[1:]
	return true
}

// A bufferSession is the buffer as one session uses it.
type bufferSession struct {
	*boundedBuffer
	lock              *reentrant.Lock
	notFull, notEmpty *reentrant.Condition
}

func (s *bufferSession) produce() {
	for s.turn(s.hasRoom, s.notFull, s.put, s.notEmpty) {
	}
}

func (s *bufferSession) consume() {
	for s.turn(s.hasItem, s.notEmpty, s.take, s.notFull) {
	}
}

// turn waits until ready returns true, calls work under the lock, wakes a waiter, and reports whether there is more to do.
func (s *bufferSession) turn(ready func() bool, wait *reentrant.Condition, work func() bool, wake *reentrant.Condition) bool {
	ctx := s.t.Context()
	require.NoError(s.t, s.lock.Lock(ctx))
	for !ready() {
		require.NoError(s.t, wait.Await(ctx))
	}
	s.inside++
	assert.Equal(s.t, 1, s.inside, "no other owner is inside")
	more := work()
	s.inside--
	if more {
		require.NoError(s.t, wake.Signal(ctx))
	} else {
		require.NoError(s.t, s.notFull.SignalAll(ctx))
		require.NoError(s.t, s.notEmpty.SignalAll(ctx))
	}
	if err := s.lock.Unlock(ctx); err != nil {
		assert.True(s.t, backend.OutcomeUnknown(err), "%v", err)
	}
	return more
}

// A server wakes many waiters in batches. SignalAll repeats its command until all of them are woken.
func TestSignalAllWakesMoreThanOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 250
		var woken atomic.Int32
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		c := l.NewCondition("ready")
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if l.Do(t.Context(), c.Await) == nil {
					woken.Add(1)
				}
			})
			synctest.Wait()
		}
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, c.SignalAll(t.Context()))
		has, err := l.HasWaiters(c)
		require.NoError(t, err)
		require.False(t, has)
		assert.Equal(t, 3, b.Count(memory.Signal))
		require.NoError(t, l.Unlock(t.Context()))
		wg.Wait()
		assert.EqualValues(t, waiters, woken.Load())
	})
}

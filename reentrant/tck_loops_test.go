package reentrant_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
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

// These are the loops that Java runs in addition to its tests. Here goroutines of two processes run them.

// A guarded value is written in two places, which are equal as long as only one owner at a time is inside.
type guarded struct {
	*testing.T
	value, check uint32
	times        int
}

const checkMask = 0x55555555

func newGuarded(t *testing.T) *guarded { return &guarded{T: t, check: checkMask} }

// change is called with the lock held. It lets other goroutines run in between.
func (g *guarded) change() {
	if g.value^checkMask != g.check {
		g.Errorf("another owner is inside: %x and %x", g.value, g.check)
	}
	g.value = g.value*1664525 + 1013904223
	g.times++
	runtime.Gosched()
	g.check = g.value ^ checkMask
}

// crowd runs f in n goroutines, half of them in another process, and waits for all. The other process leaves nothing
// behind.
func (k kit) crowd(t *testing.T, n int, f func(ctx context.Context, k kit, i int)) {
	t.Helper()
	other := newKit(t, k.backend, k.fair)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(t.Context(), []kit{k, other}[i%2], i) })
	}
	all.Wait()
	synctest.Wait()
	assert.Zero(t, reentrant.Entries(other.session))
}

// CheckedLockLoops and SimpleReentrantLockLoops.
func TestTckLoopOfNestedLocks(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const each = 600
		for threads := 1; threads <= 5; threads++ {
			value := newGuarded(t)
			k.crowd(t, threads, func(ctx context.Context, k kit, i int) {
				for n := range each / threads {
					depth := 1 + (n+i)%3
					for range depth {
						assert.NoError(t, k.Lock.Lock(ctx))
					}
					value.change()
					for range depth {
						assert.NoError(t, k.Unlock(ctx))
					}
				}
			})
			assert.Equal(t, each/threads*threads, value.times)
		}
	})
}

// FlakyMutex: Redis refuses three of ten attempts. A waiter whose attempt is refused gets Redis's error, and the next
// waiter its turn.
func TestTckLoopWhileRedisRefuses(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const threads, each = 3, 150
		refused := k.refuse(3, 10)
		value := newGuarded(t)
		k.crowd(t, threads, func(ctx context.Context, k kit, i int) {
			stranger := reentrant.WithOwner(ctx, "stranger "+strconv.Itoa(i))
			for range each {
				err := k.Lock.Lock(ctx)
				for ; err != nil; err = k.Lock.Lock(ctx) {
					assert.True(t, backend.Refused(err), "%v", err)
				}
				value.change()
				ok, err := k.TryLock(stranger)
				assert.NoError(t, err)
				assert.False(t, ok)
				ok, err = k.TryLockFor(stranger, time.Microsecond)
				assert.NoError(t, err)
				assert.False(t, ok)
				value.change()
				assert.NoError(t, k.Unlock(ctx))
			}
		})
		assert.Equal(t, 2*threads*each, value.times)
		assert.Greater(t, refused.Load(), int64(threads*each/10), "no attempt was refused")
	})
}

// refuse makes Redis refuse a part of the attempts, at random, and counts them.
func (k kit) refuse(some, of int) *atomic.Int64 {
	var refused atomic.Int64
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 4))
	k.backend.SetFault(func(op memory.Op) memory.Verdict {
		mu.Lock()
		defer mu.Unlock()
		if op.Verb != memory.Acquire || random.IntN(of) >= some {
			return memory.Pass
		}
		refused.Add(1)
		return memory.Refuse("OOM command not allowed")
	})
	return &refused
}

// TimedAcquireLeak: tries whose time limit is zero leave nothing behind, neither in a queue nor on the heap.
func TestTckLoopOfTimedTriesLeaksNothing(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const threads, each = 4, 250
		unlock := k.locked(t)
		objects := func() uint64 {
			k.crowd(t, threads, func(ctx context.Context, k kit, i int) {
				for range each {
					ok, err := k.TryLockFor(ctx, time.Duration(100+200*i))
					assert.NoError(t, err)
					assert.False(t, ok)
				}
			})
			k.requireQueue(t, nil)
			st, err := k.Inspect(t.Context())
			require.NoError(t, err)
			assert.Empty(t, st.Waiting)
			return heapObjects()
		}
		const most = threads * each / 4
		objects()
		grown := int64(math.MaxInt64)
		for round := 0; round < 10 && grown >= most; round++ { // the runtime keeps stopped timers for a while
			before := objects()
			grown = min(grown, int64(objects()-before))
		}
		assert.Less(t, grown, int64(most), "at least every fourth try leaves an object on the heap")
		unlock()
	})
}

// heapObjects collects all garbage, and returns how many objects are left.
func heapObjects() uint64 {
	runtime.GC()
	runtime.GC() // objects that the first collection left to finalizers and pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}

// CancelledLockLoops: all threads but two are interrupted, one after the other, wherever they are. Those two complete.
func TestTckLoopWhoseThreadsAreInterrupted(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const each, work = 30, 100 * time.Microsecond
		value := newGuarded(t)
		done := 0 // guarded by the lock, as value is
		other := newKit(t, k.backend, k.fair)
		var threads []thread
		for i := range 8 {
			k := []kit{k, other}[i%2]
			threads = append(threads, start(t, func(ctx context.Context) error {
				for range each {
					if err := k.Lock.Lock(ctx); err != nil {
						return err
					}
					done++
					value.change()
					time.Sleep(work)
					assert.NoError(t, k.Unlock(ctx))
				}
				return nil
			}))
		}
		last := len(threads) - 2
		for _, th := range threads[:last] {
			time.Sleep(work * 3 / 2)
			th.interrupt()
		}
		for _, th := range threads[:last] {
			assert.ErrorIs(t, <-th.ended, context.Canceled)
		}
		for _, th := range threads[last:] {
			assert.NoError(t, <-th.ended)
		}
		assert.Equal(t, done, value.times)
		assert.GreaterOrEqual(t, done, 2*each)
		synctest.Wait()
		assert.Zero(t, reentrant.Entries(other.session))
	})
}

// TimeoutLockLoops: threads use timed tries in a loop, until one of them acquires the lock and keeps it. Then all
// others give up.
func TestTckLoopOfTimedTriesUntilTheLockIsJammed(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const patience, work = 10 * time.Millisecond, 20 * time.Microsecond
		value := newGuarded(t)
		other := newKit(t, k.backend, k.fair)
		var threads []thread
		for i := range 6 {
			k := []kit{k, other}[i%2]
			threads = append(threads, start(t, func(ctx context.Context) error {
				for {
					switch ok, err := k.TryLockFor(ctx, patience); {
					case err != nil:
						return err
					case !ok:
						return errTaken
					}
					value.change()
					time.Sleep(work)
					assert.NoError(t, k.Unlock(ctx))
				}
			}))
		}
		time.Sleep(3 * patience)
		unlock := k.locked(t)
		jammed := time.Now()
		for _, th := range threads {
			require.Empty(t, th.ended, "no thread gave up before")
		}
		times := value.times
		assert.Greater(t, times, len(threads))
		for _, th := range threads {
			assert.ErrorIs(t, <-th.ended, errTaken)
		}
		assert.LessOrEqual(t, time.Since(jammed), patience)
		assert.Equal(t, times, value.times, "no thread was inside since")
		unlock()
		synctest.Wait()
		assert.Zero(t, reentrant.Entries(other.session))
	})
}

// LockOncePerThreadLoops: every thread acquires each of many locks once. A thread that misses its wake-up would never
// end.
func TestTckLoopOverManyLocksOnceEach(t *testing.T) {
	kits(t, func(t *testing.T, k kit) {
		const threads = 20
		values := make([]*guarded, 50)
		for i := range values {
			values[i] = newGuarded(t)
		}
		k.crowd(t, threads, func(ctx context.Context, k kit, _ int) {
			for i, value := range values {
				l := k.session.NewLock("x"+strconv.Itoa(i), reentrant.WithFairness(k.fair))
				assert.NoError(t, l.Lock(ctx))
				value.change()
				assert.NoError(t, l.Unlock(ctx))
			}
		})
		for _, value := range values {
			assert.Equal(t, threads, value.times)
		}
	})
}

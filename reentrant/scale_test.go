package reentrant_test

import (
	"context"
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
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A yesman is a Backend that grants everything and stores nothing, so that only the session is measured.
type yesman struct {
	commands, renewals atomic.Int64
	tokens             atomic.Uint64
}

func (y *yesman) Connect(context.Context, string, backend.Sink) (backend.Conn, error) {
	return y, nil
}

func (y *yesman) Bind(name string) (backend.Remote, error) {
	return &yesRemote{Remote: nil, yesman: y, name: name}, nil
}

func (y *yesman) Close() error { return nil }

func (y *yesman) Renew(_ context.Context, renewals []backend.Renewal) {
	y.renewals.Add(int64(len(renewals)))
	y.commands.Add(1)
}

type yesRemote struct {
	backend.Remote
	*yesman
	name string
}

func (r *yesRemote) Name() string { return r.name }

func (r *yesRemote) Acquire(_ context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	r.commands.Add(1)
	last := backend.Token(r.tokens.Add(uint64(req.Tokens)))
	return backend.AcquireReply{Status: backend.Granted, First: last - backend.Token(req.Tokens) + 1, Last: last}, nil
}

func (r *yesRemote) Release(context.Context, backend.ReleaseRequest) (backend.ReleaseResult, error) {
	r.commands.Add(1)
	return backend.Released, nil
}

// inUse collects all garbage, and returns the size of heap and stacks then. One collection is not enough, since it leaves work
// to cleanups and pools, also of earlier tests.
func inUse() (heap, stacks int64) {
	var m runtime.MemStats
	for settled := 0; settled < 3; settled++ {
		before := m.HeapAlloc
		runtime.GC()
		if runtime.ReadMemStats(&m); m.HeapAlloc+1<<10 < before || before == 0 {
			settled = 0
		}
	}
	return int64(m.HeapAlloc), int64(m.StackInuse)
}

// Names that are no longer used take no memory, however many there were.
func TestNamesUsedOnceLeaveNothing(t *testing.T) {
	names := testsize.Of(1_000_000, 25_000)
	if testing.Short() || raceEnabled {
		names = 50_000
	}
	s := newSession(t, &yesman{}, patient)
	use := func(from, to int) {
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := from + part; i < to; i += 4 {
					l := s.NewLock("name " + strconv.Itoa(i))
					assert.NoError(t, l.Lock(t.Context()))
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
		}
		wg.Wait()
	}
	use(0, names/100)
	before, _ := inUse()
	use(names/100, names)
	after, _ := inUse()
	assert.Zero(t, reentrant.Entries(s))
	t.Logf("%d names: the heap grew by %d bytes", names, after-before)
	assert.Less(t, after-before, int64(1<<20))
}

func TestAHeldLockCostsNoGoroutineAndLittleMemory(t *testing.T) {
	const locks = 10_000
	s := newSession(t, &yesman{}, patient) // no renewal may be under way when the heap is measured
	held := newLocks(s, locks)
	goroutines := runtime.NumGoroutine()
	before, _ := inUse()
	for _, l := range held {
		require.NoError(t, l.Lock(t.Context()))
	}
	after, _ := inUse()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the runtime may have some more for a moment, for its own work
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "no goroutine per lock")
	t.Logf("%d bytes per held lock", (after-before)/locks)
	if !raceEnabled {
		assert.LessOrEqual(t, (after-before)/locks, int64(1024))
	}
	for _, l := range held {
		require.NoError(t, l.Unlock(t.Context()))
	}
}

// All holds that are due are renewed by one call: the backend decides how many commands that takes.
func TestTenThousandHeldLocksAreRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks, lease = 10_000, 9 * time.Second
		y := &yesman{}
		held := newLocks(newSession(t, y, reentrant.WithLease(lease)), locks)
		for _, l := range held {
			require.NoError(t, l.Lock(t.Context()))
		}
		y.commands.Store(0)
		time.Sleep(lease)
		synctest.Wait()
		assert.GreaterOrEqual(t, y.renewals.Load(), int64(2*locks))
		assert.LessOrEqual(t, y.commands.Load(), int64(locks/100), "one call for many")
		for _, l := range held {
			require.NoError(t, l.Unlock(t.Context()))
		}
	})
}

// newLocks returns n locks with different names.
func newLocks(s *reentrant.Session, n int) []*reentrant.Lock {
	locks := make([]*reentrant.Lock, n)
	for i := range locks {
		locks[i] = s.NewLock("name " + strconv.Itoa(i))
	}
	return locks
}

// Waiters get the lock in order, and each needs little more memory than a parked goroutine.
func TestManyWaiters(t *testing.T) {
	waiters := testsize.Of(100_000, 5_000)
	if testing.Short() || raceEnabled {
		waiters = 5_000
	}
	y := &yesman{}
	s := newSession(t, y, patient)
	l := s.NewLock("x")
	require.NoError(t, l.Lock(t.Context()))
	commands := y.commands.Load()
	bareGoroutines(waiters) // the runtime keeps descriptors of goroutines: from now on it has enough of them
	bare := bareGoroutines(waiters)
	heap, stacks := inUse()
	order := make([]int, 0, waiters)
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			if assert.NoError(t, l.Lock(context.Background())) {
				order = append(order, i)
				assert.NoError(t, l.Unlock(context.Background()))
			}
		})
		for l.QueueLength() <= i {
			runtime.Gosched()
		}
	}
	heapAfter, stacksAfter := inUse()
	assert.Equal(t, commands, y.commands.Load(), "they cost Redis nothing")
	perWaiter := (heapAfter - heap) / int64(waiters)
	t.Logf("%d bytes per waiter beside its stack of %d; %d for a goroutine that is parked on a channel",
		perWaiter, (stacksAfter-stacks)/int64(waiters), bare)
	if !raceEnabled {
		assert.LessOrEqual(t, perWaiter-bare, int64(300))
	}
	require.NoError(t, l.Unlock(t.Context()))
	wg.Wait()
	for i, got := range order {
		if !assert.Equal(t, i, got, "in order of arrival") {
			break
		}
	}
	assert.Len(t, order, waiters)
}

// bareGoroutines returns the memory, apart from its stack, of a goroutine that only waits on a channel.
func bareGoroutines(n int) int64 {
	heap, _ := inUse()
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { <-gate })
	}
	heapAfter, _ := inUse()
	close(gate)
	wg.Wait()
	return (heapAfter - heap) / int64(n)
}

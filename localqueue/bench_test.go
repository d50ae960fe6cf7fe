package localqueue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// BenchmarkUncontended measures what a goroutine pays for a fair queue if no other wants the baton. Budget 30 ns.
func BenchmarkUncontended(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		var q Queue[int64]
		b.ReportAllocs()
		for b.Loop() {
			q.Claim(1, Fair, nil, nil)
			q.Leave()
		}
	})
	b.Run("sync.Mutex", func(b *testing.B) {
		var mu sync.Mutex
		b.ReportAllocs()
		for b.Loop() {
			mu.Lock()
			mu.Unlock() //nolint:staticcheck // the empty section is the workload
		}
	})
}

// BenchmarkReenterExit measures a holder that enters and leaves again, as a recursive function does under a lock.
// Budget 30 ns.
func BenchmarkReenterExit(b *testing.B) {
	var q Queue[int64]
	q.TryClaim(1, Fair)
	q.Settle(1)
	b.ReportAllocs()
	for b.Loop() {
		q.Reenter(1)
		q.ExitOrBegin(1)
	}
}

// BenchmarkClaimSettleBeginLeave measures the local part of an uncontended distributed Lock and Unlock, without the two
// round trips to the server.
func BenchmarkClaimSettleBeginLeave(b *testing.B) {
	var q Queue[int64]
	done := make(chan struct{})
	b.ReportAllocs()
	for b.Loop() {
		q.Claim(1, Fair, done, nil)
		q.Settle(1)
		q.Begin(1)
		q.Leave()
	}
}

// BenchmarkContended measures one section, which is one hand-over, while one goroutine has the baton and the given number of
// goroutines wait. A goroutine that leaves the empty section joins the line again at once.
func BenchmarkContended(b *testing.B) {
	for _, waiters := range []int{2, 100, 10_000} {
		b.Run(fmt.Sprintf("waiters=%d/queue", waiters), func(b *testing.B) {
			contendQueue(b, waiters, context.Background())
		})
		b.Run(fmt.Sprintf("waiters=%d/queue,cancellable", waiters), func(b *testing.B) {
			ctx := b.Context()
			contendQueue(b, waiters, ctx)
		})
		// sync.Mutex is not fair: while a goroutine is awake it enters again and again, and the others sleep.
		b.Run(fmt.Sprintf("waiters=%d/sync.Mutex", waiters), func(b *testing.B) {
			var mu sync.Mutex
			contend(b, waiters, func(int64) { mu.Lock() }, func(int64) { mu.Unlock() })
		})
	}
}

func contendQueue(b *testing.B, waiters int, ctx context.Context) {
	var q Queue[int64]
	contend(b, waiters,
		func(owner int64) { q.Claim(owner, Fair, ctx.Done(), nil) },
		func(int64) { q.Leave() })
}

// contend runs b.N sections in waiters+1 goroutines, which join the line before the clock starts.
func contend(b *testing.B, waiters int, acquire, release func(owner int64)) {
	var started, ended sync.WaitGroup
	goroutines := waiters + 1
	acquire(0)
	for g := range goroutines {
		sections := b.N / goroutines
		if g < b.N%goroutines {
			sections++
		}
		started.Add(1)
		ended.Go(func() {
			started.Done()
			for range sections {
				acquire(int64(g) + 1)
				release(int64(g) + 1)
			}
		})
	}
	started.Wait()
	runtime.Gosched() // nearly all of them wait by now; the last one may not
	b.ReportAllocs()
	b.ResetTimer()
	release(0)
	ended.Wait()
}

// BenchmarkWaiterMemory measures how much heap a waiting goroutine takes: its node, its channel and what the runtime needs to
// park it, without its stack and its descriptor. The budget is 300 B more than a goroutine takes that is parked on a channel,
// which the first sub-benchmark measures.
func BenchmarkWaiterMemory(b *testing.B) {
	ctx := b.Context()
	b.Run("channel", func(b *testing.B) {
		reportMemory(b, func(gate chan struct{}, _ *Queue[int64], _ int64) { <-gate })
	})
	b.Run("queue", func(b *testing.B) {
		reportMemory(b, func(_ chan struct{}, q *Queue[int64], owner int64) {
			q.Claim(owner, Fair, nil, nil)
			q.Leave()
		})
	})
	b.Run("queue,cancellable", func(b *testing.B) {
		reportMemory(b, func(_ chan struct{}, q *Queue[int64], owner int64) {
			q.Claim(owner, Fair, ctx.Done(), nil)
			q.Leave()
		})
	})
}

func reportMemory(b *testing.B, wait func(gate chan struct{}, q *Queue[int64], owner int64)) {
	var bytes uint64
	for b.Loop() {
		park(func(gate chan struct{}, _ *Queue[int64], _ int64) { <-gate }) // leaves descriptors of goroutines that can be reused
		bytes += park(wait)
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "B/waiter")
	b.ReportMetric(0, "ns/op")
}

// park returns the heap per goroutine while n of them wait.
func park(wait func(gate chan struct{}, q *Queue[int64], owner int64)) (bytesEach uint64) {
	const goroutines = 100_000
	var q Queue[int64]
	var started, ended sync.WaitGroup
	gate := make(chan struct{})
	q.TryClaim(0, Fair)
	before := heap()
	for g := range goroutines {
		started.Add(1)
		ended.Go(func() {
			started.Done()
			wait(gate, &q, int64(g)+1)
		})
	}
	started.Wait()
	after := heap()
	close(gate)
	q.Leave()
	ended.Wait()
	return (after - before) / goroutines
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

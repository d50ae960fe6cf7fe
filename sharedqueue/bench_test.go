package sharedqueue

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A benchOwner is as large as an owner of package reentrant.
type benchOwner struct {
	name     string //nolint:unused // for its size
	id       int64
	portable bool //nolint:unused // for its size
}

func benchKey(o benchOwner) (hash, number uint64) {
	return uint64(o.id) * 0x9E3779B97F4A7C15 >> 32, uint64(o.id)
}

func benchNumbered(number uint64) benchOwner { return benchOwner{id: int64(number)} }

var start = time.Now()

func sinceStart() time.Duration { return time.Since(start) }

func benchRW() *RW[benchOwner] {
	q := NewRW(sinceStart, benchKey, benchNumbered)
	q.Settle(Terms{Units: 1, Until: math.MaxInt64})
	for range calmReads {
		q.TryRead(benchOwner{id: 1})
		q.ExitRead(benchOwner{id: 1})
	}
	return q
}

// BenchmarkRead measures a reader that enters and leaves alone. Budget 100 ns.
func BenchmarkRead(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		q := benchRW()
		owner := benchOwner{id: 7}
		b.ReportAllocs()
		for b.Loop() {
			q.TryRead(owner)
			q.ExitRead(owner)
		}
	})
	b.Run("sync.RWMutex", func(b *testing.B) {
		var mu sync.RWMutex
		b.ReportAllocs()
		for b.Loop() {
			mu.RLock()
			mu.RUnlock() //nolint:staticcheck // the empty section is the workload
		}
	})
}

// BenchmarkReadParallel measures readers that enter and leave in parallel. Budget twice the time of sync.RWMutex.
func BenchmarkReadParallel(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		q := benchRW()
		var ids atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			owner := benchOwner{id: 100 + ids.Add(1)}
			for pb.Next() {
				q.TryRead(owner)
				q.ExitRead(owner)
			}
		})
	})
	b.Run("sync.RWMutex", func(b *testing.B) {
		var mu sync.RWMutex
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				mu.RLock()
				mu.RUnlock() //nolint:staticcheck // the empty section is the workload
			}
		})
	})
}

// BenchmarkWrite measures a writer that enters and leaves alone.
func BenchmarkWrite(b *testing.B) {
	q := NewRW(sinceStart, benchKey, benchNumbered)
	q.Settle(Terms{Units: All, Until: math.MaxInt64, First: 2, Last: math.MaxUint64 - 1})
	owner := benchOwner{id: 7}
	b.ReportAllocs()
	for b.Loop() {
		q.TryWrite(owner)
		q.ExitWrite(owner)
	}
}

// BenchmarkWriteHandOver measures one hand-over between goroutines that write in turn, so that all but one wait.
func BenchmarkWriteHandOver(b *testing.B) {
	for _, waiters := range []int{2, 100} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			q := NewRW(sinceStart, benchKey, benchNumbered)
			q.Settle(Terms{Units: All, Until: math.MaxInt64, First: 2, Last: math.MaxUint64 - 1})
			var ended sync.WaitGroup
			q.TryWrite(benchOwner{id: 1})
			for g := range waiters + 1 {
				owner := benchOwner{id: int64(g) + 2}
				ended.Go(func() {
					for range b.N/(waiters+1) + 1 {
						if o, w, _, _ := q.Enter(owner, Write); o == Waiting {
							q.Wait(w, b.Context().Done(), nil)
						}
						q.ExitWrite(owner)
					}
				})
			}
			runtime.Gosched() // nearly all of them wait by now
			b.ReportAllocs()
			b.ResetTimer()
			q.ExitWrite(benchOwner{id: 1})
			ended.Wait()
		})
	}
}

// BenchmarkPermits measures taking a permit and giving it back.
func BenchmarkPermits(b *testing.B) {
	q := NewPermits(sinceStart)
	q.Settle(Terms{Units: 3, Until: math.MaxInt64})
	b.ReportAllocs()
	for b.Loop() {
		q.Try(1)
		q.Exit(1)
	}
}

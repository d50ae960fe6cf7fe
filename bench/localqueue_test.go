package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/relock-go/relock/localqueue"
)

// BenchmarkLocalQueue compares the local queue, a fair lock among goroutines, with a weighted semaphore of size one, which is
// the nearest thing in golang.org/x/sync. Both are FIFO, and a wait for either can be cancelled; the semaphore has no owners.
// At any time one goroutine is inside and the given number wait. The measured time is that of one empty section, which is one
// hand-over.
//
// go test -run '^$' -bench LocalQueue -count 5 .
func BenchmarkLocalQueue(b *testing.B) {
	for _, waiters := range []int{0, 2, 100, 10_000} {
		for _, cancellable := range []bool{false, true} {
			ctx, kind := context.Background(), "plain"
			if cancellable {
				c, cancel := context.WithCancel(ctx)
				defer cancel()
				ctx, kind = c, "cancellable"
			}
			b.Run(fmt.Sprintf("waiters=%d/%s/localqueue", waiters, kind), func(b *testing.B) {
				var q localqueue.Queue[int64]
				takeTurns(b, waiters,
					func(owner int64) { q.Claim(owner, localqueue.Fair, ctx.Done(), nil) },
					func(int64) { q.Leave() })
			})
			b.Run(fmt.Sprintf("waiters=%d/%s/semaphore", waiters, kind), func(b *testing.B) {
				s := semaphore.NewWeighted(1)
				takeTurns(b, waiters,
					func(int64) { _ = s.Acquire(ctx, 1) },
					func(int64) { s.Release(1) })
			})
		}
	}
}

// takeTurns runs b.N empty sections in waiters+1 goroutines. The goroutines queue before the clock starts.
func takeTurns(b *testing.B, waiters int, acquire, release func(owner int64)) {
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
	runtime.Gosched() // nearly all goroutines wait by now; the last one may not
	b.ReportAllocs()
	b.ResetTimer()
	release(0)
	ended.Wait()
}

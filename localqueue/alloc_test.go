//go:build !race && !invariants

// The race detector and the checks allocate by themselves, so these counts are for plain builds.

package localqueue

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUncontendedCallsDoNotAllocate(t *testing.T) {
	var q Queue[string]
	ctx := t.Context()
	for name, f := range map[string]func(){
		"Claim, Leave": func() {
			q.Claim("a", Fair, ctx.Done(), nil)
			q.Leave()
		},
		"Reserve, Wait, Leave": func() {
			q.Wait(q.Reserve("a", Shared), ctx.Done(), nil)
			q.Leave()
		},
		"Claim, Settle, Begin, Leave": func() {
			q.Claim("a", Shared, ctx.Done(), nil)
			q.Settle(1)
			q.Begin("a")
			q.Leave()
		},
		"TryClaim, Settle, Reenter, ExitOrBegin, Evict": func() {
			q.TryClaim("a", Fair)
			q.Settle(1)
			q.Reenter("a")
			q.ExitOrBegin("a")
			q.Evict("a")
		},
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// Two goroutines pass the lock to each other, each of them only when the other is in line. So every lock waits, and
// every unlock hands over.
func TestHandOversDoNotAllocate(t *testing.T) {
	cancellable := t.Context()
	for name, ctx := range map[string]context.Context{"plain": context.Background(), "cancellable": cancellable} {
		t.Run(name, func(t *testing.T) {
			var q Queue[string]
			var in exclusion
			var stop atomic.Bool
			turn := func(owner string) {
				_ = lock(ctx, &q, owner)
				in.enter(t)
				for q.Len() == 0 && !stop.Load() {
					runtime.Gosched()
				}
				in.exit(t)
				_ = unlock(&q, owner)
			}
			var other sync.WaitGroup
			other.Go(func() {
				for !stop.Load() {
					turn("b")
				}
			})
			require.Zero(t, testing.AllocsPerRun(1000, func() { turn("a") }))
			stop.Store(true)
			other.Wait()
			requireConserved(t, &q)
		})
	}
}

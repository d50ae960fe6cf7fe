package sharedqueue

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This test runs in no bubble: readers in their shards must run in parallel with everything else.
func TestAStormOfReadersWritersAndTerms(t *testing.T) {
	seed := newSeed(t)
	q := NewRW(func() time.Duration { return 0 }, func(owner int) (hash, number uint64) {
		return uint64(owner / 2), uint64(owner * (1 - owner&1)) // two owners share a shard; the even ones except 0 have numbers
	}, func(number uint64) int { return int(number) })
	var readers, writers atomic.Int32
	check := func(r, w int32) {
		if w > 1 || w == 1 && r > 0 {
			t.Errorf("%d readers and %d writers inside", r, w)
		}
	}
	var users sync.WaitGroup
	for g := range 8 {
		rnd := rand.New(rand.NewPCG(seed, uint64(g)))
		users.Go(func() {
			for range rounds(1000) {
				if g < 2 && rnd.IntN(20) == 0 { // few writes, or the queue would hardly ever open
					if o, w, _, _ := q.Enter(g, Write); o == Waiting {
						q.Wait(w, nil, nil)
					}
					check(readers.Load(), writers.Add(1))
					runtime.Gosched()
					writers.Add(-1)
					q.ExitWrite(g)
					continue
				}
				if o, w, _, _ := q.Enter(g, Read); o == Waiting {
					q.Wait(w, nil, nil)
				}
				check(readers.Add(1), writers.Load())
				runtime.Gosched()
				readers.Add(-1)
				q.ExitRead(g)
				runtime.Gosched()
			}
		})
	}
	var stop atomic.Bool
	var engine sync.WaitGroup
	engine.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 99))
		token := uint64(0)
		for !stop.Load() {
			if rnd.IntN(4) == 0 {
				q.Ask(0, rnd.IntN(4), 1)
			}
			s := q.Look()
			kept, _ := q.Keep(rnd.IntN(2))
			if units := max(kept, s.Head, rnd.IntN(2)); units == All {
				q.Settle(Terms{Units: All, Until: 1, First: token + 2, Last: token + 10})
				token += 10
			} else {
				q.Settle(Terms{Units: units, Until: 1, Token: token})
			}
			for range 1 + rnd.IntN(200) { // sometimes long enough for the queue to open
				runtime.Gosched()
			}
		}
	})
	users.Wait()
	stop.Store(true)
	engine.Wait()
	require.True(t, q.Idle())
	require.Zero(t, q.readersLocked())
}

func TestAStormOfPermits(t *testing.T) {
	seed := newSeed(t)
	const limit = 5
	q := NewPermits(func() time.Duration { return 0 })
	q.Settle(Terms{Units: limit, Until: 1})
	var inside atomic.Int32
	var users sync.WaitGroup
	for g := range 8 {
		rnd := rand.New(rand.NewPCG(seed, uint64(g)))
		users.Go(func() {
			done := make(chan struct{})
			close(done)
			for range rounds(1000) {
				n := 1 + rnd.IntN(limit)
				leave := done
				if rnd.IntN(3) > 0 {
					leave = nil
				}
				o, w, _, _ := q.Enter(n, 0)
				if o == Waiting {
					o, _, _ = q.Wait(w, leave, nil)
				}
				if o == Cancelled {
					continue
				}
				if all := inside.Add(int32(n)); all > limit {
					t.Errorf("%d inside", all)
				}
				runtime.Gosched()
				inside.Add(int32(-n))
				q.Exit(n)
			}
		})
	}
	users.Wait()
	require.True(t, q.Idle())
}

//go:build !race && !invariants

// The race detector and the checks allocate by themselves, so these counts are for plain builds.

package sharedqueue

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUncontendedCallsDoNotAllocate(t *testing.T) {
	clock := func() time.Duration { return 0 }
	rw := NewRW(clock, keyOf, named)
	permits := NewPermits(clock)
	rw.Settle(Terms{Units: All, Until: 1, First: 2, Last: math.MaxUint64 - 1})
	permits.Settle(Terms{Units: 3, Until: 1})
	for name, f := range map[string]func(){
		"TryRead, ExitRead":   func() { rw.TryRead("a"); rw.ExitRead("a") },
		"Enter, ExitRead":     func() { rw.Enter("a", Read); rw.ExitRead("a") },
		"TryWrite, ExitWrite": func() { rw.TryWrite("a"); rw.ExitWrite("a") },
		"downgrade": func() {
			rw.TryWrite("a")
			rw.TryRead("a")
			rw.ExitWrite("a")
			rw.ExitRead("a")
		},
		"Try, Exit": func() { permits.Try(2); permits.Exit(2) },
		"Look":      func() { rw.Look(); permits.Look() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// Two goroutines alternate, each leaving only when the other is in line, so that every claim waits.
func TestHandOversDoNotAllocate(t *testing.T) {
	q := NewRW(func() time.Duration { return 0 }, keyOf, named)
	q.Settle(Terms{Units: All, Until: 1, First: 2, Last: math.MaxUint64 - 1})
	var stop atomic.Bool
	turn := func(owner string) {
		if o, w, _, _ := q.Enter(owner, Write); o == Waiting {
			q.Wait(w, nil, nil)
		}
		for q.Look().Waiting == 0 && !stop.Load() {
			runtime.Gosched()
		}
		q.ExitWrite(owner)
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
	require.True(t, q.Idle())
}

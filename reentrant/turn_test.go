package reentrant_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// busyTurns makes two sessions contend for a lock for two seconds, with some goroutines each. It returns how many
// sections each turn had, without the first and the last turns.
func busyTurns(t *testing.T, goroutines int, section time.Duration, opts ...reentrant.Option) (sections []int) {
	b := memory.New()
	var wg sync.WaitGroup
	last, begun := -1, time.Now() // guarded by the lock
	for id := range 2 {
		s := newSession(t, b, opts...)
		l := s.NewLock("busy")
		for range goroutines {
			wg.Go(func() {
				for time.Since(begun) < 2*time.Second {
					assert.NoError(t, l.Lock(t.Context()))
					if last != id {
						sections = append(sections, 0)
					}
					sections[len(sections)-1]++
					last = id
					time.Sleep(section)
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
		}
	}
	wg.Wait()
	require.Greater(t, len(sections), 6)
	return sections[2 : len(sections)-2]
}

// If sections are long, a turn serves each goroutine that waited at its beginning once, and not only some of these
// goroutines, since the rest would have to wait for all other processes once more.
func TestATurnServesEachWaiterOnce(t *testing.T) {
	for name, opts := range map[string][]reentrant.Option{"registered": nil, "cohort": {reentrant.WithCohort()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, sections := range busyTurns(t, 20, time.Millisecond, opts...) {
					assert.Equal(t, 20, sections)
				}
			})
		})
	}
}

// If sections are very long, a turn ends before all goroutines are served. If sections are short, a turn serves the same
// goroutines again and again.
func TestATurnHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sections := range busyTurns(t, 20, 10*time.Millisecond) {
			assert.Equal(t, int(reentrant.DefaultTurnTime/(10*time.Millisecond)), sections)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		for _, sections := range busyTurns(t, 3, 100*time.Microsecond) {
			assert.Equal(t, 50, sections, "5 ms of them")
		}
	})
}

// Of the two limits of WithTurn the one that is reached first ends a turn: hand-overs are one fewer than sections.
func TestATurnEndsAtTheFirstOfItsLimits(t *testing.T) {
	for _, c := range []struct {
		n    int
		d    time.Duration
		want int
	}{{7, 0, 5}, {7, time.Second, 8}, {0, 30 * time.Millisecond, 3}, {7, 30 * time.Millisecond, 3}, {1, 30 * time.Millisecond, 2}} {
		for name, opts := range map[string][]reentrant.Option{"registered": nil, "cohort": {reentrant.WithCohort()}} {
			t.Run(fmt.Sprintf("%s, WithTurn(%d, %v)", name, c.n, c.d), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for _, sections := range busyTurns(t, 20, 10*time.Millisecond, append(opts, reentrant.WithTurn(c.n, c.d))...) {
						assert.Equal(t, c.want, sections)
					}
				})
			})
		}
	}
}

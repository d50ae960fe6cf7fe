package reentrant_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// busyTurns has two sessions contend for a lock for two seconds, with some goroutines each, and returns how many sections
// each turn had, without the first ones and the last.
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

// With long sections a turn serves each goroutine that waited when it began once, and no part of them: the others would
// wait for all other processes once more.
func TestATurnServesThoseWhoWaited(t *testing.T) {
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

// A turn of very long sections does not wait for all of those, and one of short sections serves them again and again.
func TestATurnHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sections := range busyTurns(t, 20, 10*time.Millisecond) {
			assert.Equal(t, int(reentrant.DefaultHandoffTime/(10*time.Millisecond)), sections)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		for _, sections := range busyTurns(t, 3, 100*time.Microsecond) {
			assert.Equal(t, 50, sections, "5 ms of them")
		}
	})
}

package reentrant_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A service is a semaphore that callers of several sessions use again and again, each for the same time: so whatever
// happens once can happen at the same moment of every round.
type service struct {
	permits, sessions int
	section           time.Duration
	latency           time.Duration // each way
	unequal           bool          // the sessions have 10, 20, 30, 10, … callers
}

func (s service) String() string {
	return fmt.Sprintf("%d permits, %d sessions, sections of %v, %v each way, unequal %v", s.permits, s.sessions, s.section, s.latency, s.unequal)
}

// callers returns how many callers a session has. With more callers each of them waits for longer, but the session as a whole
// gets no more.
func (s service) callers(session int) int {
	if s.unequal {
		return 10 + session%3*10
	}
	return 20
}

// open opens the sessions, on a server at a distance of the service's latency.
func (s service) open(t *testing.T) (server *memory.Backend, semaphores []*reentrant.Semaphore) {
	server = memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
		if op.Verb == memory.Push {
			return memory.Delay(s.latency)
		}
		return memory.Verdict{Delay: s.latency, Late: s.latency}
	}))
	for range s.sessions {
		semaphores = append(semaphores, newSession(t, server).NewSemaphore("x", s.permits))
	}
	return server, semaphores
}

// run returns how many sections each session had after the first half second.
func (s service) run(t *testing.T) []int64 {
	const warm = 500 * time.Millisecond
	counts := make([]atomic.Int64, s.sessions)
	var inside atomic.Int64
	var overlaps atomic.Bool
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), warm+max(2*time.Second, 300*s.section))
	defer cancel()
	var work sync.WaitGroup
	_, semaphores := s.open(t)
	for i, m := range semaphores {
		for range s.callers(i) {
			work.Go(func() {
				for m.Acquire(ctx, 1) == nil {
					if inside.Add(1) > int64(s.permits) {
						overlaps.Store(true)
					}
					time.Sleep(s.section)
					inside.Add(-1)
					if time.Since(begun) > warm {
						counts[i].Add(1)
					}
					_ = m.Release(t.Context(), 1)
				}
			})
		}
	}
	work.Wait()
	assert.False(t, overlaps.Load(), "more were inside than there are permits")
	got := make([]int64, s.sessions)
	for i := range got {
		got[i] = counts[i].Load()
	}
	return got
}

// deviation returns the largest distance of a count from the mean, as a part of the mean.
func deviation(counts []int64) (most float64) {
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	mean := float64(sum) / float64(len(counts))
	for _, n := range counts {
		most = max(most, math.Abs(float64(n)/mean-1))
	}
	return most
}

const us, ms = time.Microsecond, time.Millisecond

// services returns the cases that showed how sessions can get unequal service and, at full size, also a grid of cases.
func services() []service {
	all := []service{
		{2, 2, 20 * ms, 0, false}, {2, 3, 20 * ms, 500 * us, false}, {3, 2, 20 * ms, ms, false}, {3, 3, 20 * ms, 500 * us, true},
		{3, 4, 20 * ms, ms, false}, {5, 2, 20 * ms, 100 * us, false}, {5, 4, 2 * ms, ms, false}, {5, 4, ms, 100 * us, false}, {5, 4, 5 * ms, 2 * ms, true},
		{5, 4, 20 * ms, 2 * ms, false}, {5, 5, 20 * ms, 0, true}, {8, 2, 20 * ms, 100 * us, false}, {8, 4, 20 * ms, 0, false},
	}
	if !testsize.Full() {
		return all
	}
	for _, permits := range []int{2, 3, 5, 8} {
		for _, sessions := range []int{2, 3, 4, 5, 6} {
			for _, section := range []time.Duration{500 * us, 2 * ms, 5 * ms, 20 * ms} {
				for _, latency := range []time.Duration{0, 500 * us, ms} {
					all = append(all, service{permits, sessions, section, latency, false}, service{permits, sessions, section, latency, true})
				}
			}
		}
	}
	return all
}

func TestEqualDemandGetsEqualServiceThoughEachSectionIsAsLong(t *testing.T) {
	for _, s := range services() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				counts := s.run(t)
				assert.LessOrEqual(t, deviation(counts), 0.1, "sections of each session: %v", counts)
			})
		})
	}
}

// The server does not tell the sessions that stay that their share has become larger.
func TestPermitsOfASessionThatHasLeftAreUsedByTheOthers(t *testing.T) {
	for _, section := range []time.Duration{ms, 20 * ms} {
		t.Run(section.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				first, leave := context.WithTimeout(ctx, time.Second)
				defer leave()
				var work sync.WaitGroup
				var inside, least atomic.Int64
				_, semaphores := service{permits: 6, sessions: 3}.open(t)
				for i, m := range semaphores {
					ctx := ctx
					if i == 0 {
						ctx = first
					}
					for range 20 {
						work.Go(func() {
							for m.Acquire(ctx, 1) == nil {
								inside.Add(1)
								time.Sleep(section)
								inside.Add(-1)
								_ = m.Release(t.Context(), 1)
							}
						})
					}
				}
				time.Sleep(time.Second + 2*reentrant.DefaultHeartbeat)
				for range 50 {
					time.Sleep(section * 13 / 10)
					synctest.Wait()
					least.Add(inside.Load())
					assert.LessOrEqual(t, inside.Load(), int64(6))
				}
				assert.Greater(t, least.Load(), int64(50*5), "of 6 permits")
				work.Wait()
			})
		})
	}
}

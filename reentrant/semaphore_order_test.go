package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A busySemaphore has callers of several sessions that take a permit for a millisecond again and again.
type busySemaphore struct {
	ctx  context.Context
	work sync.WaitGroup
	got  []atomic.Int64
}

func (b *busySemaphore) call(i int, m *reentrant.Semaphore, callers int) {
	for range callers {
		b.work.Go(func() {
			for m.Acquire(b.ctx, 1) == nil {
				time.Sleep(time.Millisecond)
				b.got[i].Add(1)
				_ = m.Release(b.ctx, 1)
			}
		})
	}
}

func TestACallerBesideALongJobIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		x := &busySemaphore{ctx: ctx, got: make([]atomic.Int64, 3)}
		job := newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, job.Acquire(t.Context(), 1))
		for i := range x.got {
			x.call(i, newSession(t, b).NewSemaphore("x", 3), 8)
		}
		time.Sleep(time.Second)
		for range 5 {
			begun := time.Now()
			require.NoError(t, job.Acquire(t.Context(), 1))
			assert.Less(t, time.Since(begun), 100*time.Millisecond, "each other session has one turn before the caller, and no more")
			require.NoError(t, job.Release(t.Context(), 1))
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		x.work.Wait()
	})
}

// A session that has permits asks the server to confirm a pushed grant of more permits. It does so at once, and not at the
// next heartbeat, although the reply that says that the session must wait arrives after the push.
func TestAGrantThatOvertakesTheReplyIsConfirmedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		job, holder := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, job.Acquire(t.Context(), 1))
		require.NoError(t, holder.Acquire(t.Context(), 2))
		b.SetFault(memory.Script(memory.Share, memory.DelayReply(100*time.Millisecond)))
		begun := time.Now()
		got := make(chan error)
		go func() { got <- job.Acquire(t.Context(), 1) }()
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, holder.Release(t.Context(), 2))
		require.NoError(t, <-got)
		assert.Equal(t, 100*time.Millisecond, time.Since(begun))
		require.NoError(t, job.Release(t.Context(), 2))
	})
}

func TestEqualDemandGetsEqualService(t *testing.T) {
	for _, c := range []struct{ permits, sessions int }{{5, 4}, {3, 5}, {6, 3}, {2, 3}, {7, 3}, {50, 5}} {
		t.Run(fmt.Sprintf("%d permits, %d sessions", c.permits, c.sessions), func(t *testing.T) {
			if c.permits > 5 {
				testsize.FullOnly(t)
			}
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				x := &busySemaphore{ctx: ctx, got: make([]atomic.Int64, c.sessions)}
				for i := range x.got {
					x.call(i, newSession(t, b).NewSemaphore("x", c.permits), 20)
				}
				x.work.Wait()
				total := int64(0)
				for i := range x.got {
					total += x.got[i].Load()
				}
				assert.Greater(t, total, int64(c.permits*5000*8/10), "the permits are used")
				for i := range x.got {
					assert.InDelta(t, total/int64(c.sessions), x.got[i].Load(), float64(total)/float64(c.sessions)/10, "session %d", i)
				}
			})
		})
	}
}

// If a waiter leaves, callers that came after the next waiter of its session do not overtake that waiter.
func TestAWaiterThatLeavesKeepsThePlaceOfItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, first, second := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		for range 30 {
			require.NoError(t, holder.Acquire(t.Context(), 3))
			order := make(chan string, 2)
			ctx, leave := context.WithCancel(t.Context())
			go func() { _ = first.Acquire(ctx, 3) }()
			synctest.Wait()
			go func() { assert.NoError(t, first.Acquire(t.Context(), 2)); order <- "first" }()
			synctest.Wait()
			go func() { assert.NoError(t, second.Acquire(t.Context(), 2)); order <- "second" }()
			synctest.Wait()
			leave()
			synctest.Wait()
			require.NoError(t, holder.Release(t.Context(), 3))
			require.Equal(t, "first", <-order)
			require.NoError(t, first.Release(t.Context(), 2))
			require.Equal(t, "second", <-order)
			require.NoError(t, second.Release(t.Context(), 2))
		}
	})
}

// A fairModel is java.util.concurrent's fair Semaphore with one exception: a caller that only a Release of its own
// session can help is not in the queue. It delays no other caller, and joins the queue at its end when the Release has
// come.
type fairModel struct {
	permits int
	inUse   []int
	waits   []int // permits that each session's caller waits for; 0: none
	queue   []int // sessions
}

func (m *fairModel) free() int {
	free := m.permits
	for _, n := range m.inUse {
		free -= n
	}
	return free
}

// settle puts the callers that may be in the queue into it, and serves the head of the queue as long as the permits for the
// head are free.
func (m *fairModel) settle() {
	for i, n := range m.waits {
		queued := false
		for _, s := range m.queue {
			queued = queued || s == i
		}
		if n > 0 && !queued && m.inUse[i]+n <= m.permits {
			m.queue = append(m.queue, i)
		}
	}
	for len(m.queue) > 0 {
		i := m.queue[0]
		if m.waits[i] > 0 && m.waits[i] > m.free() {
			return
		}
		m.inUse[i] += m.waits[i]
		m.waits[i] = 0
		m.queue = m.queue[1:]
	}
}

func (m *fairModel) leave(i int) {
	m.waits[i] = 0
	for at, s := range m.queue {
		if s == i {
			m.queue = append(m.queue[:at:at], m.queue[at+1:]...)
			break
		}
	}
}

// In these random programs callers that have permits ask for more, and waiting callers leave. Each step waits until all turns
// have ended.
func TestRandomProgramsAgreeWithAFairSemaphore(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range testsize.Of(2000, 60) {
		synctest.Test(t, func(t *testing.T) {
			const sessions = 4
			permits := 1 + rnd.IntN(6)
			b := memory.New()
			m := &fairModel{permits: permits, inUse: make([]int, sessions), waits: make([]int, sessions)}
			handles, leave, got := make([]*reentrant.Semaphore, sessions), make([]func(), sessions), make([]int, sessions)
			var mu sync.Mutex
			for i := range handles {
				handles[i] = newSession(t, b).NewSemaphore("x", permits)
			}
			program := fmt.Sprintf("seed %d, %d permits:", seed, permits)
			for range 40 {
				i := rnd.IntN(sessions)
				switch n := 1 + rnd.IntN(permits); {
				case m.waits[i] > 0 && rnd.IntN(3) == 0:
					program += fmt.Sprintf(" leave %d", i)
					m.leave(i)
					leave[i]()
				case m.waits[i] == 0 && rnd.IntN(2) == 0:
					program += fmt.Sprintf(" acquire %d/%d", i, n)
					m.waits[i] = n
					ctx, cancel := context.WithCancel(t.Context())
					leave[i] = cancel
					go func() {
						if handles[i].Acquire(ctx, n) == nil {
							mu.Lock()
							got[i] += n
							mu.Unlock()
						}
					}()
				case m.inUse[i] > 0:
					n = 1 + rnd.IntN(m.inUse[i])
					program += fmt.Sprintf(" release %d/%d", i, n)
					m.inUse[i] -= n
					mu.Lock()
					got[i] -= n
					mu.Unlock()
					require.NoError(t, handles[i].Release(t.Context(), n))
				}
				synctest.Wait() // no two steps come at the same moment
				m.settle()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				mu.Lock()
				require.Equal(t, m.inUse, got, program)
				mu.Unlock()
			}
			for i := range handles {
				if leave[i] != nil {
					leave[i]()
				}
			}
		})
	}
}

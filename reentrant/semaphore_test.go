package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestASemaphoreNeverHandsOutMoreThanItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		const permits = 5
		var inside, most, done atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			m := newSession(t, b).NewSemaphore("x", permits)
			for i := range 6 {
				wg.Go(func() {
					n := 1 + i%3
					for range 10 {
						if !assert.NoError(t, m.Acquire(t.Context(), n)) {
							return
						}
						if now := inside.Add(int64(n)); now > most.Load() {
							most.Store(now)
						}
						time.Sleep(time.Millisecond)
						inside.Add(int64(-n))
						assert.NoError(t, m.Release(t.Context(), n))
						done.Add(1)
					}
				})
			}
		}
		wg.Wait()
		assert.LessOrEqual(t, most.Load(), int64(permits))
		assert.Greater(t, most.Load(), int64(1))
		assert.Equal(t, int64(180), done.Load())
	})
}

func TestTryAcquireNeitherWaitsNorLeavesAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, other := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, holder.Acquire(t.Context(), 2))
		ok, err := other.TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		assert.False(t, ok)
		synctest.Wait()
		st, err := other.Inspect(t.Context())
		require.NoError(t, err)
		assert.Empty(t, st.Waiting)
		ok, err = other.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		assert.True(t, ok)

		start := time.Now()
		ok, err = other.TryAcquireFor(t.Context(), 1, 300*time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
		require.NoError(t, holder.Release(t.Context(), 2))
		require.NoError(t, other.Release(t.Context(), 1))
	})
}

func TestBadNumbersOfPermitsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		for _, permits := range []int{0, -1} {
			m := s.NewSemaphore("x", permits)
			assert.Error(t, m.Acquire(t.Context(), 1))
			_, err := m.TryAcquire(t.Context(), 1)
			assert.Error(t, err)
			_, err = m.Inspect(t.Context())
			assert.Error(t, err)
		}
		m := s.NewSemaphore("x", 3)
		assert.Error(t, m.Acquire(t.Context(), 4), "more than there are")
		assert.Error(t, m.Acquire(t.Context(), 0))
		assert.Error(t, m.Acquire(t.Context(), -1))
		assert.ErrorIs(t, m.Release(t.Context(), 1), reentrant.ErrNotHeld)
		require.NoError(t, m.Acquire(t.Context(), 2))
		assert.ErrorIs(t, m.Release(t.Context(), 3), reentrant.ErrNotHeld)
		done := make(chan error)
		go func() { done <- m.Release(t.Context(), 2) }()
		assert.NoError(t, <-done)
		assert.Error(t, s.NewSemaphore("", 3).Acquire(t.Context(), 1))
	})
}

func TestPermitsOfADeadSessionComeBackWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		dead := newSession(t, b)
		m, other := dead.NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, m.Acquire(t.Context(), 3))
		lost := m.Lost()
		b.Partition(dead.ID(), true)
		start := time.Now()
		require.NoError(t, other.Acquire(t.Context(), 2))
		assert.LessOrEqual(t, time.Since(start), reentrant.DefaultLease+reentrant.DefaultHeartbeat)
		<-lost
		assert.ErrorIs(t, m.Release(t.Context(), 3), reentrant.ErrLost)
		assert.ErrorIs(t, m.Release(t.Context(), 1), reentrant.ErrNotHeld)
		b.Partition(dead.ID(), false)
		require.NoError(t, other.Release(t.Context(), 2))
		require.NoError(t, m.Acquire(t.Context(), 3))
		require.NoError(t, m.Release(t.Context(), 3))
	})
}

func TestPermitsThatTheirUsersKeepAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m, other := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, m.Acquire(t.Context(), 3))
		ok, err := other.TryAcquireFor(t.Context(), 1, 10*reentrant.DefaultLease)
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, m.Release(t.Context(), 3))
		require.NoError(t, other.Acquire(t.Context(), 3))
		require.NoError(t, other.Release(t.Context(), 3))
	})
}

func TestAnIdleSessionKeepsNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		m := s.NewSemaphore("x", 3)
		require.NoError(t, m.Acquire(t.Context(), 3))
		require.NoError(t, m.Release(t.Context(), 3))
		synctest.Wait()
		st, err := m.Inspect(t.Context())
		require.NoError(t, err)
		assert.Empty(t, st.Holders)
		assert.Zero(t, reentrant.SharedNames(s))
	})
}

func TestEachSessionGetsItsShareOfPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		const sessions, permits = 3, 6
		var got [sessions]atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range sessions {
			m := newSession(t, b).NewSemaphore("x", permits)
			for range 8 {
				wg.Go(func() {
					for m.Acquire(ctx, 1) == nil {
						time.Sleep(time.Millisecond)
						got[i].Add(1)
						assert.NoError(t, m.Release(ctx, 1))
					}
				})
			}
		}
		wg.Wait()
		total := int64(0)
		for i := range got {
			total += got[i].Load()
		}
		assert.Greater(t, total, int64(permits*5000*9/10))
		for i := range got {
			assert.InDelta(t, total/sessions, got[i].Load(), float64(total)/20, "session %d", i)
		}
	})
}

func TestAStricterLimitIsKeptToOnceItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		old, deployed := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 2)
		require.NoError(t, old.Acquire(t.Context(), 4))
		got := make(chan error)
		go func() { got <- deployed.Acquire(t.Context(), 1) }()
		synctest.Wait()
		for range 2 {
			require.NoError(t, old.Release(t.Context(), 1))
			synctest.Wait()
			assert.Empty(t, got, "more than the limit of the one that asks are inside")
		}
		require.NoError(t, old.Release(t.Context(), 1))
		require.NoError(t, <-got)
		require.NoError(t, old.Release(t.Context(), 1))
		require.NoError(t, deployed.Release(t.Context(), 1))
	})
}

func TestASemaphoreIsNoOtherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		l := s.NewLock("lock")
		require.NoError(t, l.Lock(t.Context()))
		m := s.NewSemaphore("sem", 3)
		require.NoError(t, m.Acquire(t.Context(), 1))
		for _, x := range []*reentrant.Session{s, other} {
			assert.ErrorIs(t, x.NewSemaphore("lock", 3).Acquire(t.Context(), 1), reentrant.ErrWrongKind)
			assert.ErrorIs(t, x.NewRWLock("lock").RLock(t.Context()), reentrant.ErrWrongKind)
			assert.ErrorIs(t, x.NewRWLock("sem").Lock(t.Context()), reentrant.ErrWrongKind)
			assert.ErrorIs(t, x.NewLock("sem").Lock(t.Context()), reentrant.ErrWrongKind)
		}
		require.NoError(t, m.Release(t.Context(), 1))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestAWaitForPermitsEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m, other := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, m.Acquire(t.Context(), 3))
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, other.Acquire(ctx, 2), context.DeadlineExceeded)
		assert.Equal(t, 700*time.Millisecond, time.Since(start))
		synctest.Wait()
		st, err := m.Inspect(t.Context())
		require.NoError(t, err)
		assert.Empty(t, st.Waiting, "the caller has left the queue")
		require.NoError(t, m.Release(t.Context(), 3))
	})
}

// The caller of Do has its permits, and its goroutine is paused before it calls fn.
func TestDoIsNotifiedOfALossThoughOthersHaveNewPermitsBefore(t *testing.T) {
	for name, waits := range map[string]bool{"admitted at once": false, "admitted after a wait": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				m := newSession(t, b).NewSemaphore("x", 2)
				if waits {
					require.NoError(t, m.Acquire(t.Context(), 2))
				}
				reached, resume, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
				go func() {
					rest, err := reentrant.DoInSteps(m, t.Context(), 1)
					assert.NoError(t, err)
					close(reached)
					<-resume
					done <- rest(func(within context.Context) error {
						<-within.Done()
						return context.Cause(within)
					})
				}()
				if waits {
					synctest.Wait()
					require.NoError(t, m.Release(t.Context(), 2))
				}
				<-reached
				b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
				time.Sleep(reentrant.DefaultLease)
				b.SetFault(nil)
				require.NoError(t, m.Acquire(t.Context(), 2))
				close(resume)
				synctest.Wait()
				select {
				case err := <-done:
					require.ErrorIs(t, err, reentrant.ErrLost)
				default:
					assert.Fail(t, "the context of fn has not ended, although others have all permits")
				}
				require.NoError(t, m.Release(t.Context(), 2))
			})
		})
	}
}

func TestDoIsNotNotifiedOfALossFromBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m := newSession(t, b).NewSemaphore("x", 2)
		require.NoError(t, m.Acquire(t.Context(), 2))
		inside, leave, done := make(chan error), make(chan struct{}), make(chan error)
		go func() {
			done <- m.Do(t.Context(), 1, func(within context.Context) error {
				time.Sleep(2 * reentrant.DefaultLease)
				inside <- within.Err()
				<-leave
				return nil
			})
		}()
		synctest.Wait()
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
		<-m.Lost()
		b.SetFault(nil)
		require.NoError(t, <-inside)
		require.ErrorIs(t, m.Release(t.Context(), 2), reentrant.ErrLost)
		close(leave)
		require.NoError(t, <-done)
	})
}

// A session may have more permits than one of its handles would grant: the handle's limit does not apply to a Release.
func TestReleaseOfMoreThanIsHeldIsNotHeldWhateverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := newSession(t, memory.New()), t.Context()
		high, low := s.NewSemaphore("x", 10), s.NewSemaphore("x", 3)
		require.ErrorIs(t, low.Release(ctx, 4), reentrant.ErrNotHeld)
		require.NoError(t, high.Acquire(ctx, 10))
		require.ErrorIs(t, high.Release(ctx, 11), reentrant.ErrNotHeld)
		require.ErrorIs(t, low.Release(ctx, 11), reentrant.ErrNotHeld)
		require.NoError(t, low.Release(ctx, 9))
		require.ErrorIs(t, low.Release(ctx, 4), reentrant.ErrNotHeld)
		require.NoError(t, low.Release(ctx, 1))
		for _, n := range []int{0, -1} {
			err := low.Release(ctx, n)
			require.Error(t, err)
			require.NotErrorIs(t, err, reentrant.ErrNotHeld, "such a number is never right")
		}
	})
}

// Every call on a semaphore with invalid permits returns what is wrong with it.
func TestASemaphoreWithoutPermitsFailsWithTheWordsOfItsConstructor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		sent := b.Commands()
		tooMany := int64(math.MaxInt32) + 1
		for _, permits := range []int{0, -1, int(tooMany)} { // negative where int has 32 bits
			m := s.NewSemaphore("x", permits)
			nothing := func(context.Context) error { return errors.New("fn runs") }
			for _, ctx := range []context.Context{t.Context(), nil} {
				for _, n := range []int{1, 0, 2} {
					for name, err := range map[string]error{
						"Acquire":       m.Acquire(ctx, n),
						"TryAcquire":    second(m.TryAcquire(ctx, n)),
						"TryAcquireFor": second(m.TryAcquireFor(ctx, n, time.Hour)),
						"Release":       m.Release(ctx, n),
						"Do":            m.Do(ctx, n, nothing),
						"TryDo":         second(m.TryDo(ctx, n, nothing)),
						"TryDoFor":      second(m.TryDoFor(ctx, n, time.Hour, nothing)),
						"AcquireSlot":   second(m.AcquireSlot(ctx)),
						"Inspect":       second(m.Inspect(ctx)),
						"ForceRelease":  second(m.ForceRelease(ctx)),
					} {
						require.ErrorContains(t, err, fmt.Sprintf("a semaphore of %d permits: at least 1, at most", permits), "%s of %d", name, n)
						require.ErrorContains(t, err, `"x"`, "%s of %d", name, n)
					}
				}
			}
			require.False(t, stillOpen(m.Lost()))
			require.Zero(t, m.QueueLength())
			require.False(t, m.HasQueuedOwners())
		}
		require.Equal(t, sent, b.Commands(), "no command was sent")
	})
}

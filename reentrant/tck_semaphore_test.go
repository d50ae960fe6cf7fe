package reentrant_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// The cases of the JDK's SemaphoreTest, as far as they apply. testdata/jdk-tests.md has the list, case by case.

// semaphores runs a test on a semaphore, with its other users in the same session, and with them in another.
func semaphores(t *testing.T, permits int, f func(t *testing.T, m, others *reentrant.Semaphore)) {
	t.Helper()
	for name, apart := range map[string]bool{"OneSession": false, "TwoSessions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				m := newSession(t, b).NewSemaphore("x", permits)
				others := m
				if apart {
					others = newSession(t, b).NewSemaphore("x", permits)
				}
				f(t, m, others)
				synctest.Wait()
				st, err := m.Inspect(t.Context())
				require.NoError(t, err)
				assert.Empty(t, st.Holders)
			})
		})
	}
}

// uses starts a goroutine that acquires permits and releases them.
func uses(t *testing.T, m *reentrant.Semaphore, n int) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := m.Acquire(ctx, n); err != nil {
			return err
		}
		return m.Release(ctx, n)
	})
}

// acquirers are the ways to acquire permits. An attempt that finds too few returns errTaken.
func acquirers(m *reentrant.Semaphore) map[string]func(ctx context.Context, n int) error {
	return map[string]func(ctx context.Context, n int) error{
		"Acquire":          m.Acquire,
		"TryAcquire":       func(ctx context.Context, n int) error { return found(m.TryAcquire(ctx, n)) },
		"TryAcquireFor(0)": func(ctx context.Context, n int) error { return found(m.TryAcquireFor(ctx, n, 0)) },
		"TryAcquireFor":    func(ctx context.Context, n int) error { return found(m.TryAcquireFor(ctx, n, time.Hour)) },
	}
}

// A step is a way to acquire permits, and how many at a time.
type step struct {
	way string
	n   int
}

// waitingSteps are the steps that wait for permits.
var waitingSteps = []step{{"Acquire", 1}, {"Acquire", 3}, {"TryAcquireFor", 1}, {"TryAcquireFor", 3}}

func TestTckANewSemaphoreHasAllItsPermits(t *testing.T) {
	semaphores(t, 42, func(t *testing.T, m, others *reentrant.Semaphore) {
		assert.Equal(t, 42, m.Permits())
		assert.False(t, m.HasQueuedOwners())
		ok, err := others.TryAcquire(t.Context(), 42)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, others.Release(t.Context(), 42))
	})
}

func TestTckTheQueueOfASemaphoreIsCounted(t *testing.T) {
	semaphores(t, 1, func(t *testing.T, m, others *reentrant.Semaphore) {
		assert.Zero(t, others.QueueLength())
		require.NoError(t, m.Acquire(t.Context(), 1))
		first := uses(t, others, 1)
		assert.True(t, others.HasQueuedOwners())
		assert.Equal(t, 1, others.QueueLength())
		second := uses(t, others, 1)
		assert.Equal(t, 2, others.QueueLength())
		second.interrupt()
		require.ErrorIs(t, <-second.ended, context.Canceled)
		assert.Equal(t, 1, others.QueueLength())
		require.NoError(t, m.Release(t.Context(), 1))
		require.NoError(t, <-first.ended)
		assert.False(t, others.HasQueuedOwners())
	})
}

func TestTckTryAcquireTakesWhatThereIs(t *testing.T) {
	semaphores(t, 2, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		assert.Equal(t, 2, m.Permits())
		for range 2 {
			ok, err := m.TryAcquire(ctx, 1)
			require.NoError(t, err)
			require.True(t, ok)
		}
		for _, x := range []*reentrant.Semaphore{m, others} {
			ok, err := x.TryAcquire(ctx, 1)
			require.NoError(t, err)
			require.False(t, ok)
		}
		require.NoError(t, m.Release(ctx, 2))
	})
}

func TestTckPermitsAreTakenAndGivenBack(t *testing.T) {
	semaphores(t, 5, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		for n := 1; n <= 5; n++ {
			for way, take := range acquirers(m) {
				require.NoError(t, take(ctx, n), way)
				require.NoError(t, m.Release(ctx, n), way)
				for range n { // one by one
					require.NoError(t, take(ctx, 1), way)
				}
				require.NoError(t, m.Release(ctx, n), way)
			}
			ok, err := others.TryAcquireFor(ctx, n, time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, others.Release(ctx, n))
			synctest.Wait() // until they are released at the server
		}
	})
}

func TestTckTryAcquireTakesAllOrNone(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 1))
		for _, way := range []string{"TryAcquire", "TryAcquireFor(0)"} {
			take := acquirers(others)[way]
			require.ErrorIs(t, take(ctx, 3), errTaken, way)
			require.NoError(t, take(ctx, 2), way)
			require.ErrorIs(t, take(ctx, 1), errTaken, way)
			require.ErrorIs(t, take(ctx, 2), errTaken, way)
			require.NoError(t, others.Release(ctx, 2))
			synctest.Wait() // until they are released at the server
		}
		require.NoError(t, m.Release(ctx, 1))
	})
}

func TestTckAnyGoroutineOfTheSessionReleases(t *testing.T) {
	semaphores(t, 1, func(t *testing.T, m, others *reentrant.Semaphore) {
		require.NoError(t, m.Acquire(t.Context(), 1))
		waiter := uses(t, others, 1)
		waiter.requireWaiting(t)
		elsewhere(t, func(ctx context.Context) { require.NoError(t, m.Release(ctx, 1)) })
		require.NoError(t, <-waiter.ended)
	})
}

// A waiter gets its permits with the release that makes enough of them free.
func TestTckAReleaseLetsAWaiterIn(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		for _, s := range waitingSteps {
			require.NoError(t, m.Acquire(t.Context(), 3))
			waiter := start(t, func(ctx context.Context) error {
				if err := acquirers(others)[s.way](ctx, s.n); err != nil {
					return err
				}
				return others.Release(ctx, s.n)
			})
			for range s.n {
				waiter.requireWaiting(t)
				elsewhere(t, func(ctx context.Context) { require.NoError(t, m.Release(ctx, 1)) })
			}
			require.NoError(t, <-waiter.ended, s)
			if s.n < 3 {
				require.NoError(t, m.Release(t.Context(), 3-s.n))
			}
			assert.False(t, others.HasQueuedOwners())
		}
	})
}

// As in the JDK's RacingReleases: if two releases come at once, neither is overlooked.
func TestTckReleasesAtOnceLetAllIn(t *testing.T) {
	semaphores(t, 2, func(t *testing.T, m, others *reentrant.Semaphore) {
		for range 20 {
			require.NoError(t, m.Acquire(t.Context(), 2))
			waiters := []thread{uses(t, m, 1), uses(t, others, 1)}
			released := make(chan error, len(waiters))
			for range waiters {
				go func() { released <- m.Release(t.Context(), 1) }()
			}
			for _, waiter := range waiters {
				require.NoError(t, <-released)
				require.NoError(t, <-waiter.ended)
			}
			synctest.Wait()
		}
	})
}

func TestTckACancelledAcquireLeaves(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 3))
		for _, s := range waitingSteps {
			waiter := start(t, func(ctx context.Context) error { return acquirers(others)[s.way](ctx, s.n) })
			waiter.requireWaiting(t)
			waiter.interrupt()
			require.ErrorIs(t, <-waiter.ended, context.Canceled, s)
			assert.False(t, others.HasQueuedOwners(), s)
		}
		require.NoError(t, m.Release(ctx, 3))
	})
}

// A call under a context that has ended does nothing, whether permits are free or not.
func TestTckAnEndedContextTakesNoPermits(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		refused := func() {
			for way, take := range acquirers(others) {
				assert.ErrorIs(t, take(gone, 1), context.Canceled, way)
				assert.ErrorIs(t, take(gone, 3), context.Canceled, way)
			}
		}
		refused()
		require.NoError(t, m.Acquire(t.Context(), 3))
		refused()
		require.NoError(t, m.Release(gone, 3), "a release is not refused")
	})
}

// context.WithoutCancel makes Acquire uninterruptible, as Java's acquireUninterruptibly is.
func TestTckAcquireWithoutCancelIsNotInterrupted(t *testing.T) {
	semaphores(t, 4, func(t *testing.T, m, others *reentrant.Semaphore) {
		require.NoError(t, m.Acquire(t.Context(), 4))
		var waiters []thread
		for _, n := range []int{1, 3} {
			for _, before := range []bool{true, false} {
				waiters = append(waiters, start(t, func(ctx context.Context) error {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					if before {
						cancel()
					}
					if err := others.Acquire(context.WithoutCancel(ctx), n); err != nil {
						return err
					}
					assert.ErrorIs(t, ctx.Err(), context.Canceled, "the interrupt is remembered")
					return others.Release(ctx, n)
				}))
			}
		}
		for _, waiter := range waiters {
			waiter.interrupt()
			waiter.requireWaiting(t)
		}
		require.NoError(t, m.Release(t.Context(), 4))
		for _, waiter := range waiters {
			require.NoError(t, <-waiter.ended)
		}
	})
}

func TestTckATimedAcquireTakesItsTime(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		for held := 1; held <= 3; held++ {
			require.NoError(t, m.Acquire(ctx, held))
			free := 3 - held
			begun := time.Now()
			ok, err := others.TryAcquireFor(ctx, free+1, time.Second)
			require.NoError(t, err)
			assert.False(t, ok)
			assert.Equal(t, time.Second, time.Since(begun))
			if free > 0 { // the call has acquired nothing
				require.NoError(t, others.Acquire(ctx, free))
				require.NoError(t, others.Release(ctx, free))
			}
			require.NoError(t, m.Release(ctx, held))
		}
	})
}

// As in JDK-8386085: many waits that end after a moment do not hide a free permit.
func TestTckAStormOfShortWaitsFindsThePermits(t *testing.T) {
	const callers = 4
	semaphores(t, callers, func(t *testing.T, m, others *reentrant.Semaphore) {
		require.NoError(t, m.Acquire(t.Context(), callers))
		var wg sync.WaitGroup
		for i := range callers {
			x := []*reentrant.Semaphore{m, others}[i%2]
			wg.Go(func() {
				for ok := false; !ok; {
					var err error
					if ok, err = x.TryAcquireFor(t.Context(), 1, time.Microsecond); !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		released := time.Now()
		require.NoError(t, m.Release(t.Context(), callers))
		wg.Wait()
		assert.Less(t, time.Since(released), time.Second)
		require.NoError(t, m.Release(t.Context(), callers/2))
		require.NoError(t, others.Release(t.Context(), callers/2))
	})
}

// A request for many permits is not overtaken by smaller ones that could be granted, as in Java's fair mode.
func TestTckPermitsComeInOrderOfArrival(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		require.NoError(t, m.Acquire(ctx, 2))
		inside, leave := make(chan struct{}), make(chan struct{})
		wide := start(t, func(ctx context.Context) error {
			if err := others.Acquire(ctx, 3); err != nil {
				return err
			}
			close(inside)
			<-leave
			return others.Release(ctx, 3)
		})
		for _, x := range []*reentrant.Semaphore{m, others} { // Java's TryAcquire without a time would take it
			assert.ErrorIs(t, acquirers(x)["TryAcquire"](ctx, 1), errTaken)
			assert.ErrorIs(t, acquirers(x)["TryAcquireFor(0)"](ctx, 1), errTaken)
		}
		narrow := uses(t, others, 1)
		wide.requireWaiting(t)
		narrow.requireWaiting(t)
		require.NoError(t, m.Release(ctx, 2))
		<-inside
		narrow.requireWaiting(t)
		close(leave)
		require.NoError(t, <-wide.ended)
		require.NoError(t, <-narrow.ended)
	})
}

func TestTckAWideRequestThatLeavesLetsOthersIn(t *testing.T) {
	semaphores(t, 3, func(t *testing.T, m, others *reentrant.Semaphore) {
		require.NoError(t, m.Acquire(t.Context(), 2))
		wide, narrow := uses(t, others, 3), uses(t, others, 1)
		narrow.requireWaiting(t)
		wide.interrupt()
		require.ErrorIs(t, <-wide.ended, context.Canceled)
		require.NoError(t, <-narrow.ended)
		require.NoError(t, m.Release(t.Context(), 2))
	})
}

// In Java a release of what was not acquired adds a permit, and one of a negative number throws.
func TestTckPermitsThatAreNotHeldAreNotReleased(t *testing.T) {
	semaphores(t, 2, func(t *testing.T, m, others *reentrant.Semaphore) {
		ctx := t.Context()
		assert.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld)
		require.NoError(t, m.Acquire(ctx, 1))
		assert.ErrorIs(t, m.Release(ctx, 2), reentrant.ErrNotHeld)
		for _, n := range []int{0, -1, 3} {
			assert.Error(t, m.Release(ctx, n))
			assert.Error(t, m.Acquire(ctx, n))
			_, err := m.TryAcquire(ctx, n)
			assert.Error(t, err)
		}
		ok, err := others.TryAcquire(ctx, 2)
		require.NoError(t, err)
		assert.False(t, ok, "one permit is in use")
		require.NoError(t, m.Release(ctx, 1))
	})
}

func TestTckStringOfASemaphoreHasItsPermits(t *testing.T) {
	semaphores(t, 7, func(t *testing.T, m, _ *reentrant.Semaphore) {
		assert.Contains(t, m.String(), "Permits = 7")
	})
}

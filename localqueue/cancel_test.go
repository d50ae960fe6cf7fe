package localqueue

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/waitline"
)

// grantAfter calls f and then does what Leave does, in the same critical section. A waiter whose wait f cancels learns
// only afterwards that it has the baton.
func grantAfter(q *Queue[string], f func()) {
	q.mu.Lock()
	f()
	q.handOverLocked()
	q.unlock()
}

// A parked select is decided by the close of its channel, so closing done here makes the waiter leave. The grant comes before
// the waiter can run, so the grant wins. The baton must not be lost.
func TestAGrantWinsOverACancellationThatComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b, c := claimAs(&q, "b", Fair), claimAs(&q, "c", Fair)
		grantAfter(&q, b.cancel)
		require.Equal(t, Claimed, b.outcome())
		require.Zero(t, c.outcome())
		require.True(t, q.Pass())
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAGrantWinsOverATimeoutThatComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		timeout := make(chan time.Time)
		ended := make(chan Outcome, 1)
		go func() { ended <- q.Claim("b", Fair, nil, timeout) }()
		synctest.Wait()
		grantAfter(&q, func() { timeout <- time.Time{} })
		require.Equal(t, Claimed, <-ended)
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAGrantWinsOverACancellationThatComesSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Fair)
		q.Leave()
		b.cancel()
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestACancellationWinsBeforeAnyGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b, c := claimAs(&q, "b", Fair), claimAs(&q, "c", Fair)
		b.cancel()
		require.Equal(t, Cancelled, b.outcome())
		q.Leave()
		require.Equal(t, Claimed, c.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

func TestAReentryThatWasGrantedWinsOverItsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("s", Fair))
		joiner := claimAs(&q, "s", Shared)
		q.mu.Lock()
		joiner.cancel()
		q.state, q.holds = settled, 1 // as Settle does
		q.resumeLocked()
		q.unlock()
		require.Equal(t, Reentered, joiner.outcome())
		q.Leave()
		requireConserved(t, &q)
	})
}

// Two waiters that leave at the same moment must not leave a dead node before waiters that come later (JDK-8191483).
func TestTwoCancellationsAtOnceLeaveNoPhantom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range rounds(500) {
			var q Queue[string]
			require.Equal(t, Claimed, q.TryClaim("a", Fair))
			b, c := claimAs(&q, "b", Fair), claimAs(&q, "c", Fair)
			go b.cancel()
			go c.cancel()
			require.Equal(t, Cancelled, b.outcome())
			require.Equal(t, Cancelled, c.outcome())
			q.Leave()
			requireConserved(t, &q)
		}
	})
}

// A node that is used again before its first waiter has woken would have two receivers.
func TestANodeDoesNotServeTwoWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		b := claimAs(&q, "b", Fair)
		q.mu.Lock()
		granted := q.line.First
		b.cancel() // b is leaving, and has not seen the grant yet
		q.handOverLocked()
		next := q.enqueueLocked("c", Fair, false)
		q.unlock()
		require.NotSame(t, granted, next)
		require.Equal(t, Claimed, b.outcome())
		q.Leave()
		next.Wait() // this goroutine is c
		q.Leave()
		requireConserved(t, &q)
		require.Equal(t, 2, q.spares.Len, "both nodes can be used again in the end")
	})
}

// Waits that end early must leave nothing behind (as TimedAcquireLeak of the JSR-166 suite tests).
func TestFailedWaitsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		settleAs(t, &q, "a", 1)
		for range rounds(1000) {
			require.Equal(t, TimedOut, q.Claim("b", Shared, nil, time.After(1)))
		}
		require.Equal(t, 1, q.spares.Len, "all waits used the same node")
		require.Empty(t, q.siblings)
		require.True(t, q.Evict("a"))
		requireConserved(t, &q)
	})
}

func TestABurstLeavesABoundedNumberOfSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[string]
		require.Equal(t, Claimed, q.TryClaim("a", Fair))
		for range 3 * waitline.MaxSpares {
			go func() {
				q.Claim("b", Fair, nil, nil)
				q.Leave()
			}()
		}
		synctest.Wait()
		q.Leave()
		synctest.Wait()
		require.Equal(t, waitline.MaxSpares, q.spares.Len)
		requireConserved(t, &q)
	})
}

// endSomehow ends a claim in one of the possible ways, all of which pass the baton on. Sometimes it ends all waits
// first.
func endSomehow(q *Queue[int], rnd *rand.Rand, owner int) {
	if rnd.IntN(32) == 0 {
		sendAway(q)
	}
	if rnd.IntN(2) == 0 {
		q.Settle(1)
		if rnd.IntN(2) == 0 {
			q.Evict(owner)
			return
		}
		q.Begin(owner)
	}
	if rnd.IntN(2) == 0 && q.Pass() {
		return
	}
	q.Leave()
}

// Waits are cancelled at random moments, often those of the first waiter just before it is granted the baton. No baton may be
// lost (the bubble would report that all goroutines are blocked) and there must never be two batons (two goroutines would be
// inside).
func TestAStormOfCancellationsConservesTheBaton(t *testing.T) {
	const workers = 8
	synctest.Test(t, func(t *testing.T) {
		var q Queue[int]
		var in exclusion
		var cancels [workers]atomic.Pointer[func()] // the function that cancels each owner's present claim
		var claimed, cancelled atomic.Int64
		var wg sync.WaitGroup
		seed := newSeed(t)
		release := holdBack(t, &q, workers)
		for owner := range workers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(owner)))
				for round := range rounds(1500) {
					done, patience := make(chan struct{}), rnd.IntN(16)
					cancel := sync.OnceFunc(func() { close(done) })
					cancels[owner].Store(&cancel)
					leave := func() {
						for range patience {
							runtime.Gosched()
						}
						cancel()
					}
					if round > 0 {
						wg.Go(leave)
					}
					if q.Claim(owner, Fair, done, nil) != Claimed {
						cancelled.Add(1)
						continue
					}
					claimed.Add(1)
					in.section(t)
					if next := q.Waiters(); len(next) > 0 && rnd.IntN(4) == 0 {
						(*cancels[next[0]].Load())()
					}
					endSomehow(&q, rnd, owner)
				}
			})
		}
		release()
		wg.Wait()
		t.Logf("%d claimed, %d cancelled or sent away", claimed.Load(), cancelled.Load())
		requireConserved(t, &q)
	})
}

// In virtual time many timeouts expire at the same instant, which is also when a holder leaves.
func TestAStormOfTimeoutsConservesTheBaton(t *testing.T) {
	const workers = 50
	synctest.Test(t, func(t *testing.T) {
		var q Queue[int]
		var in exclusion
		var claimed, timedOut atomic.Int64
		var wg sync.WaitGroup
		seed := newSeed(t)
		for owner := range workers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(owner)))
				for range rounds(100) {
					timeout := time.After(time.Duration(rnd.IntN(30)) * time.Millisecond)
					if q.Claim(owner, Fair, nil, timeout) != Claimed {
						timedOut.Add(1)
						continue
					}
					claimed.Add(1)
					in.enter(t)
					time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond) // in virtual time
					in.exit(t)
					endSomehow(&q, rnd, owner)
				}
			})
		}
		wg.Wait()
		t.Logf("%d claimed, %d timed out or sent away", claimed.Load(), timedOut.Load())
		requireConserved(t, &q)
	})
}

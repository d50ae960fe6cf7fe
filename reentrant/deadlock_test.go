package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// embrace makes each owner lock a lock of its own, and then the next owner's, one after the other. It returns the
// results of the second Locks. An owner that gets an error unlocks its own lock.
func embrace(t *testing.T, sessions []*reentrant.Session, names []string) []error {
	t.Helper()
	errs := make([]error, len(sessions))
	var ready, done sync.WaitGroup
	ready.Add(len(sessions))
	for i, s := range sessions {
		done.Go(func() {
			ctx := reentrant.WithOwner(t.Context(), names[i])
			own, next := s.NewLock(names[i]), s.NewLock(names[(i+1)%len(names)])
			assert.NoError(t, own.Lock(ctx))
			ready.Done()
			ready.Wait()
			time.Sleep(time.Duration(i) * time.Millisecond)
			if errs[i] = next.Lock(ctx); errs[i] == nil {
				assert.NoError(t, next.Unlock(ctx))
			}
			assert.NoError(t, own.Unlock(ctx))
		})
	}
	done.Wait()
	return errs
}

func open(t *testing.T, b backend.Backend, n int, opts ...reentrant.Option) (sessions []*reentrant.Session) {
	for range n {
		sessions = append(sessions, newSession(t, b, append(opts, reentrant.WithDeadlockDetection())...))
	}
	return sessions
}

func TestADeadlockInAProcessIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s := open(t, memory.New(), 1)[0]
		errs := embrace(t, []*reentrant.Session{s, s, s}, []string{"a", "b", "c"})
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		var deadlock *reentrant.DeadlockError
		require.ErrorAs(t, errs[2], &deadlock, "the owner that closes the cycle")
		assert.Equal(t, 2*time.Millisecond, time.Since(begun))

		require.Len(t, deadlock.Cycle, 3)
		for i, want := range []struct{ owner, lock string }{{"~c", "a"}, {"~a", "b"}, {"~b", "c"}} {
			got := deadlock.Cycle[i]
			assert.Equal(t, s.ID(), got.Session)
			assert.Equal(t, want.owner, got.Owner)
			assert.Equal(t, want.lock, got.Lock)
			assert.Contains(t, got.Stack, "embrace", "the goroutine's stack")
		}
		assert.ErrorContains(t, errs[2], `owner ~c of session `+s.ID()+` waits for "a", which owner ~a of session `+s.ID()+` holds`)
	})
}

func TestADeadlockOverProcessesEndsOneWait(t *testing.T) {
	for _, mode := range []struct {
		name string
		opts []reentrant.Option
	}{{"registered", nil}, {"cohort", []reentrant.Option{reentrant.WithCohort()}}} {
		t.Run(mode.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				sessions := open(t, memory.New(), 3, mode.opts...)
				errs := embrace(t, sessions, []string{"a", "b", "c"})
				var failed int
				for i, err := range errs {
					var deadlock *reentrant.DeadlockError
					if err == nil {
						continue
					}
					failed++
					require.ErrorAs(t, err, &deadlock)
					require.Len(t, deadlock.Cycle, 3)
					assert.Equal(t, sessions[i].ID(), deadlock.Cycle[0].Session, "the error names the caller first")
					assert.Equal(t, sessions[(i+1)%3].ID(), deadlock.Cycle[1].Session)
					assert.NotEmpty(t, deadlock.Cycle[0].Stack)
				}
				assert.Equal(t, 1, failed)
				assert.LessOrEqual(t, time.Since(begun), 6*reentrant.DefaultHeartbeat)
			})
		})
	}
}

// Records of waits are renewed early in one heartbeat and late in the next, so at no two heartbeats in a row does the session
// whose owner must get the error see all of them renewed.
func TestADeadlockIsFoundHoweverRecordsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *memory.Backend
		var sessions []*reentrant.Session
		for told := false; !told; told = sessions[2].ID() > max(sessions[0].ID(), sessions[1].ID()) { // until the last id is greatest
			b = memory.New()
			sessions = open(t, b, 2)
			time.Sleep(time.Microsecond) // the last session looks for cycles after the others
			sessions = append(sessions, open(t, b, 1)...)
		}
		b.SetFault(func(op memory.Op) memory.Verdict {
			late := op.Session == "A" && op.Try%2 == 0 || op.Session == "B" && op.Try%2 == 1
			if op.Verb == memory.Register && late {
				return memory.Delay(500 * time.Millisecond)
			}
			return memory.Pass
		})
		begun := time.Now()
		errs := embrace(t, sessions, []string{"a", "b", "c"})
		var deadlock *reentrant.DeadlockError
		require.ErrorAs(t, errs[2], &deadlock)
		assert.LessOrEqual(t, time.Since(begun), 6*reentrant.DefaultHeartbeat)
	})
}

func TestWhatIsNoDeadlockIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory.New(), 1)[0]
		a, b := reentrant.WithOwner(t.Context(), "a"), reentrant.WithOwner(t.Context(), "b")
		x, y := s.NewLock("x"), s.NewLock("y")
		require.NoError(t, x.Lock(a))
		require.NoError(t, x.Lock(a), "the owner's own lock")
		require.NoError(t, y.Lock(b))
		go func() { _, _ = x.TryLockFor(b, time.Minute) }() // this wait ends by itself
		synctest.Wait()
		ctx, cancel := context.WithTimeout(a, time.Second)
		defer cancel()
		assert.ErrorIs(t, y.Lock(ctx), context.DeadlineExceeded)
		require.NoError(t, x.Unlock(a))
		require.NoError(t, x.Unlock(a))
		synctest.Wait()
		require.NoError(t, x.Unlock(b))
		require.NoError(t, y.Unlock(b))
	})
}

// Owners that take two locks in the same order never wait for each other in a cycle, even if it looks so for a moment.
func TestAStormOfOrderedLocksIsNoDeadlock(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			var wg sync.WaitGroup
			for _, s := range open(t, memory.New(), 3, reentrant.WithHeartbeat(50*time.Millisecond), reentrant.WithLease(time.Second)) {
				for range 4 {
					wg.Go(func() {
						for range 10 {
							n := roll(3)
							first, second := s.NewLock(string(rune('a'+n))), s.NewLock(string(rune('a'+n+1+roll(3))))
							assert.NoError(t, first.Lock(t.Context()))
							time.Sleep(time.Duration(roll(100)) * time.Millisecond)
							assert.NoError(t, second.Lock(t.Context()))
							time.Sleep(time.Duration(roll(100)) * time.Millisecond)
							assert.NoError(t, second.Unlock(t.Context()))
							assert.NoError(t, first.Unlock(t.Context()))
						}
					})
				}
			}
			wg.Wait()
		})
	}
}

func TestLookingForDeadlocksSendsNothingWhileNoOwnerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory.New(), 1, reentrant.WithLease(time.Hour))[0]
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		time.Sleep(time.Minute)
		assert.Equal(t, uint64(1), s.Stats().Commands)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// A session's record may be out of date: here p has acquired b meanwhile, and released it.
func TestARecordThatIsOverIsIgnored(t *testing.T) {
	for range 20 { // which wait would be ended depends on the sessions' ids
		synctest.Test(t, ignoreAnOldRecord)
	}
}

func ignoreAnOldRecord(t *testing.T) {
	backend := memory.New()
	slow := open(t, backend, 1, reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(10*time.Second))[0]
	quick := open(t, backend, 1, reentrant.WithHeartbeat(50*time.Millisecond))[0]
	other := newSession(t, backend)
	x := reentrant.WithOwner(t.Context(), "x")
	require.NoError(t, other.NewLock("b").Lock(x))
	time.AfterFunc(21*time.Second, func() { assert.NoError(t, other.NewLock("b").Unlock(x)) })

	var wg sync.WaitGroup
	wg.Go(func() {
		p := reentrant.WithOwner(t.Context(), "p")
		assert.NoError(t, slow.NewLock("a").Lock(p))
		assert.NoError(t, slow.NewLock("b").Lock(p))
		assert.NoError(t, slow.NewLock("b").Unlock(p))
		time.Sleep(7 * time.Second)
		assert.NoError(t, slow.NewLock("a").Unlock(p))
	})
	time.Sleep(22 * time.Second)
	o := reentrant.WithOwner(t.Context(), "o")
	require.NoError(t, quick.NewLock("b").Lock(o))
	require.NoError(t, quick.NewLock("a").Lock(o))
	require.NoError(t, quick.NewLock("a").Unlock(o))
	require.NoError(t, quick.NewLock("b").Unlock(o))
	wg.Wait()
}

// Goroutines that share an owner wait independently: if one of them gets its lock, the other may still be in a
// deadlock.
func TestGoroutinesThatShareAnOwnerMayDeadlockBoth(t *testing.T) {
	for name, sessions := range map[string]int{"in a process": 1, "across sessions": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := open(t, memory.New(), sessions)
				s, u := all[0], all[sessions-1]
				one, two := reentrant.WithOwner(t.Context(), "one"), reentrant.WithOwner(t.Context(), "two")
				require.NoError(t, u.NewLock("a").Lock(two))
				require.NoError(t, s.NewLock("b").Lock(one))
				waits, cancel := context.WithCancel(one)
				ended := make(chan error, 1)
				go func() { ended <- s.NewLock("a").Lock(waits) }()
				synctest.Wait()
				require.NoError(t, s.NewLock("c").Lock(one), "by another goroutine")
				require.NoError(t, s.NewLock("c").Unlock(one))
				closes, stop := context.WithTimeout(two, time.Minute)
				defer stop()
				closing := make(chan error, 1)
				go func() { closing <- u.NewLock("b").Lock(closes) }()
				var err error
				select {
				case err = <-closing:
				case err = <-ended:
				}
				var deadlock *reentrant.DeadlockError
				require.ErrorAs(t, err, &deadlock)
				stop()
				cancel()
			})
		})
	}
}

// Many goroutines share owners, and wait for many locks of each other. Each owner's waits are read once a heartbeat,
// however many paths lead to the owner.
func TestManyWaysToNoDeadlockCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deep, wide = 4, 8
		b := memory.New()
		sessions := open(t, b, deep)
		ctx, cancel := context.WithCancel(t.Context())
		owned := func(i int) context.Context { return reentrant.WithOwner(ctx, fmt.Sprint("owner ", i)) }
		name := func(i, j int) string { return fmt.Sprintf("lock %d of %d", j, i) }
		for i, s := range sessions {
			for j := range wide {
				require.NoError(t, s.NewLock(name(i, j)).Lock(owned(i)))
			}
		}
		var waits sync.WaitGroup
		for i, s := range sessions[:deep-1] {
			for j := range wide {
				waits.Go(func() { assert.ErrorIs(t, s.NewLock(name(i+1, j)).Lock(owned(i)), context.Canceled) })
			}
		}
		synctest.Wait()
		time.Sleep(3 * time.Second)
		asked := b.Count(memory.Inspect)
		time.Sleep(10 * time.Second)
		assert.LessOrEqual(t, b.Count(memory.Inspect)-asked, 11*deep*deep*wide)
		cancel()
		waits.Wait()
		for i, s := range sessions {
			for j := range wide {
				assert.NoError(t, s.NewLock(name(i, j)).Unlock(owned(i)))
			}
		}
	})
}

// A hold with a fixed lease ends by itself, and so does any cycle that it is part of, whichever link of the cycle it
// is.
func TestACycleThatAFixedLeaseEndsIsNoDeadlock(t *testing.T) {
	for name, sessions := range map[string]int{"in a process": 1, "across sessions": 2} {
		for fixed, lock := range []string{"of the first waiter", "of the last waiter"} {
			t.Run(name+", "+lock, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all := open(t, memory.New(), sessions)
					outlastACycle(t, all[0], all[sessions-1], fixed)
				})
			})
		}
	}
}

func outlastACycle(t *testing.T, first, second *reentrant.Session, fixed int) {
	const lease = 20 * time.Second // longer than it takes to find a deadlock
	var opts [2][]reentrant.LockOption
	opts[fixed] = []reentrant.LockOption{reentrant.WithFixedLease(lease)}
	a, b := owner(t, "a"), owner(t, "b")
	begun := time.Now()
	require.NoError(t, first.NewLock("x", opts[0]...).Lock(a))
	require.NoError(t, second.NewLock("y", opts[1]...).Lock(b))
	unlock := func(ctx context.Context, l *reentrant.Lock, end bool) {
		if err := l.Unlock(ctx); end {
			assert.ErrorIs(t, err, reentrant.ErrLost)
		} else {
			assert.NoError(t, err)
		}
	}
	var both sync.WaitGroup
	both.Go(func() {
		if assert.NoError(t, first.NewLock("y").Lock(a)) {
			unlock(a, first.NewLock("y"), false)
		}
		unlock(a, first.NewLock("x"), fixed == 0)
	})
	synctest.Wait()
	both.Go(func() {
		if assert.NoError(t, second.NewLock("x").Lock(b)) {
			unlock(b, second.NewLock("x"), false)
		}
		unlock(b, second.NewLock("y"), fixed == 1)
	})
	both.Wait()
	assert.LessOrEqual(t, time.Since(begun), lease+time.Second)
}

// A caller whose context has a deadline still gets the error of a deadlock at once. A try with a time limit does not:
// the limit ends its wait.
func TestADeadlineIsNoReasonNotToReportADeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memory.New(), 1)[0]
		a, b := owner(t, "a"), owner(t, "b")
		require.NoError(t, s.NewLock("x").Lock(a))
		require.NoError(t, s.NewLock("y").Lock(b))
		waits := make(chan error)
		limited, cancel := context.WithTimeout(a, time.Hour)
		defer cancel()
		go func() { waits <- s.NewLock("y").Lock(limited) }()
		synctest.Wait()
		ok, err := s.NewLock("x").TryLockFor(b, time.Minute)
		assert.False(t, ok)
		require.NoError(t, err, "deadlocks of a try with a time limit are not looked for")

		closes, cancel := context.WithTimeout(b, time.Minute)
		defer cancel()
		begun := time.Now()
		var deadlock *reentrant.DeadlockError
		assert.ErrorAs(t, s.NewLock("x").Lock(closes), &deadlock)
		assert.Zero(t, time.Since(begun))
		require.NoError(t, s.NewLock("y").Unlock(b))
		require.NoError(t, <-waits)
		require.NoError(t, s.NewLock("y").Unlock(a))
		require.NoError(t, s.NewLock("x").Unlock(a))
	})
}

package reentrant_test

import (
	"context"
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

// lockFor locks, and returns the Unlock.
func lockFor(t *testing.T, ctx context.Context, l *reentrant.Lock) func() {
	t.Helper()
	require.NoError(t, l.Lock(ctx))
	return func() { assert.NoError(t, l.Unlock(ctx)) }
}

func TestALateReplyOnlyShortensTheTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithLease(9*time.Second))
		l := s.NewLock("late", reentrant.WithFixedLease(9*time.Second))
		b.SetFault(memory.Script(memory.Acquire, memory.DelayReply(1900*time.Millisecond)))
		start := time.Now()
		require.NoError(t, l.Lock(t.Context()))
		<-l.Lost(t.Context())
		assert.Less(t, time.Since(start), 9*time.Second, "the lease counts from before the command was sent")
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	})
}

func TestAGrantForAnotherAttemptIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, waiter := newSession(t, b), newSession(t, b)
		unlock := lockFor(t, t.Context(), holder.NewLock("x"))

		// The lock is pushed to the first attempt, but the message is delayed; meanwhile the caller has left.
		b.SetFault(memory.Script(memory.Push, memory.Delay(500*time.Millisecond)))
		l := waiter.NewLock("x")
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- l.Lock(ctx) }()
		synctest.Wait()
		unlock()
		cancel()
		assert.ErrorIs(t, <-left, context.Canceled)
		synctest.Wait()

		unlock = lockFor(t, t.Context(), holder.NewLock("x"))
		got := make(chan error)
		go func() { got <- l.Lock(t.Context()) }()
		time.Sleep(600 * time.Millisecond) // the message of the first attempt arrives while the second waits
		assert.False(t, l.HasQueuedOwners() == false, "the second attempt still waits")
		unlock()
		require.NoError(t, <-got)
	})
}

func TestUnlockWorksUnderAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		cancel()
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, l.Unlock(ctx))
		locked, err := l.IsLocked(t.Context())
		require.NoError(t, err)
		assert.False(t, locked)
	})
}

// Calls check their context first: a context that has ended wins over everything else, and the holds stay as they were.
func TestAnEndedContextWinsOverReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		defer lockFor(t, t.Context(), l)()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, l.Lock(ctx), context.Canceled)
		_, err := l.TryLock(ctx)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = l.TryLockFor(ctx, time.Second)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1, l.HoldCount(t.Context()))
	})
}

func TestBadInputIsNamedAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		before := b.Commands()
		assert.ErrorContains(t, s.NewLock("").Lock(t.Context()), "name")
		assert.ErrorContains(t, s.NewLock("x", reentrant.WithFixedLease(-1)).Lock(t.Context()), "WithFixedLease")
		var none context.Context
		assert.ErrorContains(t, s.NewLock("x").Lock(none), "nil context")
		assert.ErrorContains(t, s.NewLock("x").Unlock(none), "nil context")
		assert.Equal(t, before, b.Commands(), "no command was sent")
		_, err := reentrant.NewSession(nil)
		assert.ErrorContains(t, err, "nil backend")
	})
}

func TestExplicitOwnersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithExplicitOwners())
		l := s.NewLock("x")
		assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrNoOwner)
		defer lockFor(t, reentrant.WithOwner(t.Context(), "me"), l)()
	})
}

func TestErrorsNameTheLockAndTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		err := s.NewLock("orders").Unlock(t.Context())
		var e *reentrant.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "orders", e.Lock)
		assert.Equal(t, "unlock", e.Op)
		assert.ErrorIs(t, err, reentrant.ErrNotHeld)
	})
}

func TestDoUnlocksInAPanicAndGoesOnPanicking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		assert.PanicsWithValue(t, "out", func() {
			_ = l.Do(t.Context(), func(context.Context) error { panic("out") })
		})
		assert.False(t, l.IsHeldByCurrentOwner(t.Context()))
		assert.Contains(t, l.String(), "[Unlocked]")
	})
}

func TestDoEndsItsContextWhenTheHoldIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l := s.NewLock("x")
		start := time.Now()
		err := l.Do(t.Context(), func(ctx context.Context) error {
			b.Partition(s.ID(), true)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.Less(t, time.Since(start), reentrant.DefaultLease, "the loss is reported before Redis gives the lock away")
		b.Partition(s.ID(), false)
	})
}

func TestLockerPanicsLikeABrokenMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newSession(t, memory.New()).NewLock("x").Locker(t.Context())
		k.Lock()
		assert.NotPanics(t, k.Unlock)
		assert.Panics(t, k.Unlock)
	})
}

// Goroutines that share an owner share the lock: when one has acquired it the other can enter, and all holds are
// counted.
func TestGoroutinesThatShareAnOwnerShareTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		unlock := lockFor(t, t.Context(), other.NewLock("x"))
		ctx := reentrant.WithOwner(t.Context(), "team")
		l := s.NewLock("x")
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { assert.NoError(t, l.Lock(ctx)) })
		}
		synctest.Wait()
		unlock()
		wg.Wait()
		assert.Equal(t, 5, l.HoldCount(ctx))
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 5, st.Holds, "Redis has counted the same holds")
		for range 5 {
			wg.Go(func() { assert.NoError(t, l.Unlock(ctx)) })
		}
		wg.Wait()
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
	})
}

func TestHoldsBeyondTheLimitAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		reentrant.SetHolds(l, t.Context(), 1<<31-1)
		assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrTooManyHolds)
		assert.Equal(t, 1<<31-1, l.HoldCount(t.Context()), "the holds are unchanged")
		reentrant.SetHolds(l, t.Context(), 1)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestIdleNamesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		for range 3 {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					l := s.NewLock(string(rune('a' + i%4)))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
					defer cancel()
					if l.Lock(ctx) == nil {
						time.Sleep(5 * time.Millisecond)
						assert.NoError(t, l.Unlock(ctx))
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			assert.Zero(t, reentrant.Entries(s))
		}
	})
}

// In a storm of all faults of connections, over three sessions in virtual time, holds never overlap, tokens rise, and at the
// end the lock is free and no owner waits.
func TestAStormOfFaultsConservesTheLock(t *testing.T) {
	for seed := range uint64(30) {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, seed) })
		})
	}
}

func storm(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	b := memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
		if op.Verb == memory.Connect {
			return memory.Pass
		}
		d := time.Duration(roll(3000)) * time.Millisecond
		switch roll(25) {
		case 0:
			return memory.Lose
		case 1:
			return memory.LoseReply
		case 2:
			return memory.Delay(d)
		case 3:
			return memory.DelayReply(d)
		case 4:
			return memory.Duplicate(d)
		}
		return memory.Pass
	}))
	var inside int
	var last backend.Token
	enter := func(token backend.Token) {
		mu.Lock()
		defer mu.Unlock()
		inside++
		assert.Equal(t, 1, inside, "no other owner is inside")
		assert.Greater(t, token, last)
		last = token
	}
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		inside--
	}
	var wg sync.WaitGroup
	for range 3 {
		opts := []reentrant.Option{reentrant.WithLease(5 * time.Second), reentrant.WithHeartbeat(500 * time.Millisecond)}
		switch seed % 3 {
		case 0:
			opts = append(opts, reentrant.WithLinger(time.Duration(seed%2)*time.Second))
		case 1:
			opts = append(opts, reentrant.WithCohort(), reentrant.WithTurn(5, time.Second))
		case 2:
			opts = append(opts, reentrant.WithCohort(), reentrant.WithTurn(0, time.Second), reentrant.WithLinger(time.Second))
		}
		if seed/3%2 == 1 {
			opts = append(opts, reentrant.WithAsyncUnlock())
		}
		s := newSession(t, b, opts...)
		for range 4 {
			wg.Go(func() {
				l := s.NewLock("storm", reentrant.WithFairness(roll(3) > 0))
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(roll(10_000))*time.Millisecond)
					if l.Lock(ctx) == nil {
						if roll(4) == 0 && l.Lock(ctx) == nil {
							_ = l.Unlock(ctx)
						}
						work(t, l, time.Duration(roll(200))*time.Millisecond, enter, leave)
						_ = l.Unlock(ctx)
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	b.SetFault(nil)
	time.Sleep(time.Minute)
	s := newSession(t, b)
	ok, err := s.NewLock("storm").TryLock(t.Context())
	require.NoError(t, err)
	assert.True(t, ok, "the lock is free")
	require.NoError(t, s.NewLock("storm").Unlock(t.Context()))
}

// work stays inside for d, or until the hold is lost: until then no other owner may be inside.
func work(t *testing.T, l *reentrant.Lock, d time.Duration, enter func(backend.Token), leave func()) {
	token, err := l.Token(t.Context())
	if err != nil {
		return // the lock is lost already
	}
	lost := l.Lost(t.Context())
	enter(token)
	select {
	case <-lost:
	case <-time.After(d):
	}
	leave()
}

package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// atLeast is the least time for which the locks of these tests stay taken. It is longer than the lease, which is not renewed
// after Unlock.
const atLeast = 25 * time.Second

// gets makes an owner acquire the lock in a goroutine. The channel delivers the time at which the owner has it.
func gets(t *testing.T, ctx context.Context, l *reentrant.Lock) <-chan time.Time {
	t.Helper()
	got := make(chan time.Time, 1)
	go func() {
		if assert.NoError(t, l.Lock(ctx)) {
			got <- time.Now()
			assert.NoError(t, l.Unlock(ctx))
		}
	}()
	return got
}

// after requires that the time at is not before begun plus d, and at most a heartbeat later than that.
func after(t *testing.T, begun time.Time, d time.Duration, at time.Time) {
	t.Helper()
	assert.GreaterOrEqual(t, at.Sub(begun), d)
	assert.LessOrEqual(t, at.Sub(begun), d+reentrant.DefaultHeartbeat)
}

func TestNoOtherOwnerGetsALockBeforeAtLeastIsOver(t *testing.T) {
	modes := map[string][]reentrant.Option{
		"registered": nil, "async": {reentrant.WithAsyncUnlock()}, "cohort": {reentrant.WithCohort()},
		"linger": {reentrant.WithCohort(), reentrant.WithLinger(time.Minute)},
	}
	waiters := map[string]func(*testing.T, *reentrant.Lock, *reentrant.Lock) (context.Context, *reentrant.Lock){
		"the same owner": func(t *testing.T, own, _ *reentrant.Lock) (context.Context, *reentrant.Lock) {
			return owner(t, "a"), own
		},
		"another of the session": func(t *testing.T, own, _ *reentrant.Lock) (context.Context, *reentrant.Lock) {
			return owner(t, "b"), own
		},
		"another session": func(t *testing.T, _, other *reentrant.Lock) (context.Context, *reentrant.Lock) {
			return owner(t, "b"), other
		},
	}
	for mode, opts := range modes {
		for who, waiter := range waiters {
			for name, early := range map[string]bool{"waits before": true, "waits after": false} {
				if early && who == "the same owner" {
					continue
				}
				t.Run(mode+"/"+who+"/"+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := memory.New()
						s, other := newSession(t, b, opts...), newSession(t, b, opts...)
						l := s.NewLock("x", reentrant.WithAtLeast(atLeast))
						require.NoError(t, l.Lock(owner(t, "a")))
						begun := time.Now()
						ctx, w := waiter(t, s.NewLock("x"), other.NewLock("x"))
						var got <-chan time.Time
						if early {
							got = gets(t, ctx, w)
						}
						time.Sleep(1500 * time.Millisecond)
						require.NoError(t, l.Unlock(owner(t, "a")))
						if !early {
							got = gets(t, ctx, w)
						}
						after(t, begun, atLeast, <-got)
						soon := time.Now()
						assert.Less(t, (<-gets(t, owner(t, "c"), l)).Sub(soon), 2*reentrant.DefaultHeartbeat, "the hold of the waiter has no such time")
					})
				})
			}
		}
	}
}

func TestALockStaysTakenAlthoughItsProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b, reentrant.WithAsyncUnlock()), newSession(t, b).NewLock("x")
		require.NoError(t, s.NewLock("x", reentrant.WithAtLeast(atLeast)).Do(t.Context(), func(context.Context) error { return nil }))
		begun := time.Now()
		require.NoError(t, s.Close(t.Context()))
		for _, passed := range []time.Duration{0, reentrant.DefaultLease, atLeast - time.Millisecond} {
			time.Sleep(time.Until(begun.Add(passed)))
			ok, err := other.TryLock(t.Context())
			require.NoError(t, err)
			require.False(t, ok, "%v after the begin", passed)
		}
		time.Sleep(2 * time.Millisecond)
		ok, err := other.TryLock(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
	})
}

func TestALockIsFreeAtOnceWhenAtLeastIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewLock("x", reentrant.WithAtLeast(time.Second)), newSession(t, b).NewLock("x")
		unlock := lockFor(t, t.Context(), l)
		time.Sleep(1100 * time.Millisecond)
		unlock()
		ok, err := other.TryLock(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
	})
}

func TestInspectShowsALockThatStaysAndForceUnlockEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b, reentrant.WithName("worker")), newSession(t, b).NewLock("x")
		ctx := reentrant.WithNote(owner(t, "a"), "nightly")
		time.Sleep(time.Second) // so that the time since when the lock is held is not the zero time
		unlock := lockFor(t, ctx, s.NewLock("x", reentrant.WithAtLeast(atLeast)))
		synctest.Wait() // the note is written
		unlock()
		st, err := other.Inspect(t.Context())
		require.NoError(t, err)
		assert.True(t, st.Locked)
		assert.True(t, st.Unlocked)
		assert.Equal(t, s.ID(), st.Session)
		assert.Contains(t, st.Owner, "a")
		assert.Equal(t, "nightly", st.Note)
		assert.False(t, st.Since.IsZero())
		assert.InDelta(t, atLeast, st.TTL, float64(time.Second))
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = other.Lock(brief)
		require.ErrorContains(t, err, "(unlocked; WithAtLeast) (\"nightly\")")
		var e *reentrant.Error
		require.ErrorAs(t, err, &e)
		assert.True(t, e.Holders[0].Unlocked)
		got := gets(t, t.Context(), other)
		synctest.Wait()
		had, err := s.NewLock("x").ForceUnlock(t.Context())
		require.NoError(t, err)
		require.True(t, had)
		assert.Zero(t, time.Since(<-got))
	})
}

func TestReentryDoesNotChangeAtLeast(t *testing.T) {
	for name, inner := range map[string][]reentrant.LockOption{"without": nil, "longer": {reentrant.WithAtLeast(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				l, in := s.NewLock("x", reentrant.WithAtLeast(atLeast)), s.NewLock("x", inner...)
				unlock := lockFor(t, t.Context(), l)
				begun := time.Now()
				time.Sleep(time.Second)
				lockFor(t, t.Context(), in)()
				time.Sleep(time.Second)
				unlock()
				after(t, begun, atLeast, <-gets(t, t.Context(), newSession(t, b).NewLock("x")))
			})
		})
	}
}

// Await frees the lock at once. The least time begins anew when Await returns.
func TestAwaitGivesALockWithAtLeastUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewLock("x", reentrant.WithAtLeast(atLeast)), newSession(t, b).NewLock("x")
		back := make(chan time.Time)
		go func() {
			c := l.NewCondition("c")
			assert.NoError(t, l.Lock(t.Context()))
			assert.NoError(t, c.Await(t.Context()))
			back <- time.Now()
			assert.NoError(t, l.Unlock(t.Context()))
		}()
		synctest.Wait()
		require.NoError(t, other.Lock(t.Context()))
		require.NoError(t, other.NewCondition("c").Signal(t.Context()))
		time.Sleep(time.Minute)
		require.NoError(t, other.Unlock(t.Context()))
		begun := <-back
		after(t, begun, atLeast, <-gets(t, t.Context(), other))
	})
}

// A lock that is taken only to be given back, because another is not free, does not stay taken.
func TestALockThatIsGivenBackDoesNotStay(t *testing.T) {
	t.Run("MultiLock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s, other := newSession(t, b), newSession(t, b)
			opt := reentrant.WithAtLeast(atLeast)
			defer lockFor(t, t.Context(), other.NewLock("b"))()
			ok, err := reentrant.NewMultiLock(s.NewLock("a", opt), s.NewLock("b", opt)).TryLockFor(t.Context(), time.Second)
			require.NoError(t, err)
			require.False(t, ok)
			free(t, other, "a")
		})
	})
	t.Run("MultiLock of many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s, other := newSession(t, b), newSession(t, b)
			var locks []*reentrant.Lock
			for n := 'a'; n <= 'z'; n++ {
				locks = append(locks, s.NewLock(string(n), reentrant.WithAtLeast(atLeast)))
			}
			defer lockFor(t, t.Context(), other.NewLock("k"))()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, reentrant.NewMultiLock(locks...).Lock(ctx), context.DeadlineExceeded)
			free(t, other, "a")
			free(t, other, "z")
		})
	})
	t.Run("a MultiLock keeps what its owner had", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s, other := newSession(t, b), newSession(t, b)
			a := s.NewLock("a", reentrant.WithAtLeast(atLeast))
			unlock := lockFor(t, t.Context(), a)
			begun := time.Now()
			defer lockFor(t, t.Context(), other.NewLock("b"))()
			ok, err := reentrant.NewMultiLock(a, s.NewLock("b")).TryLock(t.Context())
			require.NoError(t, err)
			require.False(t, ok)
			unlock()
			after(t, begun, atLeast, <-gets(t, t.Context(), other.NewLock("a")))
		})
	})
	t.Run("TryAnyFor", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s, other := newSession(t, b), newSession(t, b)
			opt := reentrant.WithAtLeast(atLeast)
			first, second := lockFor(t, owner(t, "o"), other.NewLock("a")), lockFor(t, owner(t, "o"), other.NewLock("b"))
			time.AfterFunc(100*time.Millisecond, func() { first(); second() })
			got, err := reentrant.TryAnyFor(t.Context(), time.Minute, s.NewLock("a", opt), s.NewLock("b", opt))
			require.NoError(t, err)
			lost := map[string]string{"a": "b", "b": "a"}[got.Name()]
			synctest.Wait() // the other lock, if TryAny got it too, is given back in the background
			free(t, other, lost)
		})
	})
}

// free requires that a lock can be taken.
func free(t *testing.T, s *reentrant.Session, name string) {
	t.Helper()
	ok, err := s.NewLock(name).TryLock(owner(t, "free"))
	require.NoError(t, err)
	require.True(t, ok, "%s is free", name)
}

func TestAMultiLockKeepsItsLocksForAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		var locks []*reentrant.Lock
		for n := 'a'; n <= 'z'; n++ {
			locks = append(locks, s.NewLock(string(n), reentrant.WithAtLeast(atLeast)))
		}
		m := reentrant.NewMultiLock(locks...)
		require.NoError(t, m.Lock(t.Context()))
		begun := time.Now()
		require.NoError(t, m.Unlock(t.Context()))
		after(t, begun, atLeast, <-gets(t, t.Context(), other.NewLock("k")))
	})
}

// The first copy of the release, or its reply, is lost, or a second copy arrives: the lock stays taken for as long as after one copy.
func TestAReleaseThatIsRepeatedKeepsTheLockForAtLeast(t *testing.T) {
	for name, verdict := range map[string]memory.Verdict{"lost": memory.Lose, "reply lost": memory.LoseReply, "twice": memory.Duplicate(2 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l, other := newSession(t, b).NewLock("x", reentrant.WithAtLeast(atLeast)), newSession(t, b).NewLock("x")
				require.NoError(t, l.Lock(t.Context()))
				begun := time.Now()
				b.SetFault(memory.Script(memory.Release, verdict))
				require.NoError(t, l.Unlock(t.Context()))
				after(t, begun, atLeast, <-gets(t, t.Context(), other))
			})
		})
	}
}

// The least time of a hold that was resumed from another session begins when Resume returns.
func TestAResumedHoldLastsForAtLeast(t *testing.T) {
	for name, moved := range map[string]bool{"own": false, "of another session": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s, other := newSession(t, b), newSession(t, b)
				ctx := reentrant.WithPortableOwner(t.Context(), "flow")
				l := s.NewLock("x", reentrant.WithAtLeast(atLeast))
				require.NoError(t, l.Lock(ctx))
				begun := time.Now()
				time.Sleep(time.Second)
				if moved {
					l, begun = newSession(t, b).NewLock("x", reentrant.WithAtLeast(atLeast)), time.Now()
				} else {
					l = s.NewLock("x")
				}
				require.NoError(t, l.Resume(ctx))
				time.Sleep(time.Second)
				require.NoError(t, l.Unlock(ctx))
				require.ErrorIs(t, other.NewLock("x").Resume(ctx), reentrant.ErrNotHeld, "the owner has unlocked it")
				after(t, begun, atLeast, <-gets(t, t.Context(), other.NewLock("x")))
			})
		})
	}
}

func TestAtLeastIsCheckedAndIsNotForSharedHolds(t *testing.T) {
	s := newSession(t, memory.New())
	ctx := t.Context()
	assert.ErrorContains(t, s.NewLock("x", reentrant.WithAtLeast(-1)).Lock(ctx), "WithAtLeast(-1ns): must not be negative")
	assert.ErrorContains(t, s.NewLock("x", reentrant.WithAtLeast(100*365*24*time.Hour)).Lock(ctx), "WithAtLeast")
	assert.ErrorContains(t, s.NewLock("x", reentrant.WithAtLeast(time.Minute), reentrant.WithFixedLease(time.Second)).Lock(ctx),
		"WithAtLeast(1m0s): at most the lease of WithFixedLease(1s)")
	a, b := s.NewLock("x", reentrant.WithAtLeast(time.Minute)), s.NewLock("x")
	assert.ErrorContains(t, reentrant.NewMultiLock(a, b).Lock(ctx), "different options")
	for _, err := range []error{
		s.NewRWLock("rw", reentrant.WithAtLeast(time.Second)).Lock(ctx),
		s.NewSemaphore("sem", 2, reentrant.WithAtLeast(time.Second)).Acquire(ctx, 1),
	} {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, "WithAtLeast")
		assert.False(t, backend.OutcomeUnknown(err))
	}
}

// A hold that another owner of the session has handed over also lasts for its least time.
func TestAHoldThatWasHandedOverLastsForAtLeast(t *testing.T) {
	for mode, opts := range map[string][]reentrant.Option{
		"registered": nil, "cohort": {reentrant.WithCohort()},
		"linger": {reentrant.WithCohort(), reentrant.WithLinger(time.Minute)},
	} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b, opts...)
				unlock := lockFor(t, owner(t, "a"), s.NewLock("x"))
				second := gets(t, owner(t, "b"), s.NewLock("x", reentrant.WithAtLeast(atLeast)))
				synctest.Wait()
				unlock()
				after(t, <-second, atLeast, <-gets(t, t.Context(), newSession(t, b).NewLock("x")))
			})
		})
	}
}

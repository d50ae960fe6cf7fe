package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// timedWays are the calls that have a time limit, d, in addition to the deadline of their context.
var timedWays = map[string]func(ctx context.Context, s *reentrant.Session, d time.Duration) error{
	"lock": func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := s.NewLock("x").TryLockFor(ctx, d)
		return err
	},
	"multilock of 3": func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := reentrant.NewMultiLock(manyLocks(s, 3)...).TryLockFor(ctx, d)
		return err
	},
	"multilock of 40": func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := reentrant.NewMultiLock(manyLocks(s, 40)...).TryLockFor(ctx, d)
		return err
	},
	"any of 1": anyOfMany(1), "any of 2": anyOfMany(2), "any of 40": anyOfMany(40),
	"write": func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := s.NewRWLock("rw").TryLockFor(ctx, d)
		return err
	},
	"read": func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := s.NewRWLock("rw").TryRLockFor(ctx, d)
		return err
	},
	"permits": func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := s.NewSemaphore("permits", 3).TryAcquireFor(ctx, 2, d)
		return err
	},
}

func anyOfMany(n int) func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
	return func(ctx context.Context, s *reentrant.Session, d time.Duration) error {
		_, err := reentrant.TryAnyFor(ctx, d, manyLocks(s, n)...)
		return err
	}
}

func manyLocks(s *reentrant.Session, n int) (locks []*reentrant.Lock) {
	for i := range n {
		locks = append(locks, s.NewLock(fmt.Sprintf("%02d", i)))
	}
	return locks
}

// A server that keeps its connections and does not reply delays no call with a time limit, or with a deadline, by more than a
// fifth of that time. The second call meets the clean-ups of the first.
func TestAFrozenServerDelaysNoCallBeyondItsLimit(t *testing.T) {
	for name, way := range timedWays {
		for _, limit := range []time.Duration{time.Second, 1200 * time.Millisecond, 5 * time.Second} {
			for _, by := range []string{"time limit", "deadline"} {
				t.Run(fmt.Sprintf("%s, %s of %v", name, by, limit), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := memory.New()
						s := newSession(t, b)
						slowly(b, time.Hour)
						for range 2 {
							begun, ctx, d, want := time.Now(), t.Context(), limit, reentrant.ErrUnavailable
							if by == "deadline" {
								var cancel context.CancelFunc
								ctx, cancel = context.WithTimeout(ctx, limit)
								defer cancel()
								d, want = time.Hour, context.DeadlineExceeded
							}
							require.ErrorIs(t, way(ctx, s, d), want)
							assert.LessOrEqual(t, time.Since(begun), limit*6/5)
							assert.GreaterOrEqual(t, time.Since(begun), limit*9/10)
						}
						b.SetFault(nil)
						time.Sleep(time.Minute) // for the clean-ups
					})
				})
			}
		}
	}
}

// TryAny has no time limit. It waits for one command without a reply, and then for the commands of all other locks at the
// same time.
func TestTryAnyAsksAtOnceWhenAServerDoesNotReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		locks := manyLocks(s, 40)
		hung := s.NewLock("hung")
		b.SetFault(hangs(memory.Acquire))
		got, err := reentrant.TryAny(t.Context(), append([]*reentrant.Lock{hung}, locks...)...)
		require.NoError(t, err, "a lock that cannot be asked does not hide those that are free")
		require.NoError(t, got.Unlock(t.Context()))
		slowly(b, time.Hour)
		begun := time.Now()
		_, err = reentrant.TryAny(t.Context(), locks...)
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(begun), reentrant.DefaultLease/2)
		b.SetFault(nil)
		time.Sleep(time.Minute) // for the clean-ups
	})
}

// If the server did not reply for one lock and the others are taken, it is not known whether a lock is free.
func TestTryAnyDoesNotTakeSilenceForANo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		hung, taken := s.NewLock("hung"), s.NewLock("taken")
		require.NoError(t, newSession(t, b).NewLock("taken").Lock(t.Context()))
		b.SetFault(hangs(memory.Acquire))
		_, err := reentrant.TryAny(t.Context(), hung, taken)
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		require.NotErrorIs(t, err, reentrant.ErrNotAcquired)
		_, err = reentrant.TryAnyFor(t.Context(), time.Second, hung, taken)
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		require.NotErrorIs(t, err, reentrant.ErrNotAcquired)
		b.SetFault(nil)
		time.Sleep(time.Minute) // for the clean-ups
	})
}

// With many locks, and a server far away, there is no time to try one after the other.
func TestTryAnyForAsksTheRestAtOnceWhenTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		locks := manyLocks(s, 40)
		for _, l := range manyLocks(other, 39) {
			require.NoError(t, l.Lock(t.Context()))
		}
		slowly(b, 100*time.Millisecond)
		begun := time.Now()
		got, err := reentrant.TryAnyFor(t.Context(), time.Second, locks...)
		require.NoError(t, err)
		assert.Equal(t, "39", got.Name())
		assert.LessOrEqual(t, time.Since(begun), 1200*time.Millisecond)
		b.SetFault(nil)
		require.NoError(t, got.Unlock(t.Context()))
	})
}

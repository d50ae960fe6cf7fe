package reentrant_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// hangs delays the commands of a verb by an hour for locks whose names begin with "hung".
func hangs(verb memory.Verb) memory.Fault {
	return func(op memory.Op) memory.Verdict {
		if op.Verb == verb && strings.HasPrefix(op.Lock, "hung") {
			return memory.Delay(time.Hour)
		}
		return memory.Pass
	}
}

// abandon makes a session wait for locks that another one holds, and stop waiting. Its places in Redis are then
// withdrawn in the background.
func abandon(t *testing.T, holder, s *reentrant.Session, names ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for _, name := range names {
		require.NoError(t, holder.NewLock(name).Lock(t.Context()))
		waiting.Go(func() { assert.ErrorIs(t, s.NewLock(name).Lock(ctx), context.Canceled) })
	}
	synctest.Wait() // until all have a place in the queue
	cancel()
	waiting.Wait()
}

func hungNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("hung %d", i))
	}
	return names
}

// Clean-ups on a node that hangs delay clean-ups on other nodes by less than a heartbeat. TryLock waits for the clean-up of
// its lock, and Lock for that of a lock which another session lets linger.
func TestCleanUpsThatHangDelayNoOtherLock(t *testing.T) {
	many := testsize.Of(1000, 300)
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder := newSession(t, b)
		s := newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Minute))
		idle := s.NewLock("idle")
		require.NoError(t, idle.Lock(t.Context()))
		require.NoError(t, idle.Unlock(t.Context()))
		b.SetFault(hangs(memory.Release))
		abandon(t, holder, s, hungNames(many)...)

		abandon(t, holder, s, "fine")
		require.NoError(t, holder.NewLock("fine").Unlock(t.Context()))
		began := time.Now()
		got, err := s.NewLock("fine").TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, got)
		assert.Less(t, time.Since(began), reentrant.DefaultHeartbeat)

		abandon(t, holder, s, hungNames(2 * many)[many:]...)
		began = time.Now()
		require.NoError(t, holder.NewLock("idle").Lock(t.Context()))
		assert.Less(t, time.Since(began), reentrant.DefaultHeartbeat)
	})
}

// A hold that has lingered for too long gets one clean-up, even if the clean-up begins much later.
func TestALockThatLingersGetsOneCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Second))
		l := s.NewLock("hung")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		occupied := reentrant.OccupyCleaners(s)
		time.Sleep(5 * time.Second)
		assert.Equal(t, 1, reentrant.Backlog(s))
		close(occupied)
	})
}

// Close returns soon after the end of its context although the backend has stopped replying. The error has both
// reasons.
func TestCloseReturnsWhenItsContextEnds(t *testing.T) {
	for name, opts := range map[string][]reentrant.Option{
		"held":      nil,
		"lingering": {reentrant.WithCohort(), reentrant.WithLinger(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s, err := reentrant.NewSession(b, opts...)
				require.NoError(t, err)
				for _, name := range hungNames(1000) {
					require.NoError(t, s.NewLock(name).Lock(t.Context()))
					if opts != nil {
						require.NoError(t, s.NewLock(name).Unlock(t.Context()))
					}
				}
				b.SetFault(hangs(memory.Release))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				err = s.Close(ctx)
				assert.LessOrEqual(t, time.Since(began), 2*time.Second)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, backend.ErrUnavailable)
				assert.NotContains(t, err.Error(), "\n0 holds", "of zero it says nothing")
				assert.ErrorIs(t, s.Close(t.Context()), reentrant.ErrClosed, "Close waits for the work in the background")
				assert.Less(t, time.Since(began), reentrant.DefaultLease)
			})
		})
	}
}

// A second Close can end an earlier one that waits for holders.
func TestASecondCloseCutsTheFirstShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := reentrant.NewSession(memory.New())
		require.NoError(t, err)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		limit, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- s.Close(limit) }()
		synctest.Wait()
		second := s.Close(ended())
		require.ErrorIs(t, second, context.Canceled)
		require.ErrorIs(t, second, reentrant.ErrClosed)
		err = <-first
		require.ErrorIs(t, err, reentrant.ErrClosed)
		require.NoError(t, limit.Err(), "the context of the first Close has not ended")
		require.NotErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "1 hold given up")
		require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	})
}

// If two Closes wait for holders, both return at the same time, and the later one returns that it was not the first.
func TestTwoClosesWaitForTheHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := reentrant.NewSession(memory.New())
		require.NoError(t, err)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- s.Close(context.Background()) }()
		synctest.Wait()
		go func() { second <- s.Close(context.Background()) }()
		synctest.Wait()
		assert.Empty(t, second)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-first)
		require.ErrorIs(t, <-second, reentrant.ErrClosed)
	})
}

// No command for a hold outlasts the trust in the hold. The caller learns at the end of the trust that the hold is lost.
func TestAReentryThatHangsEndsWithTheTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("hung", reentrant.WithFixedLease(time.Second))
		require.NoError(t, l.Lock(t.Context()))
		until, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		b.SetFault(hangs(memory.Reenter))
		assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrLost)
		assert.Zero(t, time.Since(until))
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	})
}

// Unlock sends its release again, but waits for replies no longer than a lease: the lock is free by then.
func TestAnUnlockThatHangsEndsWithinALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		b := memory.New()
		l := newSession(t, b, reentrant.WithLease(lease)).NewLock("hung")
		require.NoError(t, l.Lock(t.Context()))
		b.SetFault(hangs(memory.Release))
		begun := time.Now()
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(begun), lease)
		b.SetFault(nil)
	})
}

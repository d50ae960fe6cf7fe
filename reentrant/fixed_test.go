package reentrant_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// The message of a grant is lost. A copy of the waiter's heartbeat, which is executed after the grant, starts the fixed
// lease. The reply to the next heartbeat has what is left of that lease, so the holder trusts the lock for no longer than
// Redis keeps it.
func TestAFixedLeaseStartedByACopyIsNotTrustedForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Session == "B" && op.Verb == memory.Acquire && op.Try == 1:
				return memory.Duplicate(1500 * time.Millisecond)
			case op.Session == "B" && op.Verb == memory.Push:
				return memory.Lose
			}
			return memory.Pass
		}))
		a, b, c := newSession(t, server).NewLock("x"),
			newSession(t, server).NewLock("x", reentrant.WithFixedLease(2*time.Second)), newSession(t, server).NewLock("x")
		unlock := lockFor(t, t.Context(), a)
		var lostAt, gotAt time.Time
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.NoError(t, b.Lock(t.Context()))
			<-b.Lost(t.Context())
			lostAt = time.Now()
			assert.ErrorIs(t, b.Unlock(t.Context()), reentrant.ErrLost)
		}()
		time.Sleep(1200 * time.Millisecond)
		unlock()
		time.Sleep(time.Second)
		unlock = lockFor(t, t.Context(), c)
		gotAt = time.Now()
		<-done
		unlock()
		assert.False(t, lostAt.After(gotAt), "the loss was reported %v after the next owner had the lock", lostAt.Sub(gotAt))
	})
}

// After a hold with a fixed lease the lock may be handed over to an owner whose hold is renewed like any other.
func TestAHoldAfterAFixedLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		unlock := lockFor(t, t.Context(), s.NewLock("x", reentrant.WithFixedLease(20*time.Second)))
		l, next := s.NewLock("x"), reentrant.WithOwner(t.Context(), "next")
		done := make(chan error)
		go func() {
			assert.NoError(t, l.Lock(next))
			time.Sleep(time.Minute)
			done <- l.Unlock(next)
		}()
		synctest.Wait()
		unlock()
		require.NoError(t, <-done)
	})
}

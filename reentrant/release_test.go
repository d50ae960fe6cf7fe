package reentrant_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// outage lets no command of a verb be carried out for some time from now on.
func outage(b *memory.Backend, verb memory.Verb, d time.Duration) {
	end := time.Now().Add(d)
	b.SetFault(func(op memory.Op) memory.Verdict {
		return memory.Verdict{Lost: op.Verb == verb && time.Now().Before(end)}
	})
}

// A failover, or a slot that moves, may end before Unlock stops trying: Unlock returns nil, and the next session gets
// the lock.
func TestUnlockOutlastsAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		outage(b, memory.Release, time.Second)
		locked := make(chan error)
		ctx := owner(t, "o")
		go func() { locked <- other.Lock(ctx) }()
		begun := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-locked)
		assert.Less(t, time.Since(begun), 3*time.Second)
		require.NoError(t, other.Lock(ctx))
		outage(b, memory.Reenter, time.Second)
		require.NoError(t, other.Unlock(ctx), "one of several holds")
		assert.NoError(t, other.Unlock(ctx))
	})
}

// Unlock returns during the outage, with an error that says so. The lock is free soon after the outage, and not only
// after the lease.
func TestAReleaseIsFinishedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease, down = 50 * time.Second, 20 * time.Second
		b := memory.New()
		l, other := newSession(t, b, reentrant.WithLease(lease)).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		outage(b, memory.Release, down)
		locked := make(chan error)
		ctx := owner(t, "o")
		go func() { locked <- other.Lock(ctx) }()
		begun := time.Now()
		err := l.Unlock(t.Context())
		assert.LessOrEqual(t, time.Since(begun), 6*time.Second)
		require.ErrorContains(t, err, "sent again in the background")
		require.ErrorContains(t, err, "connection refused")
		assert.False(t, backend.OutcomeUnknown(err))
		require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
		require.NoError(t, <-locked)
		assert.Less(t, time.Since(begun), down+3*time.Second)
		assert.NoError(t, other.Unlock(ctx))
	})
}

// A late release takes nothing from an owner of the same session that has acquired the lock meanwhile.
func TestALateReleaseTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		outage(b, memory.Release, 8*time.Second)
		require.Error(t, l.Unlock(t.Context()))
		require.NoError(t, l.Lock(t.Context()))
		time.Sleep(time.Minute)
		assert.NoError(t, l.Verify(t.Context()))
		assert.NoError(t, l.Unlock(t.Context()))
	})
}

// Close does not wait for releases that are still to be sent.
func TestCloseEndsReleasesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		outage(b, memory.Release, time.Hour)
		require.Error(t, l.Unlock(t.Context()))
		begun := time.Now()
		require.NoError(t, s.Close(t.Context()))
		assert.Zero(t, time.Since(begun))
	})
}

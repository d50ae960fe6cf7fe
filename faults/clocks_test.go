package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/reentrant"
)

// The replica that takes over has a clock that is ahead, so a fixed lease ends earlier by the difference. The holder asks the
// server once it is connected again, and stops before the next owner gets the lock.
func TestAFailoverToAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	const lease, ahead = 10 * time.Minute, 10*time.Minute - 4*time.Second
	servers := newPair(t)
	proxy := newLink(t, servers.master.Addr())
	l := session(t, proxy.addr).NewLock("ahead", reentrant.WithFixedLease(lease))
	other := session(t, proxy.addr).NewLock("ahead")
	holder := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, l.Lock(holder))
	first, err := l.Token(holder)
	require.NoError(t, err)
	lost := l.Lost(holder)
	begun := time.Now()
	servers.synced()
	servers.leadReplica(ahead)
	servers.failOver(proxy)
	eventually(t, func() bool {
		until, err := l.TrustedUntil(holder)
		return err != nil || until.Before(begun.Add(lease-ahead))
	}, "the holder trusts the lock for as long as the new server has the hold")

	ctx := reentrant.WithOwner(t.Context(), "next")
	require.NoError(t, other.Lock(ctx))
	require.False(t, l.IsHeldByCurrentOwner(holder), "two owners trust the same lock")
	<-lost
	second, err := other.Token(ctx)
	require.NoError(t, err)
	assert.Greater(t, second, first)
	require.ErrorIs(t, l.Unlock(holder), reentrant.ErrLost)
	require.NoError(t, orLater(other.Unlock)(ctx))
}

// A server's clock is stepped while all connections stay open. The first reply to any command shows the session the step. Then
// the session verifies holds with fixed leases, and renews all other holds.
func TestAStepOfTheClockEndsNoTrustTooLate(t *testing.T) {
	t.Parallel()
	const lease, step = time.Hour, 50 * time.Minute
	server := redisserver.StartWithClock(t)
	s := session(t, server.Addr(), reentrant.WithLease(lease))
	fixed, renewed := s.NewLock("fixed", reentrant.WithFixedLease(lease)), s.NewLock("renewed")
	holder := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, fixed.Lock(holder))
	require.NoError(t, renewed.Lock(holder))
	begun := time.Now()
	server.Clock().Step(step)
	var err error
	eventually(t, func() bool {
		_, err = s.NewLock("another").IsLocked(t.Context())
		return !errors.Is(err, reentrant.ErrUnavailable)
	}, "Redis replies")
	require.NoError(t, err)
	eventually(t, func() bool {
		until, err := fixed.TrustedUntil(holder)
		return err == nil && until.Before(begun.Add(lease-step))
	}, "the holder trusts the lock for as long as Redis has the hold")
	eventually(t, func() bool {
		st, err := renewed.Inspect(t.Context())
		return err == nil && st.TTL > lease-step
	}, "the hold without a fixed lease is renewed")
	require.NoError(t, orLater(fixed.Unlock)(holder))
	require.NoError(t, orLater(renewed.Unlock)(holder))
}

// A server's clock runs 8 % fast, which is more than the margin. So a holder that cannot ask the server trusts its lock for too
// long, but by no more than the time that the clock gains during a lease. Tokens still rise.
func TestAClockThatRunsFasterThanTheMargin(t *testing.T) {
	t.Parallel()
	const lease, ppm = 4 * time.Second, 80_000
	server := redisserver.StartWithClock(t)
	server.Clock().Slew(ppm)
	proxy := newLink(t, server.Addr())
	l, other := session(t, proxy.addr).NewLock("fast", reentrant.WithFixedLease(lease)), session(t, server.Addr()).NewLock("fast")
	ctx := reentrant.WithOwner(t.Context(), "next")
	began, first := time.Now(), locked(t.Context(), t, l)
	until, err := l.TrustedUntil(t.Context())
	for errors.Is(err, reentrant.ErrLost) && time.Since(began) > slow { // this machine stood still
		require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		began, first = time.Now(), locked(t.Context(), t, l)
		until, err = l.TrustedUntil(t.Context())
	}
	require.NoError(t, err)
	proxy.dropRequests()
	defer proxy.mend()
	require.NoError(t, other.Lock(ctx))
	assert.LessOrEqual(t, time.Until(until), lease*ppm/1_000_000)
	second, err := other.Token(ctx)
	require.NoError(t, err)
	assert.Greater(t, second, first)
	require.NoError(t, orLater(other.Unlock)(ctx))
	<-l.Lost(t.Context())
}

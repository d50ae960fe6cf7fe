package redisbackend_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// frozen returns a lock on a server that the test can freeze.
func frozen(t *testing.T, lease time.Duration) (*reentrant.Lock, *redisserver.Server) {
	server := redisserver.Start(t)
	b, err := redisbackend.New(connect(t, server.Addr()))
	require.NoError(t, err)
	session, err := reentrant.NewSession(b, reentrant.WithLease(lease), reentrant.WithHeartbeat(lease/10))
	require.NoError(t, err)
	t.Cleanup(func() {
		server.Thaw()
		_ = session.Close(t.Context())
	})
	return session.NewLock("lock"), server
}

// The caller's context has no deadline, so the error is not DeadlineExceeded but says that the server could not be asked.
func TestATimedTryOnAFrozenServer(t *testing.T) {
	lock, server := frozen(t, time.Minute)
	server.Freeze()
	ok, err := lock.TryLockFor(context.Background(), 200*time.Millisecond)
	assert.False(t, ok)
	require.ErrorIs(t, err, reentrant.ErrUnavailable)
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
	assert.False(t, reentrant.Refused(err))
}

// If the server is silent, Open does not try TLS once the client has given up: here that would take another hour.
func TestOpenOnAFrozenServerEndsWhenTheClientGivesUp(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	server.Freeze()
	t.Cleanup(server.Thaw)
	opened := make(chan error, 1)
	go func() {
		_, err := redisbackend.Open(t.Context(), "redis://"+server.Addr()+"?dial_timeout=1h&write_timeout=200ms")
		opened <- err
	}()
	select {
	case err := <-opened:
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
	case <-time.After(testsize.Patience(5 * time.Minute)):
		require.Fail(t, "Open waits for longer than the client")
	}
}

// A process can stop even though the server hangs: Await returns at most a lease after its context has ended.
func TestAnAwaitOnAFrozenServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	lock, server := frozen(t, 10*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	awaited := make(chan error, 1)
	for waits, tries := false, 0; !waits && tries < 5; tries++ { // a waiter that stands still first loses the lock
		waiter := reentrant.WithOwner(ctx, fmt.Sprint("waiter ", tries))
		require.NoError(t, lock.Lock(waiter))
		go func() { awaited <- lock.NewCondition("never").Await(waiter) }()
		require.Eventually(t, func() bool {
			n, err := server.Command("EXISTS", "relock:{lock}:c:5:never:lock")
			waits = err == nil && n == "1"
			return waits || len(awaited) > 0
		}, limit, time.Millisecond, "the owner waits")
		if !waits {
			require.ErrorIs(t, <-awaited, reentrant.ErrLost)
		}
	}
	server.Freeze()
	cancel()
	select {
	case err := <-awaited:
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reentrant.ErrLost, "the lock could not be acquired again")
	case <-time.After(time.Minute):
		t.Fatal("the wait goes on")
	}
}

// While rueidis opens a connection for one call, other calls wait for the connection even if their contexts end. A call of a
// lock still ends with its context.
func TestACallOnAFrozenServerEndsInItsOwnTime(t *testing.T) {
	t.Parallel()
	const long = time.Hour
	server := redisserver.Start(t)
	t.Cleanup(server.Thaw) // before it is stopped
	dialled := make(chan struct{}, 16)
	b, err := redisbackend.OpenClient(t.Context(), rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, ConnWriteTimeout: long, Dialer: net.Dialer{Timeout: long},
		DialCtxFn: func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			dialled <- struct{}{}
			return dialer.DialContext(ctx, "tcp", addr)
		}})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	opening, cancel := context.WithTimeout(t.Context(), long) // with a deadline, so that the connection is lost below
	defer cancel()
	conn, err := b.Connect(opening, "s", newMember())
	require.NoError(t, err)
	remote, err := conn.Bind("lock")
	require.NoError(t, err)
	inspect := func(limit time.Duration) <-chan error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		ended := make(chan error, 1)
		go func() {
			defer cancel()
			_, err := remote.Inspect(ctx)
			ended <- err
		}()
		return ended
	}
	server.Freeze()
	require.ErrorIs(t, <-inspect(50*time.Millisecond), context.DeadlineExceeded) // this loses the connection
	for len(dialled) > 0 {
		<-dialled
	}
	slow := inspect(long)
	select {
	case <-dialled:
	case <-time.After(time.Second): // the call before was not even sent, so the connection was not lost
	}
	for range 3 {
		select {
		case err := <-inspect(50 * time.Millisecond):
			require.ErrorIs(t, err, context.DeadlineExceeded)
		case <-time.After(testsize.Patience(time.Minute)):
			t.Fatal("it waits for the connection of another")
		}
	}
	server.Thaw()
	require.NoError(t, <-slow)
	require.NoError(t, <-inspect(long))
	require.NoError(t, conn.Close())
}

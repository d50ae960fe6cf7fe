package redistest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// inBubble runs a test in virtual time. Times in these tests are exact: a command takes none.
func inBubble(t *testing.T, test func(t *testing.T, s *redistest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, redistest.InBubble(t)) })
}

// process opens a session, which stands for a process.
func process(t *testing.T, b backend.Backend) *reentrant.Session {
	t.Helper()
	session, err := reentrant.NewSession(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	return session
}

// A cable connects one client with the server.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

// cabled returns a backend over a client of its own, whose cable can be cut.
func cabled(t *testing.T, s *redistest.Server) (backend.Backend, *cable) {
	t.Helper()
	var c cable
	option := s.ClientOption()
	option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return c.dial(s) }
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	return b, &c
}

func (c *cable) dial(s *redistest.Server) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("the cable is cut")
	}
	conn, err := s.Dial()
	c.conns = append(c.conns, conn)
	return conn, err
}

// Cut closes the connections, and lets no other be made.
func (c *cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func TestAnHourOfRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		lock := process(t, s.Backend()).NewLock("work")
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Hour)
			return lock.Verify(ctx)
		}))
	})
}

func TestAHandOverInVirtualTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		mine, theirs := process(t, s.Backend()).NewLock("work"), process(t, s.Backend()).NewLock("work")
		start := time.Now()
		require.NoError(t, mine.Lock(t.Context()))
		got := taken(theirs)
		time.Sleep(time.Hour)
		require.NoError(t, mine.Unlock(t.Context()))
		assert.Equal(t, time.Hour, (<-got).Sub(start), "pushed at once, not found at a heartbeat")
	})
}

// taken takes a lock in a goroutine and gives it back. It returns when that was.
func taken(lock *reentrant.Lock) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		defer cancel()
		if lock.Do(ctx, func(context.Context) error { at <- time.Now(); return nil }) != nil {
			close(at)
		}
	}()
	return at
}

func TestALeaseThatRunsOutIsLostAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		b, cable := cabled(t, s)
		mine, theirs := process(t, b).NewLock("work"), process(t, s.Backend()).NewLock("work")
		require.NoError(t, mine.Lock(t.Context()))
		got := taken(theirs)
		time.Sleep(time.Minute + time.Second)
		cable.Cut() // a second after a renewal
		until, err := mine.TrustedUntil(t.Context())
		require.NoError(t, err)
		ends := time.Now().Add(reentrant.DefaultLease - time.Second)

		<-mine.Lost(t.Context())
		assert.Equal(t, until, time.Now())
		require.ErrorIs(t, mine.Unlock(t.Context()), reentrant.ErrLost)
		t.Log(until.Sub(ends), (<-got).Sub(ends))
	})
}

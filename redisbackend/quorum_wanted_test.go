package redisbackend_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// slowly copies from src to dst, and delays everything, until one of the two is closed.
func slowly(dst io.WriteCloser, src io.ReadCloser, delay func(part []byte) time.Duration) {
	type part struct {
		due  time.Time
		text []byte
	}
	parts := make(chan part, 1024)
	go func() {
		defer close(parts)
		for text := make([]byte, 64<<10); ; {
			n, err := src.Read(text)
			if err != nil {
				return
			}
			parts <- part{time.Now().Add(delay(text[:n])), bytes.Clone(text[:n])}
		}
	}()
	go func() {
		for p := range parts {
			time.Sleep(time.Until(p.due))
			_, _ = dst.Write(p.text) // if this fails, src is closed, too
		}
		_, _ = dst.Close(), src.Close()
	}()
}

// slowQuorum opens a session on servers to which commands take a while. Replies take as long, and messages take no time.
func slowQuorum(t *testing.T, servers []*redistest.Server, trip time.Duration, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	var clients []rueidis.Client
	for i, server := range servers {
		option := server.ClientOption()
		option.InitAddress = []string{fmt.Sprint("node", i)}
		option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			far, err := server.Dial()
			near, mine := net.Pipe()
			delays := func([]byte) time.Duration { return trip }
			slowly(far, near, delays)
			slowly(near, far, func(part []byte) time.Duration {
				if bytes.Contains(part, []byte("message")) {
					return 0
				}
				return trip
			})
			return mine, err
		}
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		clients = append(clients, client)
	}
	q, err := redisbackend.NewQuorum(clients)
	require.NoError(t, err)
	session, err := reentrant.NewSession(q, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = session.Close(ctx)
	})
	return session
}

// The nodes give the lock to a session that lingers. At any moment before or after this session has heard that it has the lock,
// a second session asks for the lock. The second session waits neither for the end of the lease nor for the first session's
// linger time.
func TestQuorumALingeringSessionGivesUpWhatWasWantedBeforeItHadIt(t *testing.T) {
	const trip = 40 * time.Millisecond
	for name, opts := range map[string][]reentrant.Option{"without a cohort": nil, "cohort": {reentrant.WithCohort()}} {
		t.Run(name, func(t *testing.T) {
			for after := time.Duration(0); after < 5*trip; after += trip / 2 {
				synctest.Test(t, func(t *testing.T) {
					servers := []*redistest.Server{redistest.InBubble(t), redistest.InBubble(t), redistest.InBubble(t)}
					opts := append(opts, reentrant.WithAsyncUnlock(), reentrant.WithLinger(8*time.Second))
					s, other := slowQuorum(t, servers, trip, opts...), slowQuorum(t, servers, trip/4, opts...)
					lock := s.NewLock("x")
					for range 3 { // on one Redis, the first session would keep the lock from now on, without a cohort, too
						require.NoError(t, lock.Do(t.Context(), func(context.Context) error { return nil }))
						time.Sleep(time.Minute)
					}
					took := make(chan time.Duration, 1)
					time.AfterFunc(after, func() {
						ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
						defer cancel()
						begun := time.Now()
						assert.NoError(t, other.NewLock("x").Do(ctx, func(context.Context) error { return nil }))
						took <- time.Since(begun)
					})
					require.NoError(t, lock.Do(t.Context(), func(context.Context) error { return nil }))
					assert.Less(t, <-took, time.Second, "asked %v after the first", after)
				})
			}
		})
	}
}

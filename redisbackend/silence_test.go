package redisbackend_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
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

// A mute lets a number of replies pass, and drops all replies after them, as if the server had frozen.
type mute struct{ left atomic.Int64 }

// clientOption returns the options of a client of the server. Replies to this client are dropped as m says.
func (m *mute) clientOption(server *redistest.Server) rueidis.ClientOption {
	option := server.ClientOption()
	option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		conn, err := server.Dial()
		return mutedConn{conn, m}, err
	}
	return option
}

type mutedConn struct {
	net.Conn
	mute *mute
}

func (c mutedConn) Read(into []byte) (int, error) {
	for {
		n, err := c.Conn.Read(into)
		if err != nil || c.mute.left.Add(-1) >= 0 {
			return n, err
		}
	}
}

// A program opens and closes a session. The server may freeze before any of the replies.
func TestOpeningAndClosingEndInTimeWhateverReplyIsTheLast(t *testing.T) {
	const late, grace = 200 * time.Millisecond, time.Second // Close goes on for a second after its context
	opened := 0
	for replies := range int64(32) {
		synctest.Test(t, func(t *testing.T) {
			m, server := new(mute), redistest.InBubble(t)
			m.left.Store(replies)
			defer time.Sleep(time.Minute) // until everything that was left behind has ended
			within := func(limit, more time.Duration, f func(ctx context.Context) error) error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				err := f(ctx)
				assert.Less(t, time.Since(began), limit+more, "the last reply was number %d", replies)
				return err
			}
			var b *redisbackend.Backend
			var s *reentrant.Session
			err := within(time.Second, late, func(ctx context.Context) (err error) {
				b, err = redisbackend.OpenClient(ctx, m.clientOption(server))
				return err
			})
			if err != nil {
				return
			}
			defer b.Close()
			err = within(10*time.Second, late, func(context.Context) (err error) { // NewSession has a limit of its own
				s, err = reentrant.NewSession(b)
				return err
			})
			if err != nil {
				require.ErrorIs(t, err, reentrant.ErrUnavailable)
				return
			}
			opened++
			m.left.Store(0)
			// Not a second: the client closes a silent connection after two, and then Close has nothing left to wait for.
			err = within(800*time.Millisecond, grace+late, s.Close)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	assert.Positive(t, opened, "more replies are needed")
}

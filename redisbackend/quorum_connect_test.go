package redisbackend_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
)

// A node that refuses writes counts as a node that is down. This is no reason to refuse a session.
func TestQuorumConnectsBesideANodeThatIsFull(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	c.nodes[2].run("CONFIG", "SET", "maxmemory", "1")
	a := c.join("a")
	a.take(1)
	a.release(1)
}

// Two of a quorum's names may lead to one server. If one of these names is reached only after the session was opened, the
// session refuses all commands from then on.
func TestQuorumFindsOneServerUnderTwoNamesLate(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	var err error
	for tries := 0; !backend.Refused(err) && tries < 5; tries++ { // this machine may stand still for some seconds
		err = c.inspectLate()
	}
	require.ErrorContains(t, err, "node 3: it is the same server as node 1")
}

// inspectLate opens a session with three nodes. The third node is the first one under another name, and cannot be reached until
// the session is open. inspectLate returns the first error of the session, or nil if no error comes in the time that a node has
// to join.
func (c *council) inspectLate() (err error) {
	c.Helper()
	var slow atomic.Bool
	reached := make(chan struct{})
	alias := connect(c, "another-name:6379", func(o *rueidis.ClientOption) {
		o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if slow.Load() {
				<-reached
			}
			return d.DialContext(ctx, "tcp", c.servers[0].Addr())
		}
	})
	slow.Store(true)
	q, err := redisbackend.NewQuorum([]rueidis.Client{c.nodes[0].client, c.nodes[1].client, alias})
	require.NoError(c, err)
	redisbackend.SetNodeLimit(q, time.Millisecond) // the session does not wait for the delayed node
	conn := opened(c.T, q, "a", newMember())
	defer func() { require.NoError(c, conn.Close()) }()
	r, err := conn.Bind("lock")
	require.NoError(c, err)
	close(reached)
	redisbackend.SetNodeLimit(q, patient)
	for began := time.Now(); !backend.Refused(err) && time.Since(began) < 2*opening; time.Sleep(tick) {
		_, err = r.Inspect(c.Context())
	}
	return err
}

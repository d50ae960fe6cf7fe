package redisbackend_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
)

func TestMain(m *testing.M) {
	testsize.Parallel(32)
	testsize.CollectLess()
	os.Exit(m.Run())
}

// cluster starts a Cluster of three masters with replicas. It returns the Cluster, and a site with a client of it.
func cluster(t *testing.T, replicasEach int, options ...string) (*site, *redisserver.Cluster) {
	servers := redisserver.StartCluster(t, 3, replicasEach, options...)
	s := &site{T: t, client: connect(t, servers.Masters[0].Addr()), name: "lock", began: time.Now()}
	require.Equal(t, rueidis.ClientModeCluster, s.client.Mode())
	var err error
	s.b, err = redisbackend.New(s.client)
	require.NoError(t, err)
	return s, servers
}

// node returns a client for one server of a Cluster, for plain commands.
func node(t *testing.T, server *redisserver.Server) *site {
	return &site{T: t, client: connect(t, server.Addr(), func(o *rueidis.ClientOption) { o.ForceSingleClient = true })}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 0)
	a, b := s.join("a"), s.join("b")
	for i := range uint64(20) { // on all nodes together
		s.name = fmt.Sprintf("lock-%d", i)
		a.remote, b.remote = a.bind(s.name), b.bind(s.name)
		last := a.take(2*i + 1)
		b.wait(2*i + 1)
		assert.Equal(t, []string{"b"}, a.inspect().Waiting)
		assert.Equal(t, backend.Released, a.release(2*i+1))
		g := b.granted()
		assert.Equal(t, s.name, g.Name)
		assert.Greater(t, g.First, last)
		assert.False(t, g.NotBefore.IsZero(), "the session knows the clock of the lock's node")
		assert.Equal(t, g.First, b.take(2*i+1))
	}
	for _, server := range servers.Masters {
		size, err := node(t, server).do("DBSIZE").ToInt64()
		require.NoError(t, err)
		assert.Positive(t, size, "every node has keys")
	}
}

func TestClusterRenewsBySlot(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 0)
	a := s.join("a")
	const lasting = time.Hour // so long that no lease ends while the test takes all locks
	var renewals []backend.Renewal
	for i := range 30 {
		for _, name := range []string{fmt.Sprintf("lock-%d", i), fmt.Sprintf("{tag}lock-%d", i)} {
			s.name = name
			a.remote = a.bind(name)
			a.take(uint64(i+1), func(r *backend.AcquireRequest) { r.Lease = lasting })
			renewals = append(renewals, backend.Renewal{Remote: a.remote, Epoch: uint64(i + 1), Lease: 2 * lasting})
		}
	}
	calls := func() (n int) {
		for _, server := range servers.Masters {
			n += scriptCalls(node(t, server))
		}
		return n
	}
	a.conn.Renew(s.ctx(), renewals) // loads the script on all nodes
	before := calls()
	a.conn.Renew(s.ctx(), renewals)
	assert.Equal(t, 31, calls()-before, "one for each of 30 slots, and one for the tag's")
	for _, r := range renewals {
		s.name = r.Remote.Name()
		assert.NoError(t, r.Err)
		assert.False(t, r.Gone)
		s.assertFull(2*lasting, s.ttl())
	}
}

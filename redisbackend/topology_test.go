package redisbackend_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// cluster starts three masters that share the slots.
func cluster(t *testing.T) (*site, []*site) {
	slots := []string{"0", "5460", "5461", "10922", "10923", "16383"}
	var nodes []*site
	for i := range 3 {
		bus, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, busPort, err := net.SplitHostPort(bus.Addr().String())
		require.NoError(t, err)
		require.NoError(t, bus.Close())
		server := redisserver.Start(t, "--cluster-enabled", "yes", "--cluster-port", busPort,
			"--cluster-config-file", filepath.Join(t.TempDir(), "nodes.conf"))
		node := &site{T: t, client: connect(t, server.Addr(), func(o *rueidis.ClientOption) { o.ForceSingleClient = true })}
		node.run("CLUSTER", "ADDSLOTSRANGE", slots[2*i], slots[2*i+1])
		host, port, err := net.SplitHostPort(server.Addr())
		require.NoError(t, err)
		for _, other := range nodes {
			other.run("CLUSTER", "MEET", host, port, busPort)
		}
		node.name = server.Addr()
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		node.eventually(func() bool {
			info, err := node.do("CLUSTER", "INFO").ToString()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		}, "the cluster is formed")
	}
	s := &site{T: t, client: connect(t, nodes[0].name), name: "lock"}
	require.Equal(t, rueidis.ClientModeCluster, s.client.Mode())
	var err error
	s.b, err = redisbackend.New(s.client)
	require.NoError(t, err)
	return s, nodes
}

func TestCluster(t *testing.T) {
	t.Parallel()
	s, nodes := cluster(t)
	a, b := s.join("a"), s.join("b")
	for i := range uint64(20) { // over all nodes
		s.name = fmt.Sprintf("lock-%d", i)
		a.remote, b.remote = a.bind(s.name), b.bind(s.name)
		last := a.take(2*i + 1)
		b.wait(2*i + 1)
		assert.Equal(t, []string{"b"}, a.inspect().Waiting)
		assert.Equal(t, reentrant.Released, a.release(2*i+1))
		g := b.granted()
		assert.Equal(t, s.name, g.Name)
		assert.Greater(t, g.First, last)
		assert.False(t, g.NotBefore.IsZero(), "the clock of the lock's own node is known")
		assert.Equal(t, g.First, b.take(2*i+1))
	}
	for _, node := range nodes {
		size, err := node.do("DBSIZE").ToInt64()
		require.NoError(t, err)
		assert.Positive(t, size, "every node has some")
	}
}

func TestClusterRenewsBySlot(t *testing.T) {
	t.Parallel()
	s, nodes := cluster(t)
	a := s.join("a")
	var renewals []reentrant.Renewal
	for i := range 30 {
		for _, name := range []string{fmt.Sprintf("lock-%d", i), fmt.Sprintf("{tag}lock-%d", i)} {
			s.name = name
			a.remote = a.bind(name)
			a.take(uint64(i + 1))
			s.run("PEXPIRE", name, "5000")
			renewals = append(renewals, reentrant.Renewal{Remote: a.remote, Epoch: uint64(i + 1), Lease: lease})
		}
	}
	calls := func() (n int) {
		for _, node := range nodes {
			n += scriptCalls(node)
		}
		return n
	}
	a.conn.Renew(s.ctx(), renewals) // the nodes learn the script
	before := calls()
	a.conn.Renew(s.ctx(), renewals)
	assert.Equal(t, 31, calls()-before, "one for each of 30 slots, and one for the tag's")
	for _, r := range renewals {
		s.name = r.Remote.Name()
		assert.NoError(t, r.Err)
		assert.False(t, r.Gone)
		assert.InDelta(t, lease, s.ttl(), float64(time.Second))
	}
}

// sentinel starts a master with a replica, and a sentinel that watches them.
func sentinel(t *testing.T) (admin *site, addr string) {
	master := redisserver.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := redisserver.Start(t, "--replicaof", host+" "+port)
	copied := &site{T: t, client: connect(t, replica.Addr())}
	copied.eventually(func() bool {
		info, err := copied.do("INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, "the replica follows")
	watcher := redisserver.StartSentinel(t, fmt.Sprintf("sentinel monitor main %s %s 1", host, port))
	admin = &site{T: t, client: connect(t, watcher.Addr(), func(o *rueidis.ClientOption) { o.ForceSingleClient = true })}
	admin.eventually(func() bool {
		list, err := admin.do("SENTINEL", "REPLICAS", "main").ToArray()
		return err == nil && len(list) == 1
	}, "the sentinel knows the replica")
	return admin, watcher.Addr()
}

// It takes some ten seconds, for as long as a sentinel waits before it tells the old master that it is one no more.
func TestSentinelFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	admin, addr := sentinel(t)
	s := &site{T: t, name: "lock", client: connect(t, addr, func(o *rueidis.ClientOption) { o.Sentinel.MasterSet = "main" })}
	var err error
	s.b, err = redisbackend.New(s.client)
	require.NoError(t, err)
	a := s.join("a")
	<-a.resumed
	last := a.take(1)
	hears(s, a, 2)
	admin.eventually(func() bool { return admin.do("SENTINEL", "FAILOVER", "main").Error() == nil }, "failing over")
	select {
	case <-a.resumed:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "not resumed")
	}
	var reply reentrant.AcquireReply
	require.Eventually(t, func() bool {
		reply, err = a.remote.Acquire(s.ctx(), request(3))
		return err == nil && reply.Status == reentrant.Granted
	}, 30*time.Second, 10*time.Millisecond)
	assert.Greater(t, reply.First, last)
	hears(s, a, 4)
}

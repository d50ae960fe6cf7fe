package redisbackend_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// nodes returns a client for each server of a Cluster, for plain commands.
func nodes(t *testing.T, servers *redisserver.Cluster) (all []*site) {
	for _, server := range servers.Nodes() {
		all = append(all, node(t, server))
	}
	return all
}

// shardChannel returns the name of the session's channel for a hash tag.
func shardChannel(tag, session string) string { return "relock:session:{" + tag + "}:" + session }

// shardListeners returns how many connections listen to the session's channel for a hash tag, on all nodes together.
func shardListeners(all []*site, tag, session string) int64 {
	return listeners(all, shardChannel(tag, session))
}

// listeners returns how many connections listen to a shard channel, on all nodes together.
func listeners(all []*site, channel string) (n int64) {
	for _, node := range all {
		heard, err := node.do("PUBSUB", "SHARDNUMSUB", channel).AsIntMap()
		require.NoError(node, err)
		n += heard[channel]
	}
	return n
}

// busMessages returns how many PUBLISH messages the nodes have sent to each other.
func busMessages(all []*site) (n int64) {
	for _, node := range all {
		info, err := node.do("CLUSTER", "INFO").ToString()
		require.NoError(node, err)
		for line := range strings.Lines(info) {
			if count, ok := strings.CutPrefix(line, "cluster_stats_messages_publish_sent:"); ok {
				n += number(node, strings.TrimSpace(count))
			}
		}
	}
	return n
}

// handOver passes the lock from one session to another that waits for it.
func handOver(from, to *member, epoch uint64) {
	from.Helper()
	last := from.take(epoch)
	to.wait(epoch)
	require.Equal(from, backend.Released, from.release(epoch))
	g := to.granted()
	for g.First <= last { // a channel that was opened again on another node may still get older messages from the bus
		g = to.granted()
	}
	assert.Equal(from, to.remote.Name(), g.Name)
	assert.False(from, g.NotBefore.IsZero())
	require.Equal(from, backend.Released, to.release(epoch))
}

// untilHeard passes the lock on until the waiting session listens to its channel on the right node. From then on
// hand-overs must not use the bus. untilHeard returns the next epoch.
func untilHeard(all []*site, channel string, from, to *member, epoch uint64) uint64 {
	from.Helper()
	for began := time.Now(); listeners(all, channel) != 1; epoch++ { // after a failure the next wait subscribes again
		require.Less(from, time.Since(began), limit, "the session listens on the node that has the slot")
		handOver(from, to, epoch)
	}
	return epoch
}

func TestHandOversInAClusterStayOnTheNode(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, servers := cluster(t, 0)
	all := nodes(t, servers)
	for i, tag := range []string{"lock", "a{b", "tag", "\x00\xff\n", "other"} {
		s.name = map[bool]string{true: "x{tag}y{z}", false: tag}[tag == "tag"]
		a, b := s.join("a"), s.join("b")
		before := busMessages(all)
		handOver(a, b, 1)
		assert.LessOrEqual(t, busMessages(all)-before, int64(2), "only the first message may go over the bus, to the two other nodes")
		next := untilHeard(all, shardChannel(tag, "b"), a, b, 2)
		before = busMessages(all)
		const times = 10
		for n := range uint64(times) {
			handOver(a, b, next+n)
		}
		assert.Equal(t, before, busMessages(all), "no message goes over the bus for %q, case %d", tag, i)
		assert.Zero(t, shardListeners(all, tag, "a"), "a session that has not waited does not listen")
		require.NoError(t, a.conn.Close())
		require.NoError(t, b.conn.Close())
		s.eventually(func() bool { return shardListeners(all, tag, "b") == 0 }, "no session listens any more")
	}
}

// Without the right to the lock's channel, sessions get their messages over the bus.
func TestHandOversInAClusterWithoutTheRightToShards(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, servers := cluster(t, 0)
	all := nodes(t, servers)
	for user, right := range map[string]string{"deaf": "-ssubscribe", "mute": "-spublish"} {
		for _, node := range all {
			node.run("ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", right)
		}
		client := connect(t, servers.Masters[0].Addr(), password("pw"), func(o *rueidis.ClientOption) { o.Username = user })
		var err error
		s.b, err = redisbackend.New(client)
		require.NoError(t, err)
		s.name = user
		a, b := s.join("a"), s.join("b")
		for epoch := range uint64(5) {
			handOver(a, b, epoch+1)
		}
	}
}

// A server older than Redis 7 has no shard channels. All hand-overs go over the bus, and conditions work.
func TestHandOversInAClusterThatKnowsNoShards(t *testing.T) {
	t.Parallel()
	var options []string
	if redisserver.KnowsShards(t) {
		options = []string{"--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", ""}
	}
	s, servers := cluster(t, 0, options...)
	all := nodes(t, servers)
	require.ErrorContains(t, all[0].do("SPUBLISH", "c", "m").Error(), "unknown command")
	a, b := s.join("a"), s.join("b")
	before, times := busMessages(all), int64(5)
	for epoch := range times {
		handOver(a, b, uint64(epoch)+1)
	}
	assert.Equal(t, 2*times, busMessages(all)-before, "each message goes to the two other nodes")
	s.pingPong(t)
}

// pingPong lets two processes signal each other in turn.
func (s *site) pingPong(t *testing.T) {
	var turn atomic.Int64 // atomic, because the race detector sees no happens-before edge between processes
	var both sync.WaitGroup
	for mine := range int64(2) {
		lock := s.session(reentrant.WithLease(lease), reentrant.WithHeartbeat(lease/12)).NewLock("turns")
		changed := lock.NewCondition("changed")
		both.Go(func() {
			assert.NoError(t, lock.Do(t.Context(), func(ctx context.Context) error {
				for turn.Load() < 10 {
					for turn.Load() < 10 && turn.Load()%2 != mine {
						if err := changed.Await(ctx); err != nil {
							return err
						}
					}
					turn.Add(1)
					if err := changed.Signal(ctx); err != nil {
						return err
					}
				}
				return nil
			}))
		})
	}
	both.Wait()
	assert.GreaterOrEqual(t, turn.Load(), int64(10))
}

// A signal to a session that has waited for the lock is sent on the session's channel for the lock's hash tag.
func TestSignalsInAClusterStayOnTheNode(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, servers := cluster(t, 0)
	all := nodes(t, servers)
	s.pingPong(t)
	a, b := s.join("a"), s.join("b")
	next := untilHeard(all, shardChannel("lock", "b"), a, b, 1)
	before := busMessages(all)
	for i := range uint64(3) {
		epoch := next + 10*i
		b.awaits(epoch)
		a.take(epoch)
		a.signal(epoch, 1)
		assert.Equal(t, signal{epoch + 1, true}, await(t, b.signals, "the signal arrives"))
		require.Equal(t, backend.Released, a.release(epoch))
		assert.Equal(t, epoch+1, b.granted().Epoch)
		require.Equal(t, backend.Released, b.release(epoch+1))
	}
	assert.Equal(t, before, busMessages(all), "no message goes over the bus")
}

func TestALostShardIsOpenedAgain(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, servers := cluster(t, 0)
	all := nodes(t, servers)
	for i, resp2 := range []bool{false, true} {
		client := connect(t, servers.Masters[0].Addr(), func(o *rueidis.ClientOption) { o.AlwaysRESP2 = resp2 })
		var err error
		s.b, err = redisbackend.New(client)
		require.NoError(t, err)
		s.name = text(int64(i))
		a, b := s.join("a"), s.join("b")
		<-b.resumed
		epoch := uint64(1)
		for range 3 {
			epoch = untilHeard(all, shardChannel(s.name, "b"), a, b, epoch)
			for len(b.resumed) > 0 {
				<-b.resumed
			}
			hangUp(all)
			for range 2 { // the session's channel and the lock's channel
				b.hearsOfResumption()
			}
			handOver(a, b, epoch)
			epoch++
		}
	}
}

// hangUp closes all connections that are now subscribed, on every node. It does not close connections that are opened later.
func hangUp(all []*site) {
	listening := make([][]string, len(all))
	for i, node := range all {
		listening[i] = connections(node, "TYPE", "pubsub")
	}
	for i, node := range all {
		for _, id := range listening[i] {
			node.run("CLIENT", "KILL", "ID", id)
		}
	}
}

// hearsOfResumption waits until the session is notified that it may have missed messages.
func (m *member) hearsOfResumption() {
	m.Helper()
	select {
	case <-m.resumed:
	case <-time.After(silence):
		require.FailNow(m, "the sink was not notified that the channel was opened again")
	}
}

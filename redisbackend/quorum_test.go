package redisbackend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
)

// A council is a set of real Redis servers, and a lock over all of them.
type council struct {
	*testing.T
	name    string
	limit   time.Duration // a node's time limit, unless it is the usual one
	servers []*redisserver.Server
	nodes   []*site // clients for plain commands, one for each server
}

func newCouncil(t *testing.T, n int, options ...string) *council {
	c := &council{T: t, name: "lock", limit: patient}
	for range n {
		server := redisserver.Start(t, options...)
		c.servers = append(c.servers, server)
		c.nodes = append(c.nodes, &site{T: t, client: memberClient(t, server), name: c.name})
	}
	return c
}

// memberClient makes a client even if the node is down. The client waits for the node's replies longer than this machine may
// stand still.
func memberClient(t testing.TB, server *redisserver.Server) rueidis.Client {
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, PipelineMultiplex: -1,
		ForceSingleClient: true, ConnWriteTimeout: limit, RingScaleEachConn: smallRing, ReadBufferEachConn: smallBuffer, WriteBufferEachConn: smallBuffer}
	option.Dialer.Timeout = limit
	client, err := rueidis.NewClient(option)
	if client == nil {
		require.NoError(t, err)
	}
	t.Cleanup(client.Close)
	return client
}

// quorum makes a backend with clients of its own, as another process would do.
func (c *council) quorum() *redisbackend.Quorum {
	c.Helper()
	var clients []rueidis.Client
	for _, server := range c.servers {
		clients = append(clients, memberClient(c, server))
	}
	q, err := redisbackend.NewQuorum(clients)
	require.NoError(c, err)
	if c.limit != 0 {
		redisbackend.SetNodeLimit(q, c.limit)
	}
	return q
}

// opened opens a session. A majority of the nodes must reply within five seconds, for which this machine may be too busy, so
// opened tries again.
func opened(t *testing.T, q *redisbackend.Quorum, id string, sink backend.Sink) backend.Conn {
	t.Helper()
	var conn backend.Conn
	var err error
	require.Eventually(t, func() bool {
		conn, err = q.Connect(t.Context(), id, sink)
		return !errors.Is(err, backend.ErrNoQuorum)
	}, limit, tick, "a majority is quick enough")
	require.NoError(t, err)
	return conn
}

// refusal returns the error with which a node refuses a session. It opens sessions until the error comes in time.
func refusal(t *testing.T, q *redisbackend.Quorum) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		var conn backend.Conn
		if conn, err = q.Connect(t.Context(), "refused", newMember()); err == nil {
			_ = conn.Close() // this command never fails
		}
		return backend.Refused(err)
	}, silence, tick, "a node refuses")
	return err
}

// join opens a session.
func (c *council) join(id string) *member {
	c.Helper()
	return joinQuorum(c.T, c.quorum(), id)
}

// on returns the numbers of the nodes that have a hold of a session. The first node has the number 1.
func (c *council) on(m *member) (nodes []int) {
	c.Helper()
	for i := range c.servers {
		if strings.HasPrefix(c.holder(i), m.id+":") {
			nodes = append(nodes, i+1)
		}
	}
	return nodes
}

// holder returns the session and the owner that have the lock at a node, as "session:owner". It returns "" if the lock is free
// or the node is down.
func (c *council) holder(i int) string {
	pairs, _ := c.nodes[i].do("HGETALL", c.name).AsStrMap()
	for field := range pairs {
		return field
	}
	return ""
}

// everywhere waits until all nodes have the session's hold.
func (c *council) everywhere(m *member) {
	c.Helper()
	c.nodes[0].eventually(func() bool { return len(c.on(m)) == len(c.servers) }, "all nodes have the hold")
}

// nowhere waits until no node has anything of the session.
func (c *council) nowhere(m *member) {
	c.Helper()
	c.nodes[0].eventually(func() bool { return len(c.on(m)) == 0 }, "no node has anything left")
}

// try sends one copy of an attempt, and returns the reply and how long it took.
func (m *member) try(epoch uint64, change ...func(*backend.AcquireRequest)) (backend.AcquireReply, time.Duration, error) {
	began := time.Now()
	reply, err := m.remote.Acquire(m.ctx(), request(epoch, change...))
	return reply, time.Since(began), err
}

// gets sends new attempts until one gets the lock: a node that was away may learn late that the lock was released.
func (m *member) gets(epoch *uint64) backend.Token {
	m.Helper()
	var reply backend.AcquireReply
	require.Eventually(m, func() bool {
		*epoch++
		var err error
		reply, _, err = m.try(*epoch)
		return err == nil && reply.Status == backend.Granted
	}, limit, tick, "the lock can be acquired")
	return reply.First
}

// gives releases the lock. If too few nodes reply in time, it repeats the release.
func (m *member) gives(epoch uint64) {
	m.Helper()
	for first, repeated := time.Now(), false; ; repeated = true {
		began := time.Now()
		result, err := m.remote.Release(m.ctx(), backend.ReleaseRequest{Epoch: epoch})
		if errors.Is(err, backend.ErrNoQuorum) && time.Since(began) > slow && time.Since(first) < limit {
			continue
		}
		require.NoError(m, err)
		if !repeated || result != backend.Nothing { // an earlier copy of the release may have been executed
			require.Equal(m, backend.Released, result)
		}
		return
	}
}

// idle waits until the background work that the session's verbs have started is done.
func (m *member) idle() {
	m.Helper()
	redisbackend.Idle(m.conn.(unhurriedConn).Conn)
}

const (
	// patient is the time limit of a node in tests that do not wait until it has passed: every command gets its reply, however
	// busy this machine is. When a majority has replied, the other nodes get only a small part of this time.
	patient = 2 * time.Minute
	// usual is the time limit that callers of the backend have.
	usual = 500 * time.Millisecond
	// opening is less than the time limit of a node when a session is opened.
	opening = 4 * time.Second
	// bounded is far more than the usual limits of all rounds of an attempt together, and far less than the time in which an
	// attempt may be executed.
	bounded = 30 * time.Second
)

// soon requires that a call ends within bounded. If the call takes longer, this machine may have stood still, so soon repeats
// it.
func soon(t *testing.T, call func() (took time.Duration), why ...any) {
	t.Helper()
	took := call()
	for tries := 0; took >= bounded && tries < 3; tries++ {
		took = call()
	}
	require.Less(t, took, bounded, why...)
}

func TestQuorumIsOf3Or5Masters(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	clients := func(n int) (list []rueidis.Client) {
		for i := range n {
			list = append(list, c.nodes[i%3].client)
		}
		return list
	}
	for _, n := range []int{0, 1, 2, 4, 6, 7} {
		_, err := redisbackend.NewQuorum(clients(n))
		require.ErrorContains(t, err, "3 or 5")
	}
	_, err := redisbackend.NewQuorum(clients(5))
	require.ErrorContains(t, err, "nodes 1 and 4 are the same")
	_, err = redisbackend.NewQuorum([]rueidis.Client{clients(1)[0], nil, clients(3)[2]})
	require.ErrorContains(t, err, "node 2")
	_, err = redisbackend.NewQuorum(clients(3), redisbackend.WithReplicas(1, time.Second))
	require.ErrorContains(t, err, "WithReplicas")
	_, err = redisbackend.NewQuorum(clients(3), redisbackend.WithPrefix("{"))
	require.Error(t, err)
	_, err = redisbackend.NewQuorum(clients(3), redisbackend.WithPrefix("app:"))
	require.NoError(t, err)
}

func TestQuorumGoesOnWithoutAMinority(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		for i := range n / 2 {
			c.servers[i].Stop()
		}
		a, b := c.join("a"), c.join("b")
		last := a.take(1)
		reply, _, err := b.try(1)
		require.NoError(t, err)
		require.Equal(t, backend.Waiting, reply.Status)
		require.Equal(t, 2, a.reenter(1, 1, 2, 0).Holds)
		require.True(t, a.renews(1, lease))
		require.True(t, a.inspect().Locked)
		require.Equal(t, backend.Released, a.release(1))
		require.False(t, a.inspect().Locked)
		require.Greater(t, b.take(2), last)
	}
}

func TestQuorumKeepsAHoldWhileAMinorityFails(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		a, b := c.join("a"), c.join("b")
		a.take(1)
		c.everywhere(a)
		for i := range n / 2 {
			c.servers[i].Stop()
		}
		require.True(t, a.renews(1, lease))
		reply, _, err := b.try(1, barge)
		require.NoError(t, err)
		require.NotEqual(t, backend.Granted, reply.Status)
		require.Equal(t, backend.Released, a.release(1))
	}
}

// Without a majority the call soon returns an error that says so, and the nodes that granted the lock have released it.
func TestQuorumReportsAMissingMajority(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		a := c.join("a")
		for i := range n/2 + 1 {
			c.servers[i].Stop()
		}
		epoch := uint64(0)
		soon(t, func() time.Duration {
			epoch++
			_, took, err := a.try(epoch, queue)
			require.ErrorIs(t, err, backend.ErrNoQuorum)
			require.False(t, backend.Refused(err), "%v", err)
			return took
		})
		c.nowhere(a)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		epoch++
		_, err := a.remote.Acquire(ended, request(epoch))
		require.ErrorIs(t, err, context.Canceled)

		one := []backend.Renewal{{Remote: a.remote, Epoch: 1, Lease: lease}}
		a.conn.Renew(a.ctx(), one)
		require.ErrorIs(t, one[0].Err, backend.ErrNoQuorum)
		require.False(t, one[0].Gone)
		_, err = a.remote.Reenter(a.ctx(), backend.ReenterRequest{Epoch: 1, Owner: "1", Op: 1, Holds: 2})
		require.ErrorIs(t, err, backend.ErrNoQuorum)
		_, err = a.remote.Release(a.ctx(), backend.ReleaseRequest{Epoch: 2})
		require.ErrorIs(t, err, backend.ErrNoQuorum)
		_, err = a.remote.Inspect(a.ctx())
		require.ErrorIs(t, err, backend.ErrNoQuorum)
		_, err = a.remote.ForceUnlock(a.ctx(), time.Now().Add(time.Minute))
		require.ErrorIs(t, err, backend.ErrNoQuorum)
		_, err = c.quorum().Connect(a.ctx(), "b", newMember())
		require.ErrorIs(t, err, backend.ErrNoQuorum)

		for i := range n/2 + 1 {
			c.servers[i].Restart(t)
		}
		a.gets(&epoch) // the nodes reply again
	}
}

// A hold that a minority granted is released when the other nodes have replied that another session has the lock. A node that
// was frozen releases its hold when it runs again.
func TestQuorumReleasesWhatAMinorityGranted(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a, b := c.join("a"), c.join("b")
	c.servers[2].Stop()
	a.take(1)
	c.servers[2].Restart(t)
	c.nodes[0].eventually(func() bool { return c.nodes[2].do("PING").Error() == nil }, "node 3 is back")
	for epoch := uint64(1); epoch < 10; epoch++ {
		reply, _, err := b.try(epoch)
		require.NoError(t, err)
		require.NotEqual(t, backend.Granted, reply.Status)
		b.idle() // node 3 may be the last one to grant the lock
		require.Empty(t, c.on(b))
	}
	require.Equal(t, []int{1, 2}, c.on(a))
}

// A release is also sent to a node that did not reply. If this node executes the attempt later, the attempt is refused or
// undone.
func TestQuorumReleasesWhatASilentNodeMayHaveGranted(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	q := c.quorum()
	a, b := c.join("a"), joinQuorum(t, q, "b")
	redisbackend.SetNodeLimit(q, usual) // releases have more time than this, since the nodes are frozen meanwhile
	c.servers[2].Freeze()
	a.take(1)
	c.servers[0].Freeze()
	epoch := uint64(0)
	var err error
	for tries := 0; !backend.OutcomeUnknown(err) && tries < 10; tries++ { // the time may be over before they are sent
		soon(t, func() (took time.Duration) { // node 2 refuses, and nodes 1 and 3 may have granted the lock
			epoch++
			_, took, err = b.try(epoch, queue)
			require.ErrorIs(t, err, backend.ErrNoQuorum)
			return took
		})
	}
	require.True(t, backend.OutcomeUnknown(err), "%v", err)
	c.servers[0].Thaw()
	c.servers[2].Thaw()
	c.nowhere(b)
	require.Contains(t, c.on(a), 1)
	require.Contains(t, c.on(a), 2)
}

// The session does not wait for a frozen node: the replies of the other nodes are enough.
func TestQuorumDoesNotWaitForAFrozenNode(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a, b := c.join("a"), c.join("b")
	a.take(1)
	a.release(1)
	c.servers[0].Freeze()
	epoch := uint64(1)
	for range 3 {
		soon(t, func() time.Duration {
			epoch++
			began := time.Now()
			a.take(epoch)
			reply, _, err := b.try(epoch)
			require.NoError(t, err)
			require.NotEqual(t, backend.Granted, reply.Status)
			require.True(t, a.renews(epoch, lease))
			a.reenter(epoch, 1, 2, 0)
			a.inspect()
			require.Equal(t, backend.Released, a.release(epoch))
			return time.Since(began)
		}, "a verb that waited for a node's limit would have taken longer")
	}
	c.servers[0].Thaw()
	c.nowhere(a)
}

// A node that comes back empty while a lock is held gets the hold back with the next renewal. No other session gets the lock.
func TestQuorumPutsAHoldBack(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		a, b := c.join("a"), c.join("b")
		token := a.take(1)
		a.reenter(1, 1, 3, 0)
		c.everywhere(a)
		epoch := uint64(0)
		for i := range n { // one node after the other, until no node has what was first written to it
			c.servers[i].Stop()
			c.servers[i].Restart(t)
			c.nodes[0].eventually(func() bool { return c.nodes[i].do("PING").Error() == nil }, "the node is back")
			epoch++
			reply, _, err := b.try(epoch, barge)
			require.NoError(t, err)
			require.NotEqual(t, backend.Granted, reply.Status, "with node %d empty", i+1)
			c.nowhere(b)
			c.nodes[0].eventually(func() bool {
				return a.renews(1, lease) && slices.Contains(c.on(a), i+1)
			}, "the node has the hold again")
			holds, err := c.nodes[i].do("HGET", c.name, "a:1").ToString()
			require.NoError(t, err)
			require.Equal(t, "3", holds)
		}
		require.Equal(t, backend.Released, a.release(1))
		c.nowhere(a)
		require.Greater(t, b.take(epoch+1), token, "the nodes know the token only from the holds that were put back")
	}
}

// A hold whose lease has ended at a node that was cut off is put back at this node, too. So the hold does not depend on a bare
// majority for long.
func TestQuorumPutsBackAHoldThatHasEndedAtANode(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		a, b := c.join("a"), c.join("b")
		token := a.take(1)
		c.everywhere(a)
		for i := range n / 2 {
			c.nodes[i].lapse()
		}
		c.nodes[0].eventually(func() bool { return a.renews(1, lease) && len(c.on(a)) == n }, "all nodes have it again")
		for i := range n / 2 { // as many nodes as may fail, but other ones than before
			c.nodes[n-1-i].run("FLUSHALL")
		}
		reply, _, err := b.try(1, barge)
		require.NoError(t, err)
		require.NotEqual(t, backend.Granted, reply.Status)
		c.nowhere(b)
		c.nodes[0].eventually(func() bool { return a.renews(1, lease) && len(c.on(a)) == n }, "all nodes have it again")

		a.idle()
		b.idle()
		c.nodes[0].run("CONFIG", "RESETSTAT")
		for range 5 {
			require.True(t, a.renews(1, lease))
		}
		a.idle()
		require.Equal(t, 5, scriptCalls(c.nodes[0]), "a node that has the hold gets only renewals")
		require.Equal(t, backend.Released, a.release(1))
		require.Greater(t, b.take(2), token)
	}
}

// A hold that the majority has forgotten is lost, and comes back on no node.
func TestQuorumDoesNotPutALostHoldBack(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a, b := c.join("a"), c.join("b")
	token := a.take(1)
	c.everywhere(a)
	c.nodes[0].run("FLUSHALL")
	c.nodes[1].run("FLUSHALL")
	require.False(t, a.renews(1, lease))
	a.idle()
	require.Equal(t, []int{3}, c.on(a))
	c.overtake(token)
	require.Greater(t, b.take(1), token)
}

// A hold is put back only if a majority is known to have it. Otherwise another session may have had the lock meanwhile.
func TestQuorumPutsNothingBackForAMinority(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a := c.join("a")
	a.take(1)
	c.everywhere(a)
	c.servers[0].Stop()
	c.nodes[1].lapse()
	one := []backend.Renewal{{Remote: a.remote, Epoch: 1, Lease: lease}}
	a.conn.Renew(a.ctx(), one)
	require.ErrorIs(t, one[0].Err, backend.ErrNoQuorum)
	a.idle()
	require.Equal(t, []int{3}, c.on(a))
}

// overtake waits until the nodes' clock has passed a token that may be on no node any more. From then on all new tokens are
// above that token.
func (c *council) overtake(token backend.Token) {
	c.Helper()
	c.nodes[0].eventually(func() bool { return c.nodes[0].clock() > int64(token) }, "the clock passes the token")
}

// A hold that is put back at a node is released together with the others, whether the release or the command that puts it back
// arrives first.
func TestQuorumPutsNothingBackAfterARelease(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a := c.join("a")
	for epoch := uint64(1); epoch < 60; epoch++ {
		a.take(epoch)
		c.everywhere(a)
		if node := c.nodes[epoch%3]; epoch%4 < 2 {
			node.run("DEL", c.name, node.side("t")) // the node has forgotten everything
		} else {
			node.run("DEL", c.name) // the hold's lease has ended at that node
		}
		renewed := make(chan struct{})
		go func() {
			defer close(renewed)
			a.conn.Renew(a.Context(), []backend.Renewal{{Remote: a.remote, Epoch: epoch, Lease: lease}})
		}()
		if epoch%2 == 0 {
			<-renewed
		}
		require.Equal(t, backend.Released, a.release(epoch))
		<-renewed
		c.nowhere(a)
		a.idle()
		require.Empty(t, c.on(a), "the lock stays free")
	}
}

// Two majorities have one node in common. If only this node knows the highest token, the token is used only after a majority
// has learned it.
func TestQuorumTokensRiseOverMajorities(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	single, err := redisbackend.New(c.nodes[0].client)
	require.NoError(t, err)
	ahead := (&site{T: t, client: c.nodes[0].client, name: c.name}).joinVia(single, "ahead")
	far := ahead.take(1, func(r *backend.AcquireRequest) { r.Seen = backend.Token(time.Now().Add(time.Hour).UnixMicro()) })
	ahead.release(1)

	c.servers[2].Stop()
	a := c.join("a")
	token := a.take(1) // nodes 1 and 2 give this token
	require.Greater(t, token, far)
	require.Equal(t, token, a.inspect().Token)
	require.Equal(t, backend.Released, a.release(1))
	c.servers[2].Restart(t)
	c.servers[0].Stop()
	b := c.join("b")
	require.Greater(t, b.take(1), token) // by nodes 2 and 3
}

// Tokens rise whichever nodes reply.
func TestQuorumTokensRiseWhileNodesComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 5)
	c.limit = 10 * time.Second // sessions wait for nodes that split their votes, also for frozen ones
	a, b := c.join("a"), c.join("b")
	var last backend.Token
	var epoch uint64
	for round := range 12 {
		down := []int{round % 5, round * 3 % 5}
		for _, i := range down {
			c.servers[i].Freeze()
		}
		for _, m := range []*member{a, b} {
			token := m.gets(&epoch)
			require.Greater(t, token, last)
			last = token
			m.gives(epoch)
		}
		for _, i := range down {
			c.servers[i].Thaw()
		}
	}
}

// The time that the nodes needed is subtracted from the lease. So a majority does not grant the lock if it is complete only
// after the lease has ended.
func TestQuorumDoesNotGrantALeaseThatHasEnded(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a := c.join("a")
	a.take(1)
	c.everywhere(a) // so that all nodes have a record
	a.release(1)
	c.nowhere(a)
	for epoch := uint64(2); epoch < 5; epoch++ {
		c.servers[0].Freeze()
		c.servers[1].Freeze()
		var reply backend.AcquireReply
		var err error
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			reply, _, err = a.try(epoch, func(r *backend.AcquireRequest) { r.Lease = unhurriedLease })
		}()
		c.nodes[2].eventually(func() bool { return c.nodes[2].record()[3] == text(int64(epoch)) }, "the third node has carried out the attempt")
		time.Sleep(2 * unhurriedLease) // the other nodes are frozen at least this long
		c.servers[0].Thaw()
		c.servers[1].Thaw()
		<-answered
		require.NotEqual(t, backend.Granted, reply.Status)
		require.Error(t, err)
		c.nowhere(a)
	}
}

// If one node refuses, the error still says correctly whether another session has the lock or too few nodes are left.
func TestQuorumDistinguishesRefusalsFromHolders(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	a, b := c.join("a"), c.join("b")
	c.nodes[0].run("SET", c.name, "of another type")
	a.take(1)
	reply, _, err := b.try(1)
	require.NoError(t, err)
	require.Equal(t, backend.Waiting, reply.Status)
	require.True(t, a.renews(1, lease))
	require.Equal(t, backend.Released, a.release(1))

	c.servers[1].Stop()
	_, _, err = a.try(2)
	require.ErrorIs(t, err, backend.ErrNoQuorum)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.False(t, backend.Refused(err), "with node 2 back it can be acquired: %v", err)

	c.nodes[2].run("SET", c.name, "of another type")
	_, _, err = a.try(3)
	require.ErrorIs(t, err, backend.ErrNoQuorum)
	require.True(t, backend.Refused(err), "with nodes 1 and 3 refusing it cannot: %v", err)
}

func TestQuorumConnectNamesTheNodeThatRefuses(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	c.nodes[1].run("CONFIG", "SET", "requirepass", "secret")
	err := refusal(t, c.quorum())
	require.ErrorContains(t, err, "node 2")
	require.ErrorContains(t, err, "NOAUTH")
}

// Connect also finds that a right is missing which is needed only when sessions contend for a lock. Then it leaves no channel
// open.
func TestQuorumConnectChecksTheRightToChannels(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"subscribe", "publish"} {
		c := newCouncil(t, 3)
		c.nodes[2].run("ACL", "SETUSER", "default", "-"+right)
		err := refusal(t, c.quorum())
		require.ErrorContains(t, err, "node 3")
		require.ErrorContains(t, err, "NOPERM")
		for i := range 2 {
			c.nodes[i].eventually(func() bool {
				heard, err := c.nodes[i].do("PUBSUB", "NUMSUB", "relock:session:refused").ToArray()
				return err == nil && must(heard[1].ToInt64()) == 0
			}, "the channels are closed")
		}
	}
}

// The documented rights are enough for a quorum. Opening a session needs no other rights.
func TestQuorumNeedsNoOtherRights(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	user := leastUser(t, nil, c.nodes...)
	var clients []rueidis.Client
	for _, server := range c.servers {
		clients = append(clients, connect(t, server.Addr(), user, func(o *rueidis.ClientOption) { o.ForceSingleClient = true }))
	}
	q, err := redisbackend.NewQuorum(clients, redisbackend.WithPrefix("app:"))
	require.NoError(t, err)
	redisbackend.SetNodeLimit(q, patient)
	a, b := joinQuorum(t, q, "a"), joinQuorum(t, q, "b")
	a.take(1)
	for _, node := range c.nodes { // take returns when a majority has replied, so some nodes may be late
		node.eventually(func() bool { return must(node.do("EXISTS", "app:lock").ToInt64()) == 1 }, "every node has the hold")
	}
	b.wait(1)
	c.nodes[0].run("DEL", "app:lock")
	require.True(t, a.renews(1, lease))
	require.Equal(t, 2, a.reenter(1, 1, 2, 0).Holds)
	require.Equal(t, backend.Released, a.release(1))
	b.granted()
	_, err = b.remote.ForceUnlock(b.ctx(), time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.NoError(t, a.conn.Close()) // Close waits for the work in the background
	require.NoError(t, b.conn.Close())
	for _, node := range c.nodes {
		wellBehaved(node)
	}
}

// A node that hangs does not keep a process from opening a session.
func TestQuorumConnectDoesNotWaitForAFrozenNode(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	c.limit = 0
	q := c.quorum()
	c.servers[0].Freeze()
	fewest := time.Hour
	for tries := int64(0); fewest >= opening && tries < 5; tries++ { // this machine may stand still for some seconds
		began := time.Now()
		conn := opened(t, q, text(tries), newMember())
		fewest = min(fewest, time.Since(began))
		defer func() { require.NoError(t, conn.Close()) }()
	}
	c.servers[0].Thaw()
	require.Less(t, fewest, opening, "opening the session waited for the frozen node")
}

// If several names lead to one server, it counts as one node.
func TestQuorumConnectFindsOneServerUnderTwoNames(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	alias := connect(t, "another-name:6379", func(o *rueidis.ClientOption) {
		o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", c.servers[0].Addr())
		}
	})
	q, err := redisbackend.NewQuorum([]rueidis.Client{c.nodes[0].client, c.nodes[1].client, alias})
	require.NoError(t, err)
	redisbackend.SetNodeLimit(q, patient)
	require.ErrorContains(t, refusal(t, q), "the same server as node")
}

// A node that was down when the session was opened takes part as soon as it is up.
func TestQuorumNodesJoinLater(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	c.servers[0].Stop()
	a := c.join("a")
	a.take(1)
	c.servers[0].Restart(t)
	c.nodes[0].eventually(func() bool { return a.renews(1, lease) && slices.Contains(c.on(a), 1) }, "node 1 has the hold too")
	a.release(1)
	c.nowhere(a)
}

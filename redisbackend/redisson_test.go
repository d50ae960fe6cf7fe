package redisbackend_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
)

// These tests do what Redisson's clients do, without Java. Redisson's RLock is a hash with one field, and Redisson publishes a
// message when the lock is freed. Package redisson has similar tests with Redisson itself.

const (
	javaThread  = "8b0b3a52-9a3c-4f3f-b6a5-111111111111:42"
	javaChannel = "redisson_lock__channel:{lock}"
)

// withRedisson gives the site a backend that shares its locks with Redisson.
func (s *site) withRedisson() *site {
	s.Helper()
	b, err := redisbackend.New(s.client, redisbackend.WithRedisson())
	require.NoError(s, err)
	return &site{T: s.T, name: s.name, client: s.client, b: b, began: s.began}
}

// javaLocks takes a free lock in the way in which a thread of a Redisson client takes it.
func (s *site) javaLocks() {
	s.Helper()
	s.run("HINCRBY", s.name, javaThread, "1")
	s.run("PEXPIRE", s.name, text(lease.Milliseconds()))
}

// A subscription delivers the messages of a channel.
type subscription struct {
	messages chan string
	mark     func() // mark publishes a mark behind all messages that Redis has published on the channel
}

// subscribe listens to a channel by SUBSCRIBE or, if sharded, by SSUBSCRIBE. Redisson does either.
func (s *site) subscribe(sharded bool, channel string) subscription {
	s.Helper()
	heard, open := make(chan string, 100), make(chan struct{})
	client, release := s.client.Dedicate()
	s.Cleanup(release)
	client.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(rueidis.PubSubSubscription) { close(open) },
		OnMessage:      func(m rueidis.PubSubMessage) { heard <- m.Message },
	})
	cmd, publish := client.B().Subscribe().Channel(channel).Build(), "PUBLISH"
	if sharded {
		cmd, publish = client.B().Ssubscribe().Channel(channel).Build(), "SPUBLISH"
	}
	require.NoError(s, client.Do(s.ctx(), cmd).Error())
	await(s.T, open, "the subscription")
	return subscription{heard, func() {
		s.Helper()
		mark := s.client.B().Arbitrary(publish).Keys(channel).Args("marked").Build() // published by the node that has the lock's slot
		require.NoError(s, s.client.Do(s.ctx(), mark).Error())
	}}
}

// says asserts that exactly one message was published since the last call, and that the message is want.
func (s subscription) says(t *testing.T, want, why string) {
	t.Helper()
	s.mark()
	require.Equal(t, want, await(t, s.messages, "a message, or the mark"), why)
	require.Equal(t, "marked", await(t, s.messages, "the mark"), why)
}

// listens waits until a session has opened Redisson's channel.
func (s *site) listens(sessions int64) {
	s.Helper()
	s.eventually(func() bool { return s.listeners(javaChannel) == sessions }, "sessions listen to Redisson")
}

// listeners returns how many connections listen to a channel. If Redis does not reply in time, it returns 0.
func (s *site) listeners(channel string) (n int64) {
	if list, err := s.do("PUBSUB", "NUMSUB", channel).ToArray(); err == nil {
		n, _ = list[1].AsInt64()
	}
	return n
}

func TestAFreedLockIsPublishedForRedisson(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s = s.withRedisson()
		heard := s.subscribe(false, javaChannel)
		a, b := s.join("a"), s.join("b")
		a.take(1)
		require.Equal(t, backend.Released, a.release(1))
		heard.says(t, "0", "the release")
		a.take(2)
		forced, err := b.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))
		require.NoError(t, err)
		require.True(t, forced)
		heard.says(t, "0", "ForceUnlock")
		a.take(3)
		status, err := a.conditions().Await(s.ctx(), backend.AwaitRequest{Epoch: 3, Ticket: 4, Condition: "c", Owner: "1", Holds: 1,
			Patience: patience, GrantTTL: grantTTL})
		require.NoError(t, err)
		require.Equal(t, backend.Waited, status)
		heard.says(t, "0", "Await")
		b.take(1)
		a.wait(5)
		b.release(1)
		a.granted()
		assert.Empty(t, heard.messages, "no message: the lock was handed to a waiter and is not free")
		assert.Equal(t, backend.Released, a.release(5))
		heard.says(t, "0", "now the lock is free")
		assert.Equal(t, backend.Nothing, a.release(5))
		s.javaLocks()
		assert.Equal(t, backend.Nothing, a.release(6), "a session cannot release Redisson's hold")
		assert.Equal(t, javaThread+"=1", s.hash())
		assert.Empty(t, heard.messages)
	})
}

// A lock that Redisson frees goes to the session that has waited longest. This needs no heartbeat: the test sends none.
func TestRedissonsUnlockIsHeard(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s = s.withRedisson()
		s.javaLocks()
		a, b := s.join("a"), s.join("b")
		a.wait(1)
		b.wait(1)
		s.listens(2)
		for _, m := range []*member{a, b} {
			s.run("DEL", s.name)
			s.run("PUBLISH", javaChannel, "0")
			m.granted()
			assert.Equal(t, m.id+":1=1", s.hash())
			s.javaLocks() // the session's hold ends only now, so that no offer found the lock free before
			s.run("HDEL", s.name, m.id+":1")
		}
	})
}

// A message may have been published before the channel was open. So the session asks again when the channel opens.
func TestRedissonsUnlockBeforeTheChannelIsOpen(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s = s.withRedisson()
		for _, id := range []string{"a", "b", "c", "d", "e"} { // a slow process may open a channel before the message
			s.javaLocks()
			session := s.join(id)
			session.wait(1)
			s.run("DEL", s.name)
			s.run("PUBLISH", javaChannel, "0") // arrives only if the channel is open
			session.granted()
			session.release(1)
		}
	})
}

// A session that does not wait sends nothing when a message arrives. If the session waits again, it receives messages again.
func TestRedissonIsHeardWhileASessionWaits(t *testing.T) {
	s := realRedis(t).withRedisson()
	s.javaLocks()
	a := s.join("a")
	for epoch := uint64(1); epoch < 20; epoch++ {
		a.wait(epoch)
		s.listens(1)
		s.run("DEL", s.name)
		s.run("PUBLISH", javaChannel, "0")
		a.granted()
		s.javaLocks() // a second field, which Redisson would not make: a release by name still finds its own
		s.run("HDEL", s.name, "a:1")
	}
	// The session also waits for another lock. It hears of the other lock after everything else, on the same connection.
	const otherChannel = "redisson_lock__channel:{other}"
	s.name, a.remote = "other", a.bind("other")
	s.javaLocks()
	a.wait(1)
	s.eventually(func() bool { return s.listeners(otherChannel) == 1 }, "the session listens for the other lock")
	before := evals(t, s.client)
	for range 100 {
		s.run("PUBLISH", javaChannel, "0")
	}
	s.run("DEL", s.name)
	s.run("PUBLISH", otherChannel, "0")
	for a.granted().Name != s.name { // the first lock may have been granted more than once
	}
	assert.LessOrEqual(t, evals(t, s.client)-before, 3, "an offer of the other lock, and those that were under way")
}

func TestRedissonsChannelIsOpenedAgain(t *testing.T) {
	s := realRedis(t).withRedisson()
	s.javaLocks()
	a := s.join("a")
	a.wait(1)
	s.listens(1)
	s.run("CLIENT", "KILL", "TYPE", "pubsub")
	s.listens(1)
	s.eventually(func() bool { return s.listeners("relock:session:a") == 1 }, "the session also listens to its own channel")
	s.run("DEL", s.name)
	s.run("PUBLISH", javaChannel, "0")
	a.granted()
}

// If a name contains braces, Redisson adds no braces of its own.
func TestRedissonsChannelOfANameWithBraces(t *testing.T) {
	s := realRedis(t).withRedisson()
	heard := s.subscribe(false, "redisson_lock__channel:{user}:7")
	s.name = "{user}:7"
	a := s.join("a")
	a.take(1)
	a.release(1)
	heard.says(t, "0", "the release")
}

func TestWithPrefixARedissonLocksNameHasThePrefix(t *testing.T) {
	s := realRedis(t)
	heard := s.subscribe(false, "redisson_lock__channel:{app:lock}")
	b, err := redisbackend.New(s.client, redisbackend.WithRedisson(), redisbackend.WithPrefix("app:"))
	require.NoError(t, err)
	a := s.joinVia(b, "a")
	a.take(1)
	a.release(1)
	heard.says(t, "0", "the release")
	s.run("HSET", "app:lock", javaThread, "1")
	s.run("PEXPIRE", "app:lock", text(lease.Milliseconds()))
	a.wait(2)
	s.run("DEL", "app:lock")
	a.granted()
}

// Without WithRedisson, sessions neither publish messages for Redisson nor listen to Redisson's channels.
func TestRedissonCostsNothingWithoutTheOption(t *testing.T) {
	s := realRedis(t)
	heard := s.subscribe(false, javaChannel)
	a, b := s.join("a"), s.join("b")
	a.take(1)
	b.wait(1)
	a.release(1)
	b.granted()
	b.release(1)
	s.listens(1)
	s.run("PUBLISH", javaChannel, "end")
	heard.says(t, "end", "no other message was published")
}

// In a Cluster the message goes to both kinds of channels, since Redisson listens to either.
func TestAFreedLockIsPublishedForRedissonInACluster(t *testing.T) {
	t.Parallel()
	s, _ := cluster(t, 0)
	s = s.withRedisson()
	heard := s.subscribe(false, javaChannel)
	a := s.join("a")
	a.take(1)
	a.release(1)
	heard.says(t, "0", "the release")
	if redisserver.KnowsShards(t) {
		sharded := s.subscribe(true, javaChannel)
		a.take(11)
		a.release(11)
		sharded.says(t, "0", "the release, on the lock's node")
	}
	s.javaLocks()
	a.wait(12)
	s.run("DEL", s.name)
	s.run("PUBLISH", javaChannel, "0") // the channel may have been open before the lock was freed
	a.granted()
}

func TestWithRedissonRefusesOptionsThatExcludeIt(t *testing.T) {
	client := realRedis(t).client
	_, err := redisbackend.New(client, redisbackend.WithRedisson(), redisbackend.WithoutScripts())
	require.ErrorContains(t, err, "WithRedisson needs scripts")
	_, err = redisbackend.NewQuorum([]rueidis.Client{client, client, client}, redisbackend.WithRedisson())
	require.ErrorContains(t, err, "WithRedisson")
}

// A session that closes waits for its offers that are under way.
func TestRedissonEndsWithItsSession(t *testing.T) {
	s := realRedis(t).withRedisson()
	s.javaLocks()
	m := newMember()
	conn, err := s.b.Connect(t.Context(), "a", m)
	require.NoError(t, err)
	remote, err := conn.Bind(s.name)
	require.NoError(t, err)
	_, err = remote.Acquire(t.Context(), request(1, queue))
	require.NoError(t, err)
	s.listens(1)
	for range 50 {
		s.run("PUBLISH", javaChannel, "0")
	}
	began := time.Now()
	require.NoError(t, conn.Close())
	assert.Less(t, time.Since(began), silence)
	s.listens(0)
}

// Read-write locks and semaphores use other keys than Redisson's objects of the same name, and Redisson looks only at its own
// keys. So a client of Redisson can acquire a name that is in use here, as the documents say. A name that Redisson uses is
// refused here.
func TestRedissonTakesTheNameOfAReadWriteLockOrASemaphore(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for kind, limit := range map[backend.ShareKind]int{backend.ReadWrite: backend.AllUnits, backend.Permits: 3} {
			used := &site{T: t, name: "used-" + text(int64(kind)), client: s.client, b: s.withRedisson().b}
			req := sharing(1, 0, 1)
			req.Kind, req.Limit = kind, limit
			reply, err := used.join("a" + text(int64(kind))).share(req)
			require.NoError(t, err)
			require.Equal(t, 1, reply.Units)
			assert.True(t, used.javaTries())

			taken := &site{T: t, name: "taken-" + text(int64(kind)), client: s.client, b: used.b}
			require.True(t, taken.javaTries())
			_, err = taken.join("b" + text(int64(kind))).share(req)
			require.ErrorIs(t, err, backend.ErrWrongKind)
			assert.True(t, backend.Refused(err))
			assert.Equal(t, javaThread+"=1", taken.hash())
		}
	})
}

// javaTries does what Redisson's tryLock does, and reports whether it acquired the lock.
func (s *site) javaTries() bool {
	s.Helper()
	there, err := s.do("EXISTS", s.name).ToInt64()
	require.NoError(s, err)
	if there == 0 {
		s.javaLocks()
	}
	return there == 0
}

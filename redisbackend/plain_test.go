package redisbackend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// Sessions with and without scripts share a lock, its queue and its conditions.
func TestPlainSharesLocksWithScripts(t *testing.T) {
	addr := redisserver.Start(t).Addr()
	with, err := redisbackend.New(connect(t, addr))
	require.NoError(t, err)
	without, err := redisbackend.New(connect(t, addr), redisbackend.WithoutScripts())
	require.NoError(t, err)
	// The race detector sees no happens-before edge between sessions, as between processes.
	var inside, last, turn atomic.Uint64
	var wg sync.WaitGroup
	for _, b := range []backend.Backend{with, without, with, without} {
		s := newSession(t, b)
		for range 3 {
			wg.Go(func() {
				l := s.NewLock("shared")
				for range 30 {
					if !assert.NoError(t, l.Lock(t.Context())) {
						return
					}
					assert.Equal(t, uint64(1), inside.Add(1))
					token, err := l.Token(t.Context())
					assert.NoError(t, err)
					assert.Greater(t, uint64(token), last.Swap(uint64(token)))
					inside.Add(^uint64(0))
					assert.NoError(t, orLater(l.Unlock)(t.Context()))
				}
			})
		}
	}
	wg.Wait()

	locks := [2]*reentrant.Lock{newSession(t, with).NewLock("turn"), newSession(t, without).NewLock("turn")}
	duel(t, func(ctx context.Context, player int) error {
		changed := locks[player].NewCondition("changed")
		return locks[player].Do(ctx, func(ctx context.Context) error {
			for turn.Load() < 20 {
				move := changed.Await
				if turn.Load()%2 == uint64(player) {
					turn.Add(1)
					move = changed.Signal
				}
				if err := move(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// If several sessions without scripts read the same state at the same time, only one of them gets the lock.
func TestPlainTakesALockOnce(t *testing.T) {
	addr := redisserver.Start(t).Addr()
	var members []*member
	for i := range 4 {
		b, err := redisbackend.New(connect(t, addr), redisbackend.WithoutScripts())
		require.NoError(t, err)
		members = append(members, (&site{T: t, b: b, name: "lock"}).join(text(int64(i))))
	}
	for i := range 20 {
		var taken atomic.Int32
		var wg sync.WaitGroup
		for _, m := range members {
			m.remote = m.bind(text(int64(i)))
			wg.Go(func() {
				reply, err := m.remote.Acquire(t.Context(), request(uint64(i+1)))
				if assert.NoError(t, err) && reply.Status == backend.Granted {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, taken.Load())
	}
}

// Without scripts a session runs none: here the server would refuse them.
func TestPlainNeedsNoScripts(t *testing.T) {
	s := &site{T: t, name: "lock", client: connect(t, redisserver.Start(t).Addr())}
	s.run("ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-@scripting")
	client := connect(t, redisserverAddr(s), password("pw"), func(o *rueidis.ClientOption) { o.Username = "plain" })
	scripted, err := redisbackend.New(client)
	require.NoError(t, err)
	_, err = reentrant.NewSession(scripted)
	require.True(t, backend.Refused(err), "%v", err)

	b, err := redisbackend.New(client, redisbackend.WithoutScripts())
	require.NoError(t, err)
	l := newSession(t, b).NewLock("x")
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, again(l.Verify)(t.Context()))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	stats, err := s.do("INFO", "commandstats").ToString()
	require.NoError(t, err)
	for line := range strings.Lines(stats) {
		if strings.HasPrefix(line, "cmdstat_eval") {
			assert.Contains(t, line, "calls=0", "the only scripts are those that were refused")
		}
	}
}

// Verbs that run one after the other need only one connection, whether or not they change anything.
func TestPlainKeepsItsConnection(t *testing.T) {
	s := realRedis(t).withoutScripts()
	a, b := s.join("a"), s.join("b")
	a.take(1)
	before := everConnected(s)
	for i := range uint64(10) {
		a.take(i + 2)
		a.inspect()
		b.wait(i + 1)
		b.release(i + 1)
		a.release(i + 2)
	}
	assert.Equal(t, before, everConnected(s))
}

// A verb succeeds even if the connections in the client's pool were lost after the previous verb.
func TestPlainAfterItsConnectionsAreLost(t *testing.T) {
	s := realRedis(t).withoutScripts()
	l := newSession(t, s.b).NewLock("x")
	for prompt, tries := 0, 0; prompt < 3; tries++ {
		require.Less(t, tries, 12)
		require.NoError(t, l.Lock(t.Context()))
		_ = s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").Error() // the reply to this command is lost, too
		began := time.Now()
		err := l.Unlock(t.Context())
		if late := errors.Is(err, reentrant.ErrUnavailable) && time.Since(began) > slow; !late {
			require.NoError(t, err)
			prompt++
		}
		_ = s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").Error()
	}
}

// An empty transaction fails if a watched key has changed: its success proves that the values read were consistent.
func TestAnEmptyTransactionFailsIfAWatchedKeyChanged(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		client, release := s.client.Dedicate()
		defer release()
		for i, change := range []func(){
			func() {}, func() { s.run("SET", "key", "2") }, func() { s.run("DEL", "key") }, func() { s.run("SET", "key", "1") },
		} {
			require.NoError(t, client.Do(s.ctx(), client.B().Watch().Key("key").Build()).Error())
			change()
			answers := client.DoMulti(s.ctx(), client.B().Multi().Build(), client.B().Exec().Build())
			assert.Equal(t, i > 0, rueidis.IsRedisNil(answers[1].Error()), "change %d", i)
		}
	})
}

// A master that has become a replica refuses writes until the client has found the new master. Lock waits until then.
func TestLockWaitsWhileTheClientWritesToAFormerMaster(t *testing.T) {
	scripted := realRedis(t)
	for name, s := range map[string]*site{"scripts": scripted, "plain": scripted.withoutScripts()} {
		t.Run(name, func(t *testing.T) {
			m := s.join(name)
			m.remote = m.bind(name)
			m.take(1)
			s.run("REPLICAOF", "127.0.0.1", "1")
			one := []backend.Renewal{{Remote: m.remote, Epoch: 1, Lease: lease}}
			m.conn.Renew(s.ctx(), one)
			_, acquired := m.remote.Acquire(s.ctx(), request(2))
			_, released := m.remote.Release(s.ctx(), backend.ReleaseRequest{Epoch: 1})
			for verb, err := range map[string]error{"renew": one[0].Err, "acquire": acquired, "release": released} {
				require.ErrorContains(t, err, "READONLY", verb)
				assert.False(t, backend.Refused(err), verb)
				assert.False(t, backend.OutcomeUnknown(err), verb)
			}
			s.run("REPLICAOF", "NO", "ONE")
			assert.True(t, m.renews(1, lease))
			assert.Equal(t, backend.Released, m.release(1))
		})
	}
}

func TestPlainWithReplicasIsRefused(t *testing.T) {
	client := connect(t, redisserver.Start(t).Addr())
	_, err := redisbackend.New(client, redisbackend.WithoutScripts(), redisbackend.WithReplicas(1, time.Second))
	assert.ErrorContains(t, err, "WithReplicas needs scripts")
}

// If all connections of the client's pool have been lost, a call still does not fail before its deadline.
func TestPlainAfterAPoolIsLost(t *testing.T) {
	s := realRedis(t).withoutScripts()
	a := s.join("a")
	const many = 30
	taken := make(chan func(), many)
	for range many { // opens so many connections at once
		client, release := s.client.Dedicate()
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
		taken <- release
	}
	for range many {
		(<-taken)()
	}
	_ = s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").Error() // the reply to this command is lost, too
	s.eventually(func() bool {
		began := time.Now()
		_, err := a.remote.Acquire(s.ctx(), request(1))
		if err != nil {
			assert.Greater(t, time.Since(began), time.Second, "Lock does not fail before its deadline: %v", err)
		}
		return err == nil
	}, "the lock is acquired")
	a.release(1)
}

// A server without free memory (noeviction) refuses new locks. It still renews held locks and their records.
func TestPlainRenewsOnAFullServer(t *testing.T) {
	s := realRedis(t)
	for kind, s := range map[string]*site{"scripts": s, "transactions": s.withoutScripts()} {
		s.began = time.Now()
		a, b := s.join("a-"+kind), s.join("b-"+kind)
		a.take(1)
		a.renews(1, lease) // loads the script
		s.shorten()
		s.run("EXPIRE", s.side("t"), "30")
		s.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
		s.run("CONFIG", "SET", "maxmemory", "1")
		_, err := b.remote.Acquire(s.ctx(), request(1, queue))
		require.ErrorContains(t, err, "OOM", kind)
		assert.True(t, a.renews(1, lease), kind)
		s.assertFull(lease, s.ttl(), kind)
		kept, err := s.do("TTL", s.side("t")).ToInt64()
		require.NoError(t, err)
		assert.Greater(t, kept, int64(lease.Seconds()), "%s: the record lasts longer than the hold", kind)
		assert.False(t, a.renews(2, lease), "%s: another epoch's", kind)
		assert.False(t, b.renews(1, lease), "%s: another session's", kind)
		s.run("CONFIG", "SET", "maxmemory", "0")
		assert.Equal(t, backend.Released, a.release(1), kind)
	}
}

// A server that is down refuses connections immediately. A verb that tries new connections for a while pauses between the
// tries.
func TestPlainPausesBetweenConnectionsThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		var down atomic.Bool
		var refused atomic.Int64
		conns := make(chan net.Conn, 100)
		option := server.ClientOption()
		option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if !down.Load() {
				conn, err := server.Dial()
				conns <- conn
				return conn, err
			}
			if refused.Add(1) > 2000 {
				time.Sleep(time.Second) // so that a verb that makes no pauses ends too
			}
			return nil, syscall.ECONNREFUSED
		}
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		b, err := redisbackend.New(client, redisbackend.WithoutScripts())
		require.NoError(t, err)
		l := newSession(t, b).NewLock("lock")
		down.Store(true)
		for len(conns) > 0 {
			_ = (<-conns).Close()
		}
		_, err = l.TryLock(t.Context())
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		assert.Less(t, refused.Load(), int64(1000))
		down.Store(false)
	})
}

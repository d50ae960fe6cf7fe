package redisbackend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
)

func TestReenterSetsTheCount(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		token := a.take(1)
		assert.Equal(t, backend.ReenterReply{Holds: 2, First: token}, a.reenter(1, 1, 2, 0))
		assert.Equal(t, backend.ReenterReply{Holds: 5, First: token}, a.reenter(1, 2, 5, 0))
		assert.Equal(t, "a:1=5", s.hash())
		assert.Equal(t, backend.ReenterReply{Holds: 5, First: token}, a.reenter(1, 2, 9, 0), "a copy of the same operation does nothing")
		assert.Equal(t, backend.ReenterReply{Holds: 5, First: token}, a.reenter(1, 1, 2, 0), "an older operation that arrives late does nothing")
		assert.Equal(t, backend.ReenterReply{Holds: 1, First: token}, a.reenter(1, 3, 1, 0))
		assert.Equal(t, "a:1=1", s.hash())
		assert.Equal(t, token, a.take(1), "re-entry keeps the token")
	})
}

func TestReenterNeverShortensTheLease(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		a.take(1)
		a.reenter(1, 1, 2, time.Second)
		s.assertFull(lease, s.ttl(), "the lease is longer than the one asked for")
		s.shorten()
		a.reenter(1, 2, 3, 0)
		s.assertShort("no lease is asked for")
		a.reenter(1, 3, 4, lease)
		s.assertFull(lease, s.ttl())
		s.shorten()
		a.reenter(1, 4, 3, lease)
		s.assertShort("a falling count does not renew the lease")
	})
}

func TestReenterReportsAHoldThatIsGone(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		gone := backend.ReenterReply{Gone: true}
		assert.Equal(t, gone, a.reenter(1, 1, 2, lease), "the session never had the lock")
		a.take(2)
		assert.Equal(t, gone, a.reenter(1, 1, 2, lease), "an older epoch")
		assert.Equal(t, gone, a.reenter(3, 1, 2, lease), "a newer one")
		assert.Equal(t, gone, b.reenter(2, 1, 2, lease), "another session")
		assert.Equal(t, "a:1=1", s.hash())
		a.release(2)
		assert.Equal(t, gone, a.reenter(2, 1, 2, lease), "released")
		assert.Empty(t, s.hash(), "the hold is not made again")
		a.take(3)
		s.lapse()
		assert.Equal(t, gone, a.reenter(3, 1, 2, lease), "expired")
		a.take(4)
		s.run("FLUSHALL")
		assert.Equal(t, gone, a.reenter(4, 1, 2, lease), "flushed")
		assert.Empty(t, s.hash())
	})
}

func TestReleaseFreesTheLock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		a.take(5)
		a.reenter(5, 1, 3, 0)
		assert.Equal(t, backend.Released, a.release(5), "whatever the count")
		assert.Empty(t, s.hash())
		assert.Equal(t, backend.Nothing, a.release(5), "twice")
		a.take(6)
		assert.Equal(t, backend.Released, a.release(9), "what a lower epoch has")
		assert.Empty(t, s.hash())
	})
}

func TestReleaseLeavesWhatAHigherEpochHas(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(5)
		assert.Equal(t, backend.Nothing, a.release(4))
		assert.Equal(t, "a:1=1", s.hash())
		b.wait(5)
		assert.Equal(t, backend.Nothing, b.release(4))
		assert.Equal(t, []string{"b"}, s.queued())
		assert.Equal(t, backend.Nothing, b.release(4, doubtfulFor(time.Minute)), "a tombstone refuses older copies")
		a.release(5)
		b.granted()
		assert.Equal(t, backend.Nothing, b.release(4))
		assert.Equal(t, "b:1=1", s.hash())
		assert.Equal(t, backend.Nothing, a.release(9), "another session's")
		assert.Equal(t, "b:1=1", s.hash())
	})
}

func TestReleaseWithdrawsAWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.take(1)
		b.wait(1)
		c.wait(1)
		assert.Equal(t, backend.Withdrawn, b.release(1))
		assert.Equal(t, backend.Nothing, b.release(1), "twice")
		assert.Equal(t, []string{"c"}, s.queued())
		assert.Equal(t, "a:1=1", s.hash())
		places, err := s.do("HKEYS", s.side("w")).AsStrSlice()
		require.NoError(t, err)
		assert.Equal(t, []string{"c"}, places)
		a.release(1)
		c.granted()
		assert.Empty(t, b.grants)
	})
}

func TestReleasePassesOnAGrantThatIsNoLongerWanted(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.take(1)
		b.wait(1)
		c.wait(1)
		a.release(1)
		assert.Equal(t, backend.Released, b.release(1, doubtfulFor(time.Minute)), "the wait was cancelled while the grant was on its way")
		c.granted()
		assert.Equal(t, backend.Stale, b.acquire(1, queue).Status, "a late heartbeat of the cancelled attempt")
	})
}

func TestReleaseOfAFreeLockWakesItsWaiters(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.take(1)
		b.acquire(1, queue)
		c.acquire(1, queue)
		s.lapse()
		b.release(1)
		c.granted()
	})
}

func TestReleaseAfterFlushWritesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		a.take(1)
		s.run("FLUSHALL")
		assert.Equal(t, backend.Nothing, a.release(1))
		assert.Equal(t, int64(0), must(s.do("DBSIZE").ToInt64()), "nothing is left behind")
	})
}

func TestEverythingExpires(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		b.wait(1)
		a.release(0, doubtfulFor(time.Minute))
		assert.Len(t, must(s.do("KEYS", "*").AsStrSlice()), 4)
		for _, key := range must(s.do("KEYS", "*").AsStrSlice()) {
			ttl := must(s.do("PTTL", key).ToInt64())
			assert.Positive(t, ttl, "%q", key)
			assert.LessOrEqual(t, ttl, int64(300_000), "%q", key)
		}
	})
}

func TestRenewProlongsTheLease(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		token := a.take(1)
		s.shorten()
		s.run("PEXPIRE", s.side("t"), "60000")
		one := []backend.Renewal{{Remote: a.remote, Epoch: 1, Lease: lease}}
		a.conn.Renew(s.ctx(), one)
		assert.NoError(t, one[0].Err)
		assert.False(t, one[0].Gone)
		assert.Equal(t, token, one[0].First, "it says of which hold")
		assert.Equal(t, token, a.inspect().First, "so does the state")
		s.assertFull(lease, s.ttl())
		kept := must(s.do("TTL", s.side("t")).ToInt64())
		assert.InDelta(t, 2*lease.Seconds(), kept, 2+time.Since(s.began).Seconds(), "the record is kept with the hold")
		assert.True(t, a.renews(1, lease), "twice")
	})
}

func TestRenewNeverTakesALock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		assert.False(t, a.renews(1, lease), "the session never had the lock")
		a.take(2)
		s.shorten()
		assert.False(t, a.renews(1, lease), "an older epoch")
		assert.False(t, a.renews(3, lease), "a newer one")
		assert.False(t, b.renews(2, lease), "another session")
		s.assertShort()
		a.release(2)
		assert.False(t, a.renews(2, lease))
		assert.Empty(t, s.hash())
		a.take(3)
		s.run("FLUSHALL")
		assert.False(t, a.renews(3, lease), "flushed")
		assert.Empty(t, s.hash())
	})
}

func TestRenewOfManyLocks(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		const before, after = time.Hour, 2 * time.Hour             // so long that no lease ends while the test takes all locks
		renewals := make([]backend.Renewal, testsize.Of(250, 110)) // so many that more than one command renews them
		for i := range renewals {
			s.name = unique("lock")
			a.remote = a.bind(s.name)
			a.take(uint64(i+1), func(r *backend.AcquireRequest) { r.Lease = before })
			renewals[i] = backend.Renewal{Remote: a.remote, Epoch: uint64(i + 1), Lease: after}
		}
		renewals[7].Epoch = 9999
		s.run("DEL", renewals[8].Remote.Name())
		s.run("SET", renewals[8].Remote.Name(), "of another type")
		s.run("SCRIPT", "FLUSH")
		a.conn.Renew(s.ctx(), renewals)
		for i, r := range renewals {
			s.name = r.Remote.Name()
			switch i {
			case 7:
				assert.True(t, r.Gone)
				assert.NoError(t, r.Err)
				assert.LessOrEqual(t, s.ttl(), before)
				assert.Positive(t, s.ttl())
			case 8: // the key has other data, so the session has no hold
				assert.True(t, r.Gone)
				assert.NoError(t, r.Err)
			default:
				assert.NoError(t, r.Err)
				assert.False(t, r.Gone)
				s.assertFull(after, s.ttl())
			}
		}
	})
}

func TestRenewIsOneCommandForAHundredLocks(t *testing.T) {
	s := realRedis(t)
	a := s.join("a")
	const n = 250
	renewals := make([]backend.Renewal, n)
	for i := range renewals {
		a.remote = a.bind(unique("lock"))
		a.take(1)
		renewals[i] = backend.Renewal{Remote: a.remote, Epoch: 1, Lease: lease}
	}
	a.conn.Renew(s.ctx(), renewals)
	before := scriptCalls(s)
	a.conn.Renew(s.ctx(), renewals)
	assert.Equal(t, 3, scriptCalls(s)-before, "one command for a hundred locks")
}

func TestRenewRefusesLocksOfOtherSessions(t *testing.T) {
	s := embedded(t)
	a, b := s.join("a"), s.join("b")
	a.take(1)
	renewals := []backend.Renewal{
		{Remote: b.remote, Epoch: 1, Lease: lease}, {Epoch: 1, Lease: lease}, {Remote: a.remote, Epoch: 1},
		{Remote: a.remote, Epoch: 1, Lease: lease, Gone: true, Err: context.Canceled},
	}
	a.conn.Renew(s.ctx(), renewals)
	for _, r := range renewals[:3] {
		assert.True(t, backend.Refused(r.Err))
	}
	assert.NoError(t, renewals[3].Err, "what it held before does not matter")
	assert.False(t, renewals[3].Gone)
	a.conn.Renew(s.ctx(), nil)
}

func TestInspectShowsTheHoldAndTheWaitersThatAreAlive(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		assert.Equal(t, backend.State{}, a.inspect())
		token := a.take(5, owned("~x"))
		b.wait(1, impatient)
		c.wait(2)
		s.stuck("b")
		got := c.inspect()
		s.assertFull(lease, got.TTL)
		assert.WithinDuration(t, time.Now(), got.Since, lease)
		got.TTL, got.Since = 0, time.Time{}
		assert.Equal(t, backend.State{Locked: true, Session: "a", Owner: "~x", Holds: 1, Epoch: 5, First: token, Token: token,
			Waiting: []string{"c"}}, got)
		assert.Equal(t, []string{"b", "c"}, s.queued(), "Inspect changes nothing")
		c.release(2)
		a.release(5)
		assert.Equal(t, backend.State{Token: token}, a.inspect())
	})
}

// A hash with other data is refused, and does not change.
func TestAHashThatIsNotALockIsRefused(t *testing.T) {
	for name, fields := range map[string][]string{
		"one that does not expire": {"some:thing", "1"},
		"one without an owner":     {"balance", "100"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				scriptless, err := redisbackend.New(s.client, redisbackend.WithoutScripts())
				require.NoError(t, err)
				for _, m := range []*member{s.join("a"), s.joinVia(scriptless, "b")} {
					s.run(append([]string{"HSET", s.name}, fields...)...)
					if name != "one that does not expire" {
						s.run("PEXPIRE", s.name, "100000")
					}
					_, acquired := m.remote.Acquire(s.ctx(), request(1, queue))
					_, inspected := m.remote.Inspect(s.ctx())
					_, forced := m.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))
					for _, err := range []error{acquired, inspected, forced} {
						require.ErrorContains(t, err, "WRONGTYPE the key has a hash that is not a lock")
						assert.True(t, backend.Refused(err))
					}
					assert.Equal(t, strings.Join(fields, "="), s.hash())
					assert.Empty(t, s.queued())
				}
			})
		})
	}
}

func TestForceUnlockGivesTheLockToTheNextWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		force := func() bool {
			held, err := c.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))
			require.NoError(t, err)
			return held
		}
		assert.False(t, force(), "the lock was free")
		last := a.take(1)
		b.wait(1)
		assert.True(t, force())
		assert.Greater(t, b.granted().First, last)
		assert.False(t, a.renews(1, lease))
		assert.True(t, a.reenter(1, 1, 2, lease).Gone)
		assert.Equal(t, backend.Nothing, a.release(1))
		assert.Equal(t, "b:1=1", s.hash())
		assert.True(t, force(), "twice: it takes the lock from the next one")
		assert.Empty(t, s.hash())
		assert.Equal(t, backend.Stale, b.acquire(1).Status, "a copy of its attempt does not get the hold back")
	})
}

func TestAPrefixSeparatesKeysAndIsNoPartOfTheName(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		app, err := newBackend(s.client, "app:")
		require.NoError(t, err)
		a, b, plain := s.joinVia(app, "a"), s.joinVia(app, "b"), s.join("c")
		a.take(1)
		plain.take(1)
		b.wait(1)
		a.release(1)
		assert.Equal(t, s.name, b.granted().Name, "the prefix is not part of the name")
		for _, key := range must(s.do("KEYS", "*").AsStrSlice()) {
			assert.Regexp(t, "^(app:|lock$|relock:{lock}:)", key)
		}
	})
}

// A call sends nothing if its context has ended or its deadline has passed. With a deadline in the past rueidis would close the
// connection, which other calls use.
func TestNothingIsSentWithAnEndedContext(t *testing.T) {
	s := realRedis(t)
	a := s.join("a")
	clients := connections(s)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	passed := lateContext{context.Background()}
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: passed} {
		before := scriptCalls(s)
		_, err := a.remote.Acquire(ctx, request(1))
		require.ErrorIs(t, err, want)
		assert.False(t, backend.OutcomeUnknown(err))
		assert.False(t, backend.Refused(err))
		one := []backend.Renewal{{Remote: a.remote, Epoch: 1, Lease: lease}}
		a.conn.Renew(ctx, one)
		require.ErrorIs(t, one[0].Err, want)
		assert.False(t, backend.OutcomeUnknown(one[0].Err))
		assert.Equal(t, before, scriptCalls(s))
	}
	assert.Equal(t, clients, connections(s), "no connection was closed")
}

// A lateContext is a context whose deadline has passed, but which has not ended yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// If the reply to a command does not come in time, the command may have been executed.
func TestAMissingReplyLeavesTheOutcomeUnknown(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, client: connect(t, server.Addr()), name: "lock"}
	var err error
	s.b, err = newBackend(s.client, "")
	require.NoError(t, err)
	a := s.join("a")
	server.Freeze()
	for wait := 50 * time.Millisecond; ; wait *= 2 { // a machine that stands still may send nothing in so short a time
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err = a.remote.Acquire(ctx, request(1))
		cancel()
		require.Error(t, err, "a frozen server replies to nothing")
		if !strings.Contains(err.Error(), "not sent") {
			break
		}
		require.Less(t, wait, limit, "it is not sent before its time is over")
	}
	server.Thaw()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.True(t, backend.OutcomeUnknown(err))
	a.take(1)
	a.release(1)
	server.Stop()
	_, err = a.remote.Acquire(s.ctx(), request(2))
	require.Error(t, err)
	s.eventually(func() bool {
		_, err = a.remote.Acquire(s.ctx(), request(2))
		return !backend.OutcomeUnknown(err)
	}, "once the connection is known to be lost, a refused one is an error that was never sent")
	require.ErrorContains(t, err, "connection refused")
	assert.False(t, backend.Refused(err), "the error says that the call may be repeated")
	server.Restart(t)
	s.eventually(func() bool {
		reply, err := a.remote.Acquire(s.ctx(), request(3))
		return err == nil && reply.Status == backend.Granted
	}, "the call works again when the server is back")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

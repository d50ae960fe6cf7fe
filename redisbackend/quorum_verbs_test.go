package redisbackend_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// A quorum has no queue, so it cannot pass conformance cases that look at a queue. These tests have the parts of those cases
// that a quorum can pass.

// eachQuorum runs a test on embedded nodes and on real ones, or on one kind, as each does. Three sessions take part: one
// session that holds the lock most of the time, and two sessions that wait for it.
func eachQuorum(t *testing.T, test func(t *testing.T, a, b, c *member)) {
	t.Run("embedded", func(t *testing.T) {
		onlyWithoutAServer(t)
		var clients []rueidis.Client
		for range 3 {
			clients = append(clients, redistest.Start(t).Client())
		}
		q, err := redisbackend.NewQuorum(clients)
		require.NoError(t, err)
		redisbackend.SetNodeLimit(q, patient)
		test(t, joinQuorum(t, q, "a"), joinQuorum(t, q, "b"), joinQuorum(t, q, "c"))
	})
	t.Run("redis", func(t *testing.T) {
		council := newCouncil(t, 3)
		test(t, council.join("a"), council.join("b"), council.join("c"))
	})
}

func joinQuorum(t *testing.T, q *redisbackend.Quorum, id string) *member {
	t.Helper()
	m := newMember()
	m.site, m.id = &site{T: t, name: "lock"}, id
	conn := opened(t, q, id, m)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	m.conn = unhurriedConn{conn}
	m.remote = m.bind(m.name)
	return m
}

// has requires that the session has the lock with the given epoch.
func (m *member) has(epoch uint64) backend.State {
	m.Helper()
	st := m.inspect()
	require.Equal(m, m.id, st.Session)
	require.Equal(m, epoch, st.Epoch)
	return st
}

func (m *member) stale(epoch uint64, change ...func(*backend.AcquireRequest)) {
	m.Helper()
	require.Equal(m, backend.Stale, m.acquire(epoch, change...).Status)
}

func until(d time.Duration) func(*backend.ReleaseRequest) {
	return func(r *backend.ReleaseRequest) { r.Until = time.Now().Add(d) }
}

func TestQuorumWaitsWhileAnotherHasTheLock(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		token := a.take(5)
		for _, epoch := range []uint64{1, 5, 9} { // each session counts its own epochs
			reply := b.acquire(epoch)
			require.Equal(t, backend.Waiting, reply.Status)
			require.Greater(t, reply.TTL, lease/2)
			require.LessOrEqual(t, reply.TTL, lease)
			b.wait(epoch + 1)
		}
		require.Equal(t, token, a.has(5).Token)
	})
}

func TestQuorumReleaseIsOfItsSessionAndEpoch(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, c *member) {
		a.take(5)
		b.wait(5)
		require.Equal(t, backend.Nothing, c.release(9), "of another session")
		require.Equal(t, backend.Nothing, a.release(4), "of a lower epoch")
		a.has(5)
		require.Equal(t, backend.Released, a.release(6), "a higher epoch covers it")
		require.False(t, a.inspect().Locked)
		require.Equal(t, backend.Nothing, a.release(6), "again")
		b.gets(new(uint64))
		require.Equal(t, backend.Nothing, a.release(6), "and again, when another has it")
		require.Equal(t, "b", c.inspect().Session)
	})
}

func TestQuorumALeaseEnds(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		token := a.take(1)
		require.True(t, a.renews(1, unhurriedLease))
		require.Greater(t, b.gets(new(uint64)), token)
		require.Equal(t, "b", a.inspect().Session)
		require.False(t, a.renews(1, lease))
	})
}

func TestQuorumInspectShowsTheSameToAllSessions(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, c *member) {
		token := a.take(17, owned("~worker"), func(r *backend.AcquireRequest) { r.Holds = 4 })
		b.wait(1)
		for _, m := range []*member{a, b, c} {
			st := m.inspect()
			require.Greater(t, st.TTL, lease/2)
			require.LessOrEqual(t, st.TTL, lease)
			st.TTL = 0
			require.Equal(t, backend.State{Locked: true, Session: "a", Owner: "~worker", Holds: 4, Epoch: 17, Token: token}, st)
		}
	})
}

func TestQuorumForceLeavesTheOldHolderWithNothing(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		a.take(1)
		forced, err := b.remote.ForceUnlock(b.ctx(), time.Now().Add(time.Minute))
		require.NoError(t, err)
		require.True(t, forced)
		require.False(t, a.renews(1, lease))
		require.True(t, a.reenter(1, 1, 2, 0).Gone)
		a.stale(1)
		b.gets(new(uint64))
		require.Equal(t, backend.Nothing, a.release(1))
		require.Equal(t, "b", a.inspect().Session)
	})
}

func TestQuorumTokensRiseWithEveryHolder(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		var last backend.Token
		next := func(token backend.Token) {
			t.Helper()
			require.Greater(t, token, last)
			last = token
		}
		var epoch uint64
		for range 4 {
			next(a.gets(&epoch))
			require.Equal(t, last, a.take(epoch), "a copy has the same")
			epoch++
			next(a.take(epoch))
			a.reenter(epoch, 1, 2, 0)
			a.release(epoch)
			next(b.gets(&epoch))
			_, err := a.remote.ForceUnlock(a.ctx(), time.Now().Add(time.Minute))
			require.NoError(t, err)
		}
		seen := last + 1_000_000_000
		epoch++
		next(a.take(epoch, func(r *backend.AcquireRequest) { r.Seen = seen }))
		require.Greater(t, last, seen)
	})
}

func TestQuorumRefusesLateCopies(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, c *member) {
		late := func(r *backend.AcquireRequest) { r.NotAfter = time.Now().Add(-time.Millisecond) }
		_, err := a.remote.Acquire(a.ctx(), request(1, late))
		require.Error(t, err)
		require.False(t, backend.OutcomeUnknown(err))
		require.False(t, a.inspect().Locked)

		a.take(1)
		b.wait(5)
		b.release(5, until(time.Hour))
		b.idle() // at a node where a copy arrives first it would not be late
		b.stale(5, queue)
		a.release(1, until(time.Hour))
		a.idle()
		b.stale(5)
		b.stale(4, barge)
		a.stale(1)
		c.take(5) // each session has its own tombstones
		c.release(5)
		b.gets(new(uint64(5)))
	})
}

func TestQuorumRenewalChangesNothingElse(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		token := a.take(3, func(r *backend.AcquireRequest) { r.Lease, r.Holds = lease/4, 2 })
		b.wait(1)
		require.False(t, a.renews(2, lease))
		require.True(t, a.renews(3, lease))
		a.eventually(func() bool { return a.inspect().TTL > lease/2 }, "a majority of the nodes renewed the hold")
		st := a.has(3)
		require.Equal(t, 2, st.Holds)
		require.Equal(t, token, st.Token)
	})
}

func TestQuorumYieldGivesTheLockToAWaiterItKnows(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		token := a.take(1)
		require.Greater(t, a.take(2, yield), token, "no session waits")
		b.wait(1)
		require.Equal(t, backend.Granted, a.acquire(2, yield).Status, "a copy of the attempt that has the lock does not hand it over")
		epoch := uint64(2)
		a.eventually(func() bool { // b's attempts may arrive at some nodes only after b has its reply
			epoch++
			return a.acquire(epoch, yield).Status == backend.Waiting
		}, "the nodes know that b waits")
		require.True(t, b.granted().NotBefore.IsZero(), "b has to confirm the grant")
		b.gets(new(uint64))
	})
}

func TestQuorumNamesAndOwnersAreAnyBytes(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, _ *member) {
		for _, text := range []string{"two words", "a:b:c", "{tag}:x", "line\nbreak", "\x00\xff", "f ~ g 1 2"} {
			mine, theirs := a.bind(text), b.bind(text)
			reply, err := mine.Acquire(a.ctx(), request(1, owned(text)))
			require.NoError(t, err)
			require.Equal(t, backend.Granted, reply.Status)
			reply, err = theirs.Acquire(b.ctx(), request(1, queue))
			require.NoError(t, err)
			require.Equal(t, backend.Waiting, reply.Status)
			st, err := theirs.Inspect(b.ctx())
			require.NoError(t, err)
			require.Equal(t, text, st.Owner)
			_, err = mine.Release(a.ctx(), backend.ReleaseRequest{Epoch: 1})
			require.NoError(t, err)
			for b.granted().Name != text { // a hint may come more than once
			}
			_, err = theirs.Release(b.ctx(), backend.ReleaseRequest{Epoch: 1})
			require.NoError(t, err)
		}
	})
}

func TestQuorumCloseLeavesTheLocks(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, b, c *member) {
		a.take(1)
		b.wait(1)
		require.NoError(t, a.conn.Close())
		require.NoError(t, b.conn.Close())
		require.Equal(t, "a", c.inspect().Session)
	})
}

// Conditions need a queue of sessions. A quorum has no queue, so its calls return errors.ErrUnsupported, and the callers keep
// the lock.
func TestQuorumHasNoConditions(t *testing.T) {
	t.Parallel()
	eachQuorum(t, func(t *testing.T, a, _, _ *member) {
		_, ok := a.remote.(backend.Conditions)
		require.False(t, ok)
	})
	lock := newCouncil(t, 3).session(calm...).NewLock("lock")
	ctx := t.Context()
	require.NoError(t, lock.Lock(ctx))
	c := lock.NewCondition("ready")
	for what, call := range map[string]func() error{
		"await":                 func() error { return c.Await(ctx) },
		"await for":             func() error { _, err := c.AwaitFor(ctx, time.Hour); return err },
		"await uninterruptibly": func() error { return c.AwaitUninterruptibly(ctx) },
		"signal":                func() error { return c.Signal(ctx) },
		"signal all":            func() error { return c.SignalAll(ctx) },
	} {
		err := call()
		require.ErrorIs(t, err, errors.ErrUnsupported, what)
		require.ErrorContains(t, err, "conditions", what)
	}
	require.NoError(t, orLater(lock.Unlock)(ctx), "the owner still holds the lock")
}

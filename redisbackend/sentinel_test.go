package redisbackend_test

import (
	"context"
	"fmt"
	"net"
	"strings"
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

// A watched is a master with a replica, and a sentinel that watches both. The sentinel does nothing by itself: it fails over
// only at the command of failover, so that it does not take a slow machine for a dead one.
type watched struct {
	*testing.T
	master, replica *redisserver.Server
	sentinel        *site
	watcher         *redisserver.Server // the sentinel's process
}

func sentinel(t *testing.T) *watched {
	w := &watched{T: t, master: redisserver.Start(t, "--repl-diskless-sync-delay", "0")}
	host, port, err := net.SplitHostPort(w.master.Addr())
	require.NoError(t, err)
	w.replica = redisserver.Start(t, "--replicaof", host, port)
	follows(t, w.replica)
	w.watcher = redisserver.StartSentinel(t, fmt.Sprintf("sentinel monitor main %s %s 1", host, port),
		"sentinel down-after-milliseconds main 600000")
	w.sentinel = node(t, w.watcher)
	require.Eventually(t, func() bool {
		list, err := w.sentinel.do("SENTINEL", "REPLICAS", "main").ToArray()
		return err == nil && len(list) == 1
	}, limit, tick, "the sentinel knows the replica")
	return w
}

// follows waits until a replica has a link to its master.
func follows(t *testing.T, replica *redisserver.Server) *site {
	r := node(t, replica)
	require.Eventually(t, func() bool {
		info, err := r.do("INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, limit, tick, "the replica follows")
	return r
}

// site returns the deployment as seen by a client with a backend of its own.
func (w *watched) site(opts ...redisbackend.Option) *site {
	w.Helper()
	// No test here needs the client to notice a connection that is silent, so the limit is long.
	s := &site{T: w.T, name: "lock", client: connect(w.T, w.watcher.Addr(), func(o *rueidis.ClientOption) {
		o.Sentinel.MasterSet, o.ConnWriteTimeout = "main", 10*time.Minute
	})}
	var err error
	s.b, err = redisbackend.New(s.client, opts...)
	require.NoError(w, err)
	return s
}

// failover makes the sentinel promote the replica, and waits until the replica is the master. A sentinel that has stood still
// for two seconds does nothing for thirty seconds. A sentinel that has not heard from the replica for some seconds gives up.
// Then failover repeats the command.
func (w *watched) failover() {
	w.Helper()
	begun := 0
	require.Eventually(w, func() bool {
		if begun <= strings.Count(w.watcher.Log(), "-failover-abort") {
			if w.sentinel.do("SENTINEL", "FAILOVER", "main").Error() == nil {
				begun++
			}
			return false
		}
		addr, err := w.sentinel.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main").AsStrSlice()
		return err == nil && net.JoinHostPort(addr[0], addr[1]) == w.replica.Addr()
	}, 3*limit, tick, "failed over")
}

func TestSentinelFailoverWhileALockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	w := sentinel(t)
	s := w.site()
	holder, waiter := s.session(reentrant.WithLease(4*limit)), s.session(reentrant.WithLease(lease)) // longer than a failover
	held, wanted := holder.NewLock("lock"), waiter.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	got := lockLater(t.Context(), wanted)
	s.waits(held, waiter)
	copied(t, w.replica, "lock")
	w.failover()
	// The old master replies for a moment more. Whatever it still does is forgotten, even an unlock.
	require.Eventually(t, func() bool { return redisserverAddr(s) == w.replica.Addr() }, limit, tick, "the client has followed")
	require.Eventually(t, func() bool { return held.Verify(ctx) == nil }, limit, tick, "the hold is there")
	assert.Equal(t, first, must(held.Token(ctx)))
	require.NoError(t, orLater(held.Unlock)(ctx))
	r := await(t, got, "the waiter has it")
	require.NoError(t, r.err)
	assert.Greater(t, r.token, first)
}

// A hold that did not get to the replica in time is lost with the old master. The holder learns of the loss at its next
// renewal.
func TestSentinelFailoverForgetsAHold(t *testing.T) {
	t.Parallel()
	w := sentinel(t)
	s := w.site()
	holder, other := s.session(), s.session()
	held, free := holder.NewLock("lock"), other.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "holder")
	w.replica.Freeze() // so that the old master does not come back at once
	node(t, w.master).run("CLIENT", "KILL", "TYPE", "replica")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	w.master.Stop()
	w.replica.Thaw()
	w.failover()
	r := await(t, lockLater(t.Context(), free), "the lock is free")
	require.NoError(t, r.err)
	assert.Greater(t, r.token, first, "tokens tell")
	await(t, held.Lost(ctx), "the holder is told")
	assert.ErrorIs(t, held.Unlock(ctx), reentrant.ErrLost)
}

// Locks are handed over in order across a failover, both after the death of a master and while the master hangs. The two tests
// are not subtests, because parallel subtests start when most tests have ended.
func TestSentinelFailoverWhileALockIsHandedOver(t *testing.T) {
	t.Parallel()
	handedOverAcrossAFailover(t, func(*redisserver.Server) {})
}

func TestSentinelFailoverFromADeadMasterWhileALockIsHandedOver(t *testing.T) {
	t.Parallel()
	handedOverAcrossAFailover(t, (*redisserver.Server).Stop)
}

func TestSentinelFailoverFromAHangingMasterWhileALockIsHandedOver(t *testing.T) {
	t.Parallel()
	handedOverAcrossAFailover(t, (*redisserver.Server).Freeze)
}

func handedOverAcrossAFailover(t *testing.T, stop func(*redisserver.Server)) {
	w := sentinel(t)
	s := w.site()
	r, end := s.crowd("lock", s.session(), s.session(), s.session())
	s.advances(r)
	stop(w.master)
	w.failover()
	s.advances(r)
	w.master.Thaw() // the old master still believes that it is the master, but no client may ask it
	s.advances(r)
	end()
	assert.Empty(t, r.twice, "tokens are never given twice")
}

// When a master hangs, a holder stops trusting its hold before the lease ends. When the old master comes back, it believes that
// it is the master, and still has the hold. By then the holder has long known of the loss.
func TestAnOldMasterThatComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("as long as a lease")
	}
	t.Parallel()
	w := sentinel(t)
	s := w.site()
	holder, other := s.session(), s.session()
	held, free := holder.NewLock("lock"), other.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	w.master.Freeze()
	await(t, held.Lost(ctx), "the end of its trust")
	require.ErrorIs(t, held.Verify(ctx), reentrant.ErrLost)
	w.failover()
	r := await(t, lockLater(t.Context(), free), "the lock is free, or is so when the lease ends")
	require.NoError(t, r.err)
	assert.Greater(t, r.token, first, "tokens tell")
	w.master.Thaw()
	assert.ErrorIs(t, held.Unlock(ctx), reentrant.ErrLost)
	require.NoError(t, held.Lock(ctx))
	assert.Greater(t, must(held.Token(ctx)), r.token)
	require.NoError(t, orLater(held.Unlock)(ctx))
}

// A partition leaves a holder alone with the old master. There the holder has the lock for as long as it renews its hold, while
// other clients use the new master. Only the holder's token shows that its hold is old.
func TestTokensTellOnBothSidesOfAPartition(t *testing.T) {
	if testing.Short() {
		t.Skip("as long as a lease")
	}
	t.Parallel()
	keepsALease(t, func(lease time.Duration) error {
		alone, replica := replicated(t) // there is no sentinel: it would make the new master follow the old one again
		var err error
		alone.b, err = redisbackend.New(alone.client)
		require.NoError(t, err)
		old := alone.session(reentrant.WithLease(lease)).NewLock("lock")
		ctx := reentrant.WithOwner(t.Context(), "holder")
		require.NoError(t, old.Lock(ctx))
		first, err := old.Token(ctx)
		if err != nil {
			return err
		}
		copied(t, replica, "lock").run("REPLICAOF", "NO", "ONE")
		beyond := &site{T: t, name: "lock", client: connect(t, replica.Addr())}
		beyond.b, err = redisbackend.New(beyond.client)
		require.NoError(t, err)
		r := await(t, lockLater(t.Context(), beyond.session().NewLock("lock")), "the lease ends where it is not renewed")
		require.NoError(t, r.err)
		assert.Greater(t, r.token, first)
		return again(old.Verify)(ctx) // the old master still renews the hold
	})
}

func TestAnAcknowledgedAcquireSurvivesAFailover(t *testing.T) {
	t.Parallel()
	w := sentinel(t)
	s := w.site(redisbackend.WithReplicas(1, limit))
	held := s.session(reentrant.WithLease(4 * limit)).NewLock("lock") // longer than a failover
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	w.master.Stop() // at once: only the acknowledgement has made the hold safe
	w.failover()
	require.Eventually(t, func() bool { return held.Verify(ctx) == nil }, limit, tick, "the hold is there")
	assert.Equal(t, first, must(held.Token(ctx)))
	plain := w.site()
	other := plain.session().NewLock("lock")
	require.NoError(t, again(func(ctx context.Context) error {
		locked, err := other.TryLock(ctx)
		assert.False(t, locked, "for every session")
		return err
	})(ctx))
}

func TestAnAcquireThatIsNotAcknowledgedIsRefusedBeforeAFailover(t *testing.T) {
	t.Parallel()
	w := sentinel(t)
	s := w.site(redisbackend.WithReplicas(1, 500*time.Millisecond))
	lock := s.session().NewLock("lock")
	w.replica.Freeze()
	require.ErrorIs(t, lock.Lock(t.Context()), backend.ErrNotReplicated)
	w.master.Stop()
	w.replica.Thaw()
	w.failover()
	plain := w.site()
	r := await(t, lockLater(t.Context(), plain.session().NewLock("lock")), "the lock is free")
	assert.NoError(t, r.err)
}

// The channel follows the commands to the new master, although the old master is silent and keeps the connection open.
func TestTheChannelFollowsToTheNewMaster(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redisbackend.Option{"scripts": nil, "plain": {redisbackend.WithoutScripts()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sentinel(t)
			s := w.site(opts...)
			a, renewer := s.join("a"), s.join("renewer")
			<-a.resumed
			<-renewer.resumed
			last := a.take(1)
			hears(s, a, 2)
			w.master.Freeze()
			w.failover()
			s.name = "lock"
			b := w.site().join("b")
			a.remote = a.bind("another")
			b.remote = b.bind("another")
			b.take(1)
			w.answers("an attempt", func(ctx context.Context) bool {
				reply, err := a.remote.Acquire(ctx, request(3, queue))
				return err == nil && reply.Status == backend.Waiting
			})
			a.hearsOfResumption()
			w.answers("a renewal", func(ctx context.Context) bool {
				one := []backend.Renewal{{Remote: renewer.remote, Epoch: 1, Lease: lease}}
				renewer.conn.Renew(ctx, one)
				return one[0].Err == nil
			})
			renewer.hearsOfResumption()
			assert.Equal(t, backend.Released, b.release(1))
			assert.Greater(t, a.granted().First, last)
		})
	}
}

// answers waits until the new master replies to ask. Until then, clients may still ask the old master.
func (w *watched) answers(what string, ask func(ctx context.Context) bool) {
	w.Helper()
	require.Eventually(w, func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), 500*time.Millisecond)
		defer cancel()
		return ask(ctx)
	}, limit, tick, what)
}

package redisbackend_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// session opens a session with clients of its own, as another process would do.
func (c *council) session(opts ...reentrant.Option) *reentrant.Session {
	c.Helper()
	q := c.quorum()
	var session *reentrant.Session
	var err error
	require.Eventually(c, func() bool { // a majority has five seconds to reply, and this machine may be too busy for that
		session, err = reentrant.NewSession(q, opts...)
		return !errors.Is(err, backend.ErrNoQuorum)
	}, limit, tick)
	require.NoError(c, err)
	c.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = session.Close(ctx)
	})
	return session
}

// A bridge is protected by the lock: at most one owner is on the bridge, and its token is above those of all owners before.
type bridge struct {
	*testing.T
	last atomic.Pointer[crossing]
}

// A crossing is one owner's time on the bridge. The test requires nothing of an owner that has lost the lock, which happens
// only if the owner is paused for a whole lease.
type crossing struct {
	token      backend.Token
	left, lost atomic.Bool
	known      atomic.Bool // set once lost no longer changes
}

// cross takes the lock once, and reports whether it got the lock. It ignores errors of Unlock, because a node may be failing.
func (b *bridge) cross(ctx context.Context, l *reentrant.Lock) bool {
	if err := l.Lock(ctx); err != nil {
		assert.ErrorIs(b, err, context.Canceled)
		return false
	}
	token, err := l.Token(ctx)
	if errors.Is(err, reentrant.ErrLost) {
		_ = l.Unlock(ctx)
		return true
	}
	assert.NoError(b, err)
	me := &crossing{token: token}
	before := b.last.Swap(me)
	together := before != nil && !before.left.Load()
	me.left.Store(true) // only then is Lost asked, so an owner that was paused on the bridge finds that its lock is lost
	select {
	case <-l.Lost(ctx):
		me.lost.Store(true)
	default:
	}
	me.known.Store(true)
	_ = l.Unlock(ctx)
	if before != nil && !me.lost.Load() {
		assert.True(b, !together || before.wasLost(), "another owner is on the bridge")
		assert.True(b, token > before.token || before.wasLost(), "tokens rise: %d, %d", before.token, token)
	}
	return true
}

// wasLost waits until the owner knows whether it lost the lock on the bridge, and reports that.
func (c *crossing) wasLost() bool {
	for !c.known.Load() {
		time.Sleep(time.Millisecond)
	}
	return c.lost.Load()
}

// Two processes contend while nodes are killed, frozen and started again. Never more than a minority of the nodes is away. The
// nodes keep everything, which a quorum needs if nodes may come back within a lease: a node writes its file before it replies.
// The node does not wait for the disk: a kill loses nothing that the kernel has, and a busy disk would delay the test.
func TestQuorumSessionsWhileNodesDieAndComeBack(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 5, "--appendonly", "yes", "--appendfsync", "no")
	c.limit = 0
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := &bridge{T: t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var crossed [2]atomic.Int64
	for i := range crossed {
		// A node that died with a hold, and missed the hold's release, still has the hold when it comes back, for as long as
		// this lease.
		l := c.session(reentrant.WithLease(2 * time.Second)).NewLock(c.name)
		for range 2 {
			running.Go(func() {
				for b.cross(ctx, l) {
					crossed[i].Add(1)
				}
			})
		}
	}
	advance := func() {
		for i := range crossed {
			goal := crossed[i].Load() + 3
			require.Eventually(t, func() bool { return crossed[i].Load() >= goal }, limit, tick, "session %d goes on", i)
		}
	}
	for range 4 {
		down := random.Perm(len(c.servers))[:2]
		kill := random.IntN(3) // how many of the two are killed; the others are frozen
		for i, n := range down {
			if i < kill {
				c.servers[n].Stop()
			} else {
				c.servers[n].Freeze()
			}
		}
		advance()
		for i, n := range down {
			if i < kill {
				c.servers[n].Restart(t)
			} else {
				c.servers[n].Thaw()
			}
		}
		advance()
	}
	cancel()
	running.Wait()
}

// Sessions that ask at the same time each get some of the nodes. No session keeps a minority, so one of them gets the lock.
func TestQuorumSplitVotesEnd(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		b := &bridge{T: t}
		var running sync.WaitGroup
		for range 5 {
			l := c.session(reentrant.WithLease(lease)).NewLock(c.name) // no lease ends during the test
			running.Go(func() {
				for range 5 {
					b.cross(t.Context(), l)
				}
			})
		}
		running.Wait()
		for i := range c.servers {
			c.nodes[0].eventually(func() bool { return c.holder(i) == "" }, "everything is given back")
		}
	}
}

// Processes that died during an attempt left holds at a minority of the nodes. These holds do not stop other sessions.
func TestQuorumHoldsAtAMinorityStopNoSession(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		c := newCouncil(t, n)
		for i := range n / 2 {
			single, err := redisbackend.New(c.nodes[i].client)
			require.NoError(t, err)
			dead := &site{T: t, client: c.nodes[i].client, name: c.name}
			dead.joinVia(single, "dead").take(1)
		}
		a := c.join("a")
		a.take(1)
		require.True(t, a.renews(1, lease))
		require.Equal(t, "a", a.inspect().Session)
		require.Equal(t, backend.Released, a.release(1))
	}
}

// Without a majority, callers soon get an error that says so. They never get the error that another session has the lock.
func TestQuorumSessionsSeeThatAMajorityIsMissing(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	c.limit = 0
	session := c.session(reentrant.WithLease(lease))
	held, other := session.NewLock("held"), session.NewLock("other")
	require.NoError(t, held.Lock(t.Context()))
	c.servers[0].Stop()
	c.servers[1].Freeze()

	soon(t, func() time.Duration {
		began := time.Now()
		got, err := other.TryLock(t.Context())
		require.False(t, got)
		require.ErrorIs(t, err, backend.ErrNoQuorum)
		return time.Since(began)
	}, "two rounds of half a second, and three releases of one each")

	third := session.NewLock("third")
	var err error
	for wait := time.Second / 4; !errors.Is(err, backend.ErrNoQuorum); wait *= 2 { // the deadline may pass before anything is sent
		require.Less(t, wait, limit)
		limited, cancel := context.WithTimeout(t.Context(), wait)
		err = third.Lock(limited)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Error(t, held.Verify(t.Context()))
	require.ErrorIs(t, held.Unlock(t.Context()), backend.ErrNoQuorum)

	c.servers[1].Thaw()
	require.Eventually(t, func() bool {
		err := other.Lock(t.Context())
		return assert.NoError(t, err) && other.Unlock(t.Context()) == nil // a node may again take too long
	}, limit, tick, "a majority is back")
}

// Within a process the order is the same as with any Backend. A process whose turn is over releases the lock for another
// process.
func TestQuorumSessionsTakeTurns(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	b := &bridge{T: t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	busy := c.session(reentrant.WithTurn(4, 0)).NewLock(c.name)
	var running sync.WaitGroup
	for range 4 { // the process that has the lock always has another waiter
		running.Go(func() {
			for b.cross(ctx, busy) {
			}
		})
	}
	patient := c.session().NewLock(c.name)
	for range 5 {
		b.cross(t.Context(), patient)
	}
	cancel()
	running.Wait()
}

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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

// replicated starts a master with one replica, and waits until the replica follows the master.
func replicated(t *testing.T) (s *site, replica *redisserver.Server) {
	master := redisserver.Start(t, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica = redisserver.Start(t, "--replicaof", host, port)
	copied := &site{T: t, client: connect(t, replica.Addr())}
	copied.eventually(func() bool {
		info, err := copied.do("INFO", "replication").ToString()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, "the replica is connected")
	s = &site{T: t, name: "lock", client: connect(t, master.Addr())}
	s.eventually(func() bool {
		s.run("SET", "marker", "1")
		n, err := s.do("WAIT", "1", "1000").ToInt64()
		return err == nil && n == 1
	}, "the master knows that the replica is connected")
	return s, replica
}

// with gives the site a backend whose acquires wait until n replicas have acknowledged them.
func (s *site) with(n int, timeout time.Duration) *site {
	s.Helper()
	b, err := redisbackend.New(s.client, redisbackend.WithReplicas(n, timeout))
	require.NoError(s, err)
	return &site{T: s.T, name: s.name, client: s.client, b: b}
}

func (m *member) requireNotReplicated(epoch uint64) {
	m.Helper()
	_, err := m.remote.Acquire(m.ctx(), request(epoch))
	require.ErrorIs(m, err, backend.ErrNotReplicated)
	assert.True(m, backend.Refused(err), "the error says not to try again")
	assert.False(m, backend.OutcomeUnknown(err), "the lock was released")
	assert.Empty(m, m.hash())
}

func TestAnAcquireNeedsAsManyReplicasAsAskedFor(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	a, b := s.with(1, limit).join("a"), s.with(2, 200*time.Millisecond).join("b")
	first := a.take(1)
	copied := &site{T: t, name: s.name, client: connect(t, replica.Addr())}
	assert.Equal(t, "a:1=1", copied.hash(), "the replica has the hold")
	a.release(1)
	b.requireNotReplicated(1)
	assert.Greater(t, a.take(2), first)
	a.release(2)
}

func TestAReplicaThatHangsDoesNotCount(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	a, hasty := s.with(1, limit).join("a"), s.with(1, 500*time.Millisecond).join("hasty")
	a.take(1)
	a.release(1)
	replica.Freeze()
	hasty.requireNotReplicated(1)
	replica.Thaw()
	epoch := uint64(1)
	s.eventually(func() bool {
		epoch++
		reply, err := a.remote.Acquire(s.ctx(), request(epoch))
		return err == nil && reply.Status == backend.Granted
	}, "the replica acknowledges again")
}

// With no replica connected, WAIT returns 0, either at once or when its time is over. This means that no replica has
// acknowledged, and must not count as all.
func TestWithNoReplicaConnectedAcquireFails(t *testing.T) {
	t.Parallel()
	s := &site{T: t, name: "lock", client: connect(t, redisserver.Start(t).Addr())}
	s.with(1, 20*time.Millisecond).join("a").requireNotReplicated(1)
}

// An acquire waits for replicas only for as long as it may be executed. Then it still gives the lock back.
func TestAnAcquireWaitsForReplicasUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	s := &site{T: t, name: "lock", client: connect(t, redisserver.Start(t).Addr())}
	a := s.with(1, time.Hour).join("a")
	var err error
	for left := 100 * time.Millisecond; !errors.Is(err, backend.ErrNotReplicated); left *= 2 { // it may be sent too late
		require.Less(t, left, silence, "%v", err)
		ctx, cancel := context.WithTimeout(t.Context(), silence)
		_, err = a.remote.Acquire(ctx, request(uint64(left), func(r *backend.AcquireRequest) { r.NotAfter = time.Now().Add(left) }))
		cancel()
		require.False(t, backend.OutcomeUnknown(err), "%v", err)
	}
	assert.Empty(t, s.hash())
}

// A lock that was pushed is confirmed before Lock returns, and the replicas acknowledge the confirmation.
func TestAPushedGrantIsAcknowledgedByReplicas(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	one, two := newSession(t, s.with(1, limit).b), newSession(t, s.with(1, 500*time.Millisecond).b)
	holder, waiter := one.NewLock("x"), two.NewLock("x")
	held := reentrant.WithOwner(t.Context(), "holder")
	s.eventually(func() bool { return holder.Lock(held) == nil }, "the replica acknowledges")
	got := make(chan error, 1)
	go func() { got <- waiter.Lock(t.Context()) }()
	s.waits(holder, two)
	replica.Freeze()
	require.NoError(t, orLater(holder.Unlock)(held))
	assert.ErrorIs(t, <-got, backend.ErrNotReplicated)
	replica.Thaw()
	ctx := reentrant.WithOwner(t.Context(), "later")
	s.eventually(func() bool { return waiter.Lock(ctx) == nil }, "the replica acknowledges again")
	require.NoError(t, orLater(waiter.Unlock)(ctx))
}

// newSession opens a session over b.
func newSession(t *testing.T, b backend.Backend, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	s, err := reentrant.NewSession(b, slices.Concat(calm, opts)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// A hold that was resumed survives a failover as an acquired hold does: the session that resumed it has it afterwards.
func TestAResumedHoldIsAcknowledgedByReplicas(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	a, b, c := s.with(1, limit).join("a"), s.with(1, limit).join("b"), s.with(2, 20*time.Millisecond).join("c")
	a.take(1, owned("@w"))
	replica.Freeze()
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		assert.Equal(t, backend.Resumed, b.resume(2, false).Status)
	}()
	s.eventually(func() bool { return s.hash() == "b:@w=1" }, "the master has the resumed hold")
	select {
	case <-resumed:
		assert.Fail(t, "Resume returned before the replica has the hold")
	case <-time.After(100 * time.Millisecond): // on a slow machine this may miss a fault, but it never fails wrongly
	}
	replica.Thaw()
	<-resumed
	copied := &site{T: t, name: s.name, client: connect(t, replica.Addr())}
	assert.Equal(t, "b:@w=1", copied.hash())

	_, err := c.remote.(backend.Resumer).Resume(s.ctx(), backend.ResumeRequest{
		Epoch: 3, Owner: "@w", Lease: lease, NotAfter: time.Now().Add(time.Minute),
	})
	require.ErrorIs(t, err, backend.ErrNotReplicated)
	assert.True(t, backend.OutcomeUnknown(err), "the master has the resumed hold")
	assert.False(t, backend.Refused(err), "Resume is sent again until the replicas acknowledge it")
	assert.Equal(t, "c:@w=1", s.hash())
}

func TestReplicasAreWaitedForOnOneConnection(t *testing.T) {
	s, _ := replicated(t)
	a := s.with(1, limit).join("a")
	a.take(1)
	before := everConnected(s)
	for i := range uint64(10) {
		a.release(i + 1)
		a.take(i + 2)
	}
	assert.Equal(t, before, everConnected(s))
}

// If an acquire waits in vain for a connection of the client's pool, it has sent nothing.
func TestAnAcquireThatFoundNoConnectionWasNotSent(t *testing.T) {
	t.Parallel()
	s := &site{T: t, name: "lock", client: connect(t, redisserver.Start(t).Addr(), func(o *rueidis.ClientOption) { o.BlockingPoolSize = 2 })}
	a := s.with(1, time.Second).join("a") // the pool has one connection
	_, release := s.client.Dedicate()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := a.remote.Acquire(ctx, request(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "not sent")
	assert.False(t, backend.OutcomeUnknown(err))
	assert.False(t, backend.Refused(err))
	release()
	a.requireNotReplicated(2)
}

func TestWithReplicasChecksItsArguments(t *testing.T) {
	client := connect(t, redisserver.Start(t).Addr())
	for _, opt := range []redisbackend.Option{
		redisbackend.WithReplicas(0, time.Second), redisbackend.WithReplicas(1, 0), redisbackend.WithReplicas(-1, -1),
	} {
		_, err := redisbackend.New(client, opt)
		assert.ErrorContains(t, err, "WithReplicas")
	}
}

// replicaWaits returns how often the server was asked to wait for replicas.
func (s *site) replicaWaits() (n int) {
	s.Helper()
	stats, err := s.do("INFO", "commandstats").ToString()
	require.NoError(s, err)
	_, after, _ := strings.Cut(stats, "cmdstat_wait:calls=")
	_, _ = fmt.Sscanf(after, "%d", &n)
	return n
}

// An owner that waits for a condition had the lock before. If it cannot acquire the lock again for a whole lease, Await reports
// a loss. If a replica is slow, Await returns no error.
func TestAwaitOutlastsAReplicaThatLags(t *testing.T) {
	t.Parallel()
	type lock interface {
		Lock(context.Context) error
		Unlock(context.Context) error
		NewCondition(string) *reentrant.Condition
		HasWaiters(*reentrant.Condition) (bool, error)
		Verify(context.Context) error
	}
	for name, bind := range map[string]func(*reentrant.Session) lock{
		"Lock":   func(s *reentrant.Session) lock { return s.NewLock("x") },
		"RWLock": func(s *reentrant.Session) lock { return s.NewRWLock("x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, replica := replicated(t)
			l, other := bind(newSession(t, s.with(1, 200*time.Millisecond).b)), bind(newSession(t, must(redisbackend.New(s.client))))
			waiter, signaller := reentrant.WithOwner(t.Context(), "waiter"), reentrant.WithOwner(t.Context(), "signaller")
			s.eventually(func() bool { return l.Lock(waiter) == nil }, "the replica acknowledges")
			back := make(chan error, 1)
			go func() { back <- l.NewCondition("c").Await(waiter) }()
			require.NoError(t, other.Lock(signaller))
			replica.Freeze()
			before := s.replicaWaits()
			require.NoError(t, other.NewCondition("c").Signal(signaller))
			require.NoError(t, orLater(other.Unlock)(signaller))
			s.eventually(func() bool { return len(back) > 0 || s.replicaWaits() >= before+2 }, "Await waits for the replica, and tries again")
			replica.Thaw()
			require.NoError(t, <-back)
			require.NoError(t, again(l.Verify)(waiter))
			require.NoError(t, orLater(l.Unlock)(waiter))
		})
	}
}

// A verb on a write side's condition holds a lock of its own while it runs. This lock need not survive a failover, so Signal
// waits for no replica.
func TestSignalWaitsForNoReplica(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	l, ctx := newSession(t, s.with(1, limit).b).NewRWLock("x"), reentrant.WithOwner(t.Context(), "writer")
	s.eventually(func() bool { return l.Lock(ctx) == nil }, "the replica acknowledges")
	replica.Freeze()
	before := s.replicaWaits()
	require.NoError(t, l.NewCondition("c").Signal(ctx))
	require.NoError(t, l.NewCondition("c").SignalAll(ctx))
	assert.Equal(t, before, s.replicaWaits())
	replica.Thaw()
	require.NoError(t, orLater(l.Unlock)(ctx)) // otherwise the end of the session would wait for the release
}

// A call that acquires a lock of any kind fails when the time for the replicas is over, and keeps nothing.
func TestTooFewReplicasFailEveryKindAtOnce(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	long := []reentrant.Option{reentrant.WithLease(time.Hour), reentrant.WithHeartbeat(20 * time.Minute)} // a hold that is left behind stays
	short, plain := newSession(t, s.with(1, 50*time.Millisecond).b, long...), newSession(t, must(redisbackend.New(s.client)))
	type kind struct{ get, try, elsewhere func(context.Context) error }
	tried := func(ok bool, err error) error { return err }
	once := func(lock, unlock func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := lock(ctx); err != nil {
				return err
			}
			return unlock(ctx)
		}
	}
	kinds := map[string]kind{
		"Lock":  {short.NewLock("l").Lock, func(ctx context.Context) error { return tried(short.NewLock("l").TryLock(ctx)) }, once(plain.NewLock("l").Lock, plain.NewLock("l").Unlock)},
		"read":  {short.NewRWLock("r").RLock, func(ctx context.Context) error { return tried(short.NewRWLock("r").TryRLock(ctx)) }, once(plain.NewRWLock("r").Lock, plain.NewRWLock("r").Unlock)},
		"write": {short.NewRWLock("w").Lock, func(ctx context.Context) error { return tried(short.NewRWLock("w").TryLock(ctx)) }, once(plain.NewRWLock("w").Lock, plain.NewRWLock("w").Unlock)},
		"permits": {
			func(ctx context.Context) error { return short.NewSemaphore("s", 3).Acquire(ctx, 3) },
			func(ctx context.Context) error { return tried(short.NewSemaphore("s", 3).TryAcquire(ctx, 3)) },
			once(func(ctx context.Context) error { return plain.NewSemaphore("s", 3).Acquire(ctx, 3) },
				func(ctx context.Context) error { return plain.NewSemaphore("s", 3).Release(ctx, 3) }),
		},
	}
	replica.Freeze()
	defer replica.Thaw()
	for name, k := range kinds {
		for _, call := range []func(context.Context) error{k.get, k.try} {
			ctx, cancel := context.WithTimeout(t.Context(), silence)
			err := call(ctx)
			require.ErrorIs(t, err, reentrant.ErrNotReplicated, name)
			assert.True(t, reentrant.Refused(err), "%s: the error says not to try again: %v", name, err)
			require.NoError(t, ctx.Err(), name)
			cancel()
		}
		ctx, cancel := context.WithTimeout(reentrant.WithOwner(t.Context(), "elsewhere"), silence)
		require.NoError(t, k.elsewhere(ctx), "%s: the lock was released", name)
		cancel()
	}
}

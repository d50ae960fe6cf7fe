package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A move takes a slot from one node to another, with the commands with which redis-cli does that.
type move struct {
	t        *testing.T
	slot     string
	from, to *site
	target   string // the other node's address
	all      []*site
}

// owner returns the index of the master that has the key's slot in a new Cluster, and the number of the slot.
func owner(t *testing.T, servers *redisserver.Cluster, key string) (index int, slot int64) {
	slot, err := node(t, servers.Masters[0]).do("CLUSTER", "KEYSLOT", key).ToInt64()
	require.NoError(t, err)
	n := int64(len(servers.Masters))
	return int(((slot+1)*n - 1) / 16384), slot
}

// startMove marks a key's slot as moving to the next node.
func startMove(t *testing.T, servers *redisserver.Cluster, key string) *move {
	i, slot := owner(t, servers, key)
	target := servers.Masters[(i+1)%len(servers.Masters)]
	m := &move{t: t, slot: text(slot), from: node(t, servers.Masters[i]), to: node(t, target), target: target.Addr(), all: nodes(t, servers)}
	m.to.run("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.id(m.from))
	m.from.run("CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.id(m.to))
	return m
}

func (m *move) id(of *site) string {
	id, err := of.do("CLUSTER", "MYID").ToString()
	require.NoError(m.t, err)
	return id
}

// carry moves the given keys. If no keys are given, carry moves all keys of the slot.
func (m *move) carry(keys ...string) {
	if len(keys) == 0 {
		var err error
		keys, err = m.from.do("CLUSTER", "GETKEYSINSLOT", m.slot, "1000").AsStrSlice()
		require.NoError(m.t, err)
	}
	host, port, err := net.SplitHostPort(m.target)
	require.NoError(m.t, err)
	m.from.run(append([]string{"MIGRATE", host, port, "", "0", text(limit.Milliseconds()), "KEYS"}, keys...)...)
}

func (m *move) finish() {
	// An attempt of a waiter may make a key on the old node again, so the keys are moved right before the slot changes its
	// node.
	m.carry()
	id := m.id(m.to)
	for _, node := range append([]*site{m.to, m.from}, m.all...) {
		node.run("CLUSTER", "SETSLOT", m.slot, "NODE", id)
	}
}

// session opens a session that releases what it still holds at the end of the test. A grant lasts as long as a lease,
// since this machine may stand still when the grant arrives.
func (s *site) session(opts ...reentrant.Option) *reentrant.Session {
	s.Helper()
	session, err := reentrant.NewSession(s.b, append([]reentrant.Option{reentrant.WithHeartbeat(4 * time.Second)}, opts...)...)
	require.NoError(s, err)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = session.Close(ctx)
	})
	return session
}

// limit is the longest time that a test waits for anything. A test reaches it only when it fails.
const limit = time.Minute

// await waits until another goroutine sends a result.
func await[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(limit):
		require.FailNow(t, "not within a minute", what)
	}
	return v
}

// A locking is the result of a Lock in another goroutine.
type locking struct {
	token backend.Token
	err   error
}

// lockLater starts a goroutine that waits for a lock, sends its token, and releases the lock.
func lockLater(ctx context.Context, l *reentrant.Lock) <-chan locking {
	done := make(chan locking, 1)
	go func() {
		var r locking
		r.err = l.Do(ctx, func(ctx context.Context) (err error) {
			r.token, err = l.Token(ctx)
			return err
		})
		done <- r
	}()
	return done
}

// waits waits until the session is in the lock's queue.
func (s *site) waits(l *reentrant.Lock, session *reentrant.Session) {
	s.Helper()
	require.Eventually(s, func() bool {
		state, err := l.Inspect(s.ctx())
		return err == nil && slices.Contains(state.Waiting, session.ID())
	}, limit, tick, "the session is in the queue")
}

const tick = 5 * time.Millisecond

func TestASlotMovesWhileALockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 0)
	all := nodes(t, servers)
	holder, waiter := s.session(reentrant.WithLease(lease)), s.session(reentrant.WithLease(lease))
	held, wanted := holder.NewLock("lock"), waiter.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	got := lockLater(t.Context(), wanted)
	s.waits(held, waiter)
	shards := redisserver.KnowsShards(t)
	listens := func() bool { return !shards || shardListeners(all, "lock", waiter.ID()) == 1 }
	s.eventually(listens, "the waiter listens on the node that has the slot")

	m := startMove(t, servers, "lock")
	m.carry("relock:{lock}:t:lock") // some of the keys move, the others stay
	verify := make(chan error, 1)
	go func() { verify <- held.Verify(ctx) }()
	// Redis replies TRYAGAIN while the keys are on two nodes. The call then reports neither a loss nor a refusal.
	var err error
	s.eventually(func() bool {
		_, err = held.Inspect(s.ctx())
		return !errors.Is(err, context.DeadlineExceeded)
	}, "the renewal gets its reply in time")
	require.ErrorContains(t, err, "TRYAGAIN")
	assert.False(t, backend.Refused(err))
	m.finish()
	if err := await(t, verify, "Verify"); err != nil {
		assert.False(t, backend.Refused(err), "%v", err)
	}
	require.Eventually(t, func() bool { return held.Verify(ctx) == nil }, limit, tick)
	assert.Equal(t, first, must(held.Token(ctx)), "the hold moved with its slot")
	require.NoError(t, orLater(held.Unlock)(ctx))
	r := await(t, got, "the waiter gets the lock")
	require.NoError(t, r.err)
	assert.Greater(t, r.token, first)

	// Then the slot moves back while the lock is handed over.
	for i := range 3 {
		require.NoError(t, held.Lock(ctx))
		got = lockLater(t.Context(), wanted)
		s.waits(held, waiter)
		s.eventually(listens, "the waiter listens on the new node")
		before := busMessages(all)
		require.NoError(t, orLater(held.Unlock)(ctx))
		require.NoError(t, await(t, got, "the waiter gets the lock").err)
		if shards {
			assert.Equal(t, before, busMessages(all), "round %d: the message is sent on the node", i)
		}
	}
}

// While a slot moves, Redis assumes that a missing key has already been moved, and refuses the command. A command whose keys
// all exist still runs, so a holder can renew and re-enter its lock. Some keys of a free lock do not exist, so no session can
// acquire the lock.
func TestASlotThatMovesServesOnlyHolders(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 0)
	holder := s.join("holder")
	holder.take(1)
	free := holder.bind("{lock}free")

	m := startMove(t, servers, "lock")
	assert.True(t, holder.renews(1, lease))
	assert.Equal(t, 2, holder.reenter(1, 1, 2, 0).Holds)
	for name, err := range map[string]error{
		"acquire": second(free.Acquire(s.ctx(), request(1))),
		"release": second(holder.remote.Release(s.ctx(), backend.ReleaseRequest{Epoch: 1})),
		"inspect": second(holder.remote.Inspect(s.ctx())),
	} {
		require.ErrorContains(t, err, "TRYAGAIN", name)
		assert.False(t, backend.Refused(err), "%s succeeds", name)
	}
	m.finish()
	s.eventually(func() bool { return second(free.Acquire(s.ctx(), request(1))) == nil }, "the slot has moved")
	assert.Equal(t, backend.Released, holder.release(1))
}

func second[T any](_ T, err error) error { return err }

func TestASlotMovesWhileALockIsHandedOver(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 0)
	holder, waiter := s.session(reentrant.WithLease(limit/2)), s.session()
	held, wanted := holder.NewLock("lock"), waiter.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	got := lockLater(t.Context(), wanted)
	s.waits(held, waiter)
	m := startMove(t, servers, "lock")
	m.carry("lock")
	unlocked := make(chan error, 1)
	go func() { unlocked <- held.Unlock(ctx) }()
	s.eventually(func() bool { return errorsOf(m.from, "TRYAGAIN")+errorsOf(m.to, "TRYAGAIN") > 0 }, "an Unlock or a heartbeat runs between the two steps of the move")
	m.finish()
	if err := await(t, unlocked, "Unlock"); err != nil {
		assert.ErrorContains(t, err, "TRYAGAIN", "Unlock may fail only in this way")
	}
	r := await(t, got, "the waiter gets the lock from the Unlock, from its clean-up, or when the lease ends")
	require.NoError(t, r.err)
	assert.Greater(t, r.token, first)
}

// errorsOf returns how many errors of a kind a server has sent.
func errorsOf(s *site, code string) (n int64) {
	s.Helper()
	info, err := s.do("INFO", "errorstats").ToString()
	require.NoError(s, err)
	for line := range strings.Lines(info) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "errorstat_"+code+":count="); ok {
			n = number(s, count)
		}
	}
	return n
}

// A register is a fenced resource: it refuses a write whose token is lower than the last one.
type register struct {
	mu     sync.Mutex
	seen   map[backend.Token]bool
	last   backend.Token
	writes int
	twice  []backend.Token
}

func (r *register) write(token backend.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[token] {
		r.twice = append(r.twice, token)
	}
	if r.seen == nil {
		r.seen = make(map[backend.Token]bool)
	}
	r.seen[token] = true
	if token > r.last { // if not, the register refuses the write: the holder was paused, or a failover forgot the hold
		r.last = token
		r.writes++
	}
}

func (r *register) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// crowd starts owners in several sessions that hand a lock over to each other. It returns the register to which the owners
// write, and a function that ends the owners.
func (s *site) crowd(name string, sessions ...*reentrant.Session) (r *register, stop func()) {
	r = new(register)
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	for _, session := range sessions {
		lock := session.NewLock(name)
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = lock.Do(ctx, func(ctx context.Context) error { // an error may last for a while
						token, err := lock.Token(ctx)
						if err == nil {
							r.write(token)
						}
						return err
					})
				}
			})
		}
	}
	return r, func() {
		cancel()
		all.Wait()
	}
}

// advances requires that the owners of a crowd still acquire the lock.
func (s *site) advances(r *register) {
	s.Helper()
	goal := r.count() + 20
	require.Eventually(s, func() bool { return r.count() >= goal }, limit, tick, "the lock is still handed over")
}

// promote makes a replica the master.
func promote(t *testing.T, replica *site) {
	replica.run("CLUSTER", "FAILOVER", "TAKEOVER")
	replica.eventually(func() bool {
		role, err := replica.do("ROLE").ToArray()
		return err == nil && len(role) > 0 && must(role[0].ToString()) == "master"
	}, "the replica is the master")
}

// copied waits until a replica has the hold.
func copied(t *testing.T, replica *redisserver.Server, name string) *site {
	r := node(t, replica)
	r.name = name
	_ = r.do("READONLY").Error() // in a Cluster READONLY is needed; elsewhere it is an error
	r.eventually(func() bool { return r.hash() != "" }, "the replica has the hold")
	return r
}

func TestAMasterDiesWhileItsLockIsHeldAndWaitedFor(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 1, "--cluster-require-full-coverage", "no")
	holder, waiter := s.session(reentrant.WithLease(lease)), s.session(reentrant.WithLease(lease))
	ctx := reentrant.WithOwner(t.Context(), "holder")
	var others []*reentrant.Lock
	for i := range 30 {
		others = append(others, holder.NewLock(fmt.Sprintf("other-%d", i)))
		require.NoError(t, others[i].Lock(ctx))
	}
	held, wanted := holder.NewLock("lock"), waiter.NewLock("lock")
	require.NoError(t, held.Lock(ctx))
	first := must(held.Token(ctx))
	got := lockLater(t.Context(), wanted)
	s.waits(held, waiter)
	i, _ := owner(t, servers, "lock")
	replica := copied(t, servers.Replicas[i][0], "lock")
	for j, other := range others {
		if at, _ := owner(t, servers, other.Name()); at == i {
			copied(t, servers.Replicas[i][0], others[j].Name())
		}
	}
	servers.Masters[i].Stop()
	promote(t, replica)
	require.Eventually(t, func() bool { return held.Verify(ctx) == nil }, limit, tick, "the new master has the hold")
	assert.Equal(t, first, must(held.Token(ctx)))
	for _, other := range others {
		require.Eventually(t, func() bool { return other.Verify(ctx) == nil }, limit, tick, other.Name())
		assert.NoError(t, orLater(other.Unlock)(ctx))
	}
	require.NoError(t, orLater(held.Unlock)(ctx))
	r := await(t, got, "the waiter gets the lock")
	require.NoError(t, r.err)
	assert.Greater(t, r.token, first)
}

func TestAMasterDiesWhileItsLockIsHandedOver(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 1, "--cluster-require-full-coverage", "no")
	r, stop := s.crowd("lock", s.session(), s.session(), s.session())
	s.advances(r)
	i, _ := owner(t, servers, "lock")
	servers.Masters[i].Stop()
	promote(t, node(t, servers.Replicas[i][0]))
	s.advances(r)
	s.advances(r)
	stop()
	assert.Empty(t, r.twice, "no token is issued twice")
}

// A node that does not reply does not delay renewals of locks on other nodes, even if the other nodes do not have the script
// yet.
func TestRenewalsWhenANodeIsDown(t *testing.T) {
	t.Parallel()
	renewalsWithout(t, (*redisserver.Server).Stop)
}

// This is not a subtest: a parallel subtest starts when most tests have ended, and this test takes half the time that Renew may
// take.
func TestRenewalsWhenANodeHangs(t *testing.T) {
	t.Parallel()
	renewalsWithout(t, (*redisserver.Server).Freeze)
}

// renewalsWithout checks renewals after stop was called for a node.
func renewalsWithout(t *testing.T, stop func(*redisserver.Server)) {
	a, renewals, servers := holdsOnAllNodes(t)
	const down = 1
	stop(servers.Masters[down])
	isDown := func(r backend.Remote) bool { at, _ := owner(t, servers, r.Name()); return at == down }
	for wait := limit / 4; ; wait *= 2 { // the nodes may be slow; a wait for the node that is down would last until ctx ends
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		a.conn.Renew(ctx, renewals)
		cancel()
		late := func(r backend.Renewal) bool { return r.Err != nil && !isDown(r.Remote) }
		if wait >= silence || !slices.ContainsFunc(renewals, late) {
			break
		}
	}
	failed := 0
	for _, r := range renewals {
		assert.False(t, r.Gone)
		if isDown(r.Remote) {
			require.Error(t, r.Err)
			assert.False(t, backend.Refused(r.Err), "%v", r.Err)
			failed++
			continue
		}
		require.NoError(t, r.Err)
		at, _ := owner(t, servers, r.Remote.Name())
		n := node(t, servers.Masters[at])
		n.name = r.Remote.Name()
		assert.Greater(t, n.ttl(), lease, "renewed")
	}
	assert.Positive(t, failed)
	assert.Less(t, failed, len(renewals))
	servers.Masters[down].Thaw()
}

// A node that does not reply does not delay InspectAll of locks on other nodes.
func TestInspectAllWhenANodeIsDown(t *testing.T) {
	t.Parallel()
	inspectAllWithout(t, (*redisserver.Server).Stop)
}

func TestInspectAllWhenANodeHangs(t *testing.T) {
	t.Parallel()
	inspectAllWithout(t, (*redisserver.Server).Freeze)
}

// inspectAllWithout looks at locks after stop was called for a node.
func inspectAllWithout(t *testing.T, stop func(*redisserver.Server)) {
	a, renewals, servers := holdsOnAllNodes(t)
	a.inspectAll(renewals, limit) // so that the nodes have the script
	const down = 1
	isDown := func(r backend.Remote) bool { at, _ := owner(t, servers, r.Name()); return at == down }
	there := slices.DeleteFunc(slices.Clone(renewals), func(r backend.Renewal) bool { return !isDown(r.Remote) })
	stop(servers.Masters[down])
	a.inspectAll(there, time.Second) // this closes the connection to the node that hangs, so the next call waits for a new one
	healthy := node(t, servers.Masters[0])
	var all []backend.Inspection
	var times int
	for wait := limit / 4; ; wait *= 2 {
		times = healthy.scripts(func() { all = a.inspectAll(renewals, wait) })
		late := func(i backend.Inspection) bool { return i.Err != nil && !isDown(i.Remote) }
		if wait >= silence || !slices.ContainsFunc(all, late) {
			break
		}
	}
	asked := 0
	for _, seen := range all {
		at, _ := owner(t, servers, seen.Remote.Name())
		assert.Equal(t, at == down, seen.Err != nil, "%s: %v", seen.Remote.Name(), seen.Err)
		if at == 0 {
			asked++
		}
	}
	assert.Equal(t, asked, times, "a node that replies is asked once for each lock")
	servers.Masters[down].Thaw()
}

// patientCluster starts a Cluster whose nodes do not notice that one of them hangs. Only while the Cluster forms do they notice
// that, so that they replace connections that do not work.
func patientCluster(t *testing.T) (*site, *redisserver.Cluster) {
	s, servers := cluster(t, 0, "--cluster-require-full-coverage", "no")
	for _, node := range servers.Nodes() {
		_, err := node.Command("CONFIG", "SET", "cluster-node-timeout", "600000")
		require.NoError(t, err)
	}
	return s, servers
}

// holdsOnAllNodes returns a session that holds locks on all nodes of a Cluster, and the renewals of these locks.
func holdsOnAllNodes(t *testing.T) (*member, []backend.Renewal, *redisserver.Cluster) {
	s, servers := patientCluster(t)
	// only the caller's deadline ends the command to the node that hangs; a new connection is given up sooner
	s.client = connect(t, servers.Masters[0].Addr(), func(o *rueidis.ClientOption) {
		o.ConnWriteTimeout, o.Dialer.Timeout = 10*time.Minute, limit/12
	})
	var err error
	s.b, err = redisbackend.New(s.client)
	require.NoError(t, err)
	a := s.join("a")
	var renewals []backend.Renewal
	for i := range 30 {
		a.remote = a.bind(fmt.Sprintf("lock-%d", i))
		a.take(uint64(i + 1))
		renewals = append(renewals, backend.Renewal{Remote: a.remote, Epoch: uint64(i + 1), Lease: 2 * lease})
	}
	return a, renewals, servers
}

// inspectAll looks at the locks of renewals, and requires that this succeeds in time.
func (m *member) inspectAll(renewals []backend.Renewal, within time.Duration) []backend.Inspection {
	ctx, cancel := context.WithTimeout(m.Context(), within)
	defer cancel()
	all := make([]backend.Inspection, len(renewals))
	for i, r := range renewals {
		all[i].Remote = r.Remote
	}
	m.conn.(backend.Inspector).InspectAll(ctx, all)
	return all
}

// One node hangs. A session reports that its locks there are lost once it no longer trusts their leases. It keeps its locks on
// other nodes.
func TestASessionOutlivesANodeThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("as long as a lease")
	}
	t.Parallel()
	s, servers := patientCluster(t)
	var err error
	s.b, err = redisbackend.Open(t.Context(), "redis://"+servers.Masters[0].Addr())
	require.NoError(t, err)
	t.Cleanup(s.b.Close)
	keepsALease(t, func(lease time.Duration) error { return s.outlives(servers, 2, lease) })
}

// outlives makes a node hang until a session has lost its locks there. It returns an error if the session has lost other locks.
func (s *site) outlives(servers *redisserver.Cluster, down int, lease time.Duration) (err error) {
	session := s.session(reentrant.WithLease(lease))
	ctx := reentrant.WithOwner(s.Context(), "holder")
	var there, elsewhere []*reentrant.Lock
	for i := range 30 {
		lock := session.NewLock(fmt.Sprintf("lock-%d of %v", i, lease))
		require.NoError(s, lock.Lock(ctx))
		if at, _ := owner(s.T, servers, lock.Name()); at == down {
			there = append(there, lock)
		} else {
			elsewhere = append(elsewhere, lock)
		}
	}
	for _, node := range nodes(s.T, servers) { // so the nodes do not have the scripts while one of them hangs
		node.run("SCRIPT", "FLUSH")
	}
	servers.Masters[down].Freeze()
	defer servers.Masters[down].Thaw()
	for _, lock := range there {
		await(s.T, lock.Lost(ctx), "the loss is reported when the lease is no longer trusted")
	}
	for _, lock := range elsewhere {
		err = errors.Join(err, again(lock.Verify)(ctx), orLater(lock.Unlock)(ctx))
	}
	return err
}

// keepsALease runs a test that keeps a lock for longer than a lease. If the lock is lost, the machine may have stood still for
// a whole lease, so keepsALease runs the test again with twice the lease.
func keepsALease(t *testing.T, test func(lease time.Duration) error) {
	t.Helper()
	for lease := reentrant.DefaultLease; ; lease *= 2 {
		err := test(lease)
		if err == nil {
			return
		}
		require.ErrorIs(t, err, reentrant.ErrLost)
		require.Less(t, lease, testsize.Patience(limit/2), "%v", err)
	}
}

package backendtest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

const (
	// limit is the longest time that a command may take, or that a case waits for an event.
	limit = 30 * time.Second
	// short is a lease whose end a case waits for. No case depends on how early it is over.
	short = 150 * time.Millisecond
	// medium and long are leases that outlast every case, and are different enough to be distinguished.
	medium = 10 * limit
	long   = 30 * limit

	pollInterval = 5 * time.Millisecond
)

// A test is one run of a case.
type test struct {
	testing.TB
	backend backend.Backend
	name    string        // the name of the lock that the case is about
	brief   time.Duration // a lease of the lock whose end the case waits for
	began   time.Time
}

func newTest(t testing.TB, b backend.Backend, brief time.Duration) *test {
	return &test{TB: t, backend: b, name: "backendtest-" + rand.Text(), brief: brief, began: time.Now()}
}

// eventually waits until a condition is met.
func (t *test) eventually(what string, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !met() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		t.pause(pollInterval)
	}
}

func (t *test) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test's context ended")
	}
}

// full requires that ttl is the rest of a lease of this length that began during this case.
func (t *test) full(lease, ttl time.Duration) {
	t.Helper()
	require.LessOrEqual(t, ttl, lease, "longer than the lease")
	require.Greater(t, ttl, lease-max(limit, time.Since(t.began)), "not the whole lease")
}

// A session talks to the Backend as one process would do, with verbs that must not fail.
type session struct {
	*remote
	id    string
	conn  backend.Conn
	mail  *mailbox
	epoch uint64 // the last epoch that handOver used
}

// connect opens a session, which is closed at the end of the test.
func (t *test) connect() *session {
	t.Helper()
	s := &session{id: rand.Text(), mail: newMailbox()}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conn, err := t.backend.Connect(ctx, s.id, s.mail)
	require.NoError(t, err, "Connect")
	t.Cleanup(func() { _ = conn.Close() })
	s.conn = conn
	s.remote = s.bind(t, t.name)
	return s
}

// connect3 opens the three sessions of most cases: one that has the lock, and two that want it.
func (t *test) connect3() (holder, first, second *session) {
	t.Helper()
	return t.connect(), t.connect(), t.connect()
}

// A remote is one lock seen by a session.
type remote struct {
	t    *test
	raw  backend.Remote
	name string
}

func (s *session) bind(t *test, name string) *remote {
	t.Helper()
	r, err := s.conn.Bind(name)
	require.NoError(t, err, "Bind(%q)", name)
	return &remote{t: t, raw: r, name: name}
}

// command returns a context for one command.
func (r *remote) command() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.t.Context(), limit)
}

// A with is a function that changes one thing in a request.
type with func(*backend.AcquireRequest)

func owner(name string) with     { return func(r *backend.AcquireRequest) { r.Owner = name } }
func holds(n int) with           { return func(r *backend.AcquireRequest) { r.Holds = n } }
func lease(d time.Duration) with { return func(r *backend.AcquireRequest) { r.Lease = d } }
func fixed(d time.Duration) with {
	return func(r *backend.AcquireRequest) { r.Fixed, r.Lease = true, d }
}
func patience(d time.Duration) with     { return func(r *backend.AcquireRequest) { r.Patience = d } }
func grantTTL(d time.Duration) with     { return func(r *backend.AcquireRequest) { r.GrantTTL = d } }
func tokens(n int) with                 { return func(r *backend.AcquireRequest) { r.Tokens = n } }
func seen(token backend.Token) with     { return func(r *backend.AcquireRequest) { r.Seen = token } }
func notAfter(at time.Time) with        { return func(r *backend.AcquireRequest) { r.NotAfter = at } }
func queue(r *backend.AcquireRequest)   { r.Queue = true }
func barge(r *backend.AcquireRequest)   { r.Barge = true }
func yield(r *backend.AcquireRequest)   { r.Queue, r.Yield = true, true }
func keepTTL(r *backend.AcquireRequest) { r.KeepTTL = true }

// request returns an attempt of owner "1" that does not queue. Its lease and all its other times are long.
func request(epoch uint64, changes []with) backend.AcquireRequest {
	req := backend.AcquireRequest{
		Epoch: epoch, Owner: "1", Holds: 1, Lease: long, NotAfter: time.Now().Add(limit),
		Tokens: 1, Patience: long, GrantTTL: medium,
	}
	for _, change := range changes {
		change(&req)
	}
	return req
}

// acquire sends one copy of an attempt.
func (r *remote) acquire(epoch uint64, changes ...with) backend.AcquireReply {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	reply, err := r.raw.Acquire(ctx, request(epoch, changes))
	require.NoError(r.t, err, "Acquire")
	return reply
}

// try sends an attempt whose lease may be over before the reply comes, if the machine is slow. If the lease is over, a Backend
// may return an error in place of the grant, and over is true.
func (r *remote) try(epoch uint64, changes ...with) (reply backend.AcquireReply, over bool) {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	req := request(epoch, changes)
	sent := time.Now()
	reply, err := r.raw.Acquire(ctx, req)
	if err != nil && time.Since(sent) > req.Lease/2 {
		return backend.AcquireReply{}, true
	}
	require.NoError(r.t, err, "Acquire")
	return reply, false
}

// brief takes the lock with a lease that ends soon, or has already ended.
func (r *remote) brief(epoch uint64, changes ...with) backend.AcquireReply {
	r.t.Helper()
	reply, over := r.try(epoch, append([]with{lease(r.t.brief)}, changes...)...)
	if !over {
		require.Equal(r.t, backend.Granted, reply.Status, "Acquire of epoch %d", epoch)
	}
	return reply
}

// take sends an attempt that must be granted.
func (r *remote) take(epoch uint64, changes ...with) backend.AcquireReply {
	r.t.Helper()
	reply := r.acquire(epoch, changes...)
	require.Equal(r.t, backend.Granted, reply.Status, "Acquire of epoch %d", epoch)
	return reply
}

// taken waits until the session has taken the lock, and returns the epoch. In a quorum an attempt becomes stale if only some of
// the nodes gave it the lock. Then taken makes an attempt with the next epoch.
func (r *remote) taken(epoch uint64, changes ...with) (uint64, backend.AcquireReply) {
	r.t.Helper()
	var reply backend.AcquireReply
	r.t.eventually("the session gets the lock", func() bool {
		if reply = r.acquire(epoch, changes...); reply.Status == backend.Stale {
			epoch++
		}
		return reply.Status == backend.Granted
	})
	return epoch, reply
}

// wait sends an attempt that must be queued.
func (r *remote) wait(epoch uint64, changes ...with) backend.AcquireReply {
	r.t.Helper()
	reply := r.acquire(epoch, append(changes, queue)...)
	require.Equal(r.t, backend.Waiting, reply.Status, "Acquire of epoch %d", epoch)
	return reply
}

// stale sends an attempt that must be stale.
func (r *remote) stale(epoch uint64, changes ...with) {
	r.t.Helper()
	require.Equal(r.t, backend.Stale, r.acquire(epoch, changes...).Status, "Acquire of epoch %d", epoch)
}

func (r *remote) reenter(req backend.ReenterRequest) backend.ReenterReply {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	if req.Owner == "" {
		req.Owner = "1"
	}
	reply, err := r.raw.Reenter(ctx, req)
	require.NoError(r.t, err, "Reenter")
	return reply
}

func (r *remote) send(req backend.ReleaseRequest) backend.ReleaseResult {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	result, err := r.raw.Release(ctx, req)
	require.NoError(r.t, err, "Release")
	return result
}

// release releases an epoch of which no copy is under way.
func (r *remote) release(epoch uint64) backend.ReleaseResult {
	r.t.Helper()
	return r.send(backend.ReleaseRequest{Epoch: epoch})
}

func (r *remote) inspect() backend.State {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	st, err := r.raw.Inspect(ctx)
	require.NoError(r.t, err, "Inspect")
	return st
}

func (r *remote) force() bool {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	had, err := r.raw.ForceUnlock(ctx, time.Now().Add(limit))
	require.NoError(r.t, err, "ForceUnlock")
	return had
}

// free requires that the lock is free.
func (r *remote) free() {
	r.t.Helper()
	st := r.inspect()
	require.False(r.t, st.Locked, "the lock must be free: %+v", st)
}

// lapse lets the lease of the session's lock end.
func (r *remote) lapse() {
	r.t.Helper()
	r.brief(r.inspect().Epoch + 1)
	r.expired()
}

// expired waits until the lock is free.
func (r *remote) expired() {
	r.t.Helper()
	r.t.eventually("the lease ends", func() bool { return !r.inspect().Locked })
}

// waiting requires that the sessions whose places in the queue are alive are exactly these, in this order.
func (r *remote) waiting(sessions ...*session) {
	r.t.Helper()
	require.Equal(r.t, ids(sessions), append([]string{}, r.inspect().Waiting...), "sessions in the queue")
}

// dead waits until only these sessions have places in the queue that are alive.
func (r *remote) dead(rest ...*session) {
	r.t.Helper()
	r.t.eventually("the others lose their places", func() bool { return len(r.inspect().Waiting) <= len(rest) })
	r.waiting(rest...)
}

func ids(sessions []*session) []string {
	all := []string{}
	for _, s := range sessions {
		all = append(all, s.id)
	}
	return all
}

// renew renews one hold, and reports whether it existed.
func (s *session) renew(epoch uint64, lease time.Duration) bool {
	s.t.Helper()
	batch := []backend.Renewal{{Remote: s.raw, Epoch: epoch, Lease: lease}}
	s.renewAll(batch)
	return !batch[0].Gone
}

func (s *session) renewAll(batch []backend.Renewal) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(1+len(batch)/10)*limit) // without scripts each renewal takes a few commands
	defer cancel()
	s.conn.Renew(ctx, batch)
	for _, r := range batch {
		require.NoError(s.t, r.Err, "Renew of %q", r.Remote.Name())
	}
}

// has requires that this session's attempt has the lock.
func (s *session) has(epoch uint64) backend.State {
	s.t.Helper()
	st := s.inspect()
	require.True(s.t, st.Locked, "the lock must be held")
	require.Equal(s.t, s.id, st.Session, "holder's session")
	require.Equal(s.t, epoch, st.Epoch, "holder's epoch")
	return st
}

// A push is a grant that a session received as a message.
type push struct {
	backend.Grant
	asked, released time.Time // the time when the waiter was queued, and the time when the holder's release returned
}

// handOver passes the lock from one session to another that waits for it, and returns the message that the other session
// receives. Before the call neither session may have or want the lock. If the channel was reopened meanwhile, the message may
// be lost, and handOver begins again.
func (t *test) handOver(from, to *session, changes ...with) push {
	t.Helper()
	for range 5 {
		from.epoch++
		to.epoch++
		from.take(from.epoch)
		mark := to.mail.resumed()
		asked := time.Now()
		to.wait(to.epoch, changes...)
		require.Equal(t, backend.Released, from.release(from.epoch))
		p := push{asked: asked, released: time.Now()}
		var ok bool
		if p.Grant, ok = to.mail.wait(t.Context(), t.name, to.epoch, limit); ok {
			return p
		}
		if to.mail.resumed() == mark {
			t.Fatalf("no message about the grant within %v, and the channel was not reopened", limit)
		}
		to.release(to.epoch)
	}
	t.Fatal("the channel is reopened all the time")
	return push{}
}

package backendtest_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
)

// A wrapper is between sessions and their Backend. Its hooks change what passes through it.
type wrapper struct {
	backend.Backend
	hooks
}

// hooks are called in place of the functions whose names they have. A hook that is nil changes nothing.
type hooks struct {
	connect func(ctx context.Context, b backend.Backend, session string, to backend.Sink) (backend.Conn, error)
	bind    func(c backend.Conn, name string) (backend.Remote, error)
	acquire func(ctx context.Context, r *remote, req backend.AcquireRequest) (backend.AcquireReply, error)
	reenter func(ctx context.Context, r *remote, req backend.ReenterRequest) (backend.ReenterReply, error)
	release func(ctx context.Context, r *remote, req backend.ReleaseRequest) (backend.ReleaseResult, error)
	inspect func(ctx context.Context, r *remote, st backend.State) backend.State
	// inspectAll changes the replies to InspectAll.
	inspectAll func(inspections []backend.Inspection)
	force      func(ctx context.Context, r *remote, notAfter time.Time) (bool, error)
	renew      func(ctx context.Context, c *conn, renewals []backend.Renewal)
	granted    func(to backend.Sink, g backend.Grant)
	close      func(c *conn)

	await     func(ctx context.Context, r *remote, req backend.AwaitRequest) (backend.TicketStatus, error)
	signal    func(ctx context.Context, r *remote, req backend.SignalRequest) (backend.SignalReply, error)
	withdraw  func(ctx context.Context, r *remote, condition string, ticket uint64) (backend.TicketStatus, error)
	beat      func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]backend.TicketStatus, error)
	signalled func(to backend.Sink, name string, ticket uint64, placed bool)
}

func (w *wrapper) Connect(ctx context.Context, session string, to backend.Sink) (backend.Conn, error) {
	connect := w.connect
	if connect == nil {
		connect = func(ctx context.Context, b backend.Backend, session string, to backend.Sink) (backend.Conn, error) {
			return b.Connect(ctx, session, to)
		}
	}
	c, err := connect(ctx, w.Backend, session, sink{to, w.hooks})
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, hooks: w.hooks, session: session}, nil
}

type sink struct {
	backend.Sink
	hooks
}

func (s sink) Granted(g backend.Grant) {
	if s.granted == nil {
		s.Sink.Granted(g)
		return
	}
	s.granted(s.Sink, g)
}

func (s sink) Signalled(name string, ticket uint64, placed bool) {
	if s.signalled == nil {
		s.Sink.Signalled(name, ticket, placed)
		return
	}
	s.signalled(s.Sink, name, ticket, placed)
}

type conn struct {
	backend.Conn
	hooks
	session string

	mu    sync.Mutex
	bound []*remote
}

func (c *conn) Bind(name string) (backend.Remote, error) {
	bind := c.bind
	if bind == nil {
		bind = backend.Conn.Bind
	}
	raw, err := bind(c.Conn, name)
	if err != nil {
		return nil, err
	}
	r := &remote{Remote: raw, conn: c, name: name}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = append(c.bound, r)
	return r, nil
}

func (c *conn) Renew(ctx context.Context, renewals []backend.Renewal) {
	if c.renew == nil {
		c.Conn.Renew(ctx, renewals)
		return
	}
	c.renew(ctx, c, renewals)
}

// InspectAll implements backend.Inspector.
func (c *conn) InspectAll(ctx context.Context, inspections []backend.Inspection) {
	inner := make([]backend.Inspection, len(inspections))
	for i, n := range inspections {
		if inner[i].Remote = n.Remote; n.Remote != nil {
			inner[i].Remote = n.Remote.(*remote).Remote
		}
	}
	c.Conn.(backend.Inspector).InspectAll(ctx, inner)
	if c.inspectAll != nil {
		c.inspectAll(inner)
	}
	for i, n := range inner {
		inspections[i].State, inspections[i].Err = n.State, n.Err
	}
}

func (c *conn) Close() error {
	if c.close != nil {
		c.close(c)
	}
	return c.Conn.Close()
}

type remote struct {
	backend.Remote
	conn *conn
	name string
}

func (r *remote) Name() string { return r.name }

func (r *remote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if r.conn.acquire == nil {
		return r.Remote.Acquire(ctx, req)
	}
	return r.conn.acquire(ctx, r, req)
}

func (r *remote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	if r.conn.reenter == nil {
		return r.Remote.Reenter(ctx, req)
	}
	return r.conn.reenter(ctx, r, req)
}

func (r *remote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if r.conn.release == nil {
		return r.Remote.Release(ctx, req)
	}
	return r.conn.release(ctx, r, req)
}

// conditions returns the verbs of the conditions of the wrapped lock.
func (r *remote) conditions() backend.Conditions { return r.Remote.(backend.Conditions) }

func (r *remote) Await(ctx context.Context, req backend.AwaitRequest) (backend.TicketStatus, error) {
	if r.conn.await == nil {
		return r.conditions().Await(ctx, req)
	}
	return r.conn.await(ctx, r, req)
}

func (r *remote) Signal(ctx context.Context, req backend.SignalRequest) (backend.SignalReply, error) {
	if r.conn.signal == nil {
		return r.conditions().Signal(ctx, req)
	}
	return r.conn.signal(ctx, r, req)
}

func (r *remote) Withdraw(ctx context.Context, condition string, ticket uint64) (backend.TicketStatus, error) {
	if r.conn.withdraw == nil {
		return r.conditions().Withdraw(ctx, condition, ticket)
	}
	return r.conn.withdraw(ctx, r, condition, ticket)
}

func (r *remote) Beat(ctx context.Context, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
	if r.conn.beat == nil {
		return r.conditions().Beat(ctx, condition, tickets, served)
	}
	return r.conn.beat(ctx, r, condition, tickets, served)
}

func (r *remote) Inspect(ctx context.Context) (backend.State, error) {
	st, err := r.Remote.Inspect(ctx)
	if r.conn.inspect != nil {
		st = r.conn.inspect(ctx, r, st)
	}
	return st, err
}

func (r *remote) ForceUnlock(ctx context.Context, notAfter time.Time) (bool, error) {
	if r.conn.force == nil {
		return r.Remote.ForceUnlock(ctx, notAfter)
	}
	return r.conn.force(ctx, r, notAfter)
}

// state returns the lock's state in the Backend itself.
func (r *remote) state() backend.State {
	st, err := r.Remote.Inspect(context.Background())
	if err != nil {
		panic(err)
	}
	return st
}

// mine reports whether the session has the lock.
func (r *remote) mine() bool { return r.state().Session == r.conn.session }

// waits reports whether the session has a place among the waiters.
func (r *remote) waits() bool { return slices.Contains(r.state().Waiting, r.conn.session) }

package faults

import (
	"context"
	"errors"
	"sync"

	"github.com/relock-go/relock/backend"
)

// A courier is between a session and its backend. It remembers what was sent, can delay commands and grants, and can
// drop messages.
type courier struct {
	backend.Backend
	deaf bool // if true, no message arrives

	mu       sync.Mutex
	acquire  carrier        // nil: attempts pass unchanged
	arrived  func()         // called for a grant that has arrived, before the session receives it; may be nil
	muted    map[string]int // for each verb, the number of replies still to be lost
	acquires []backend.AcquireRequest
	releases []backend.ReleaseRequest
	conn     backend.Conn   // the backend's own
	remote   backend.Remote // the backend's own, of the last lock
}

// A carrier sends an attempt to the backend by calling send, and returns the reply.
type carrier func(ctx context.Context, req backend.AcquireRequest, send sender) (backend.AcquireReply, error)

type sender func(context.Context, backend.AcquireRequest) (backend.AcquireReply, error)

func (c *courier) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	sink = waitingSink{sink, c}
	if c.deaf {
		sink = deafSink{sink}
	}
	conn, err := c.Backend.Connect(ctx, session, sink)
	if err != nil {
		return nil, err
	}
	c.conn = conn
	return courierConn{conn, c}, nil
}

// by makes the courier send attempts through f from now on.
func (c *courier) by(f carrier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acquire = f
}

// atGrant makes the courier call f for each grant from now on.
func (c *courier) atGrant(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived = f
}

// mute makes the courier lose the next n replies to a verb.
func (c *courier) mute(verb string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = map[string]int{verb: n}
}

// left returns how many replies to a verb are still to be lost.
func (c *courier) left(verb string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.muted[verb]
}

// heard returns the error that the session gets in place of a reply to a verb. It returns nil if the reply passes.
func (c *courier) heard(verb string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || c.muted[verb] == 0 {
		return err
	}
	c.muted[verb]--
	return backend.WithOutcomeUnknown(errors.New("the reply is lost"))
}

// sent returns the attempts and releases that were sent so far.
func (c *courier) sent() ([]backend.AcquireRequest, []backend.ReleaseRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acquires, c.releases
}

// A deafSink receives no grants and no signals.
type deafSink struct{ backend.Sink }

func (deafSink) Granted(backend.Grant)          {}
func (deafSink) Signalled(string, uint64, bool) {}
func (deafSink) Reconnected()                   {}

// A waitingSink receives a grant after its courier's atGrant has returned.
type waitingSink struct {
	backend.Sink
	c *courier
}

func (s waitingSink) Granted(g backend.Grant) {
	s.c.mu.Lock()
	arrived := s.c.arrived
	s.c.mu.Unlock()
	if arrived != nil {
		arrived()
	}
	s.Sink.Granted(g)
}

type courierConn struct {
	backend.Conn
	c *courier
}

func (c courierConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	if err != nil {
		return nil, err
	}
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	c.c.remote = remote
	return courierRemote{remote, c.c}, nil
}

// Renew gives the backend its own remotes in place of the courier's.
func (c courierConn) Renew(ctx context.Context, renewals []backend.Renewal) {
	for i, r := range renewals {
		renewals[i].Remote = r.Remote.(courierRemote).Remote
		defer func() { renewals[i].Remote = r.Remote }()
	}
	c.Conn.Renew(ctx, renewals)
	for i, r := range renewals {
		renewals[i].Err = c.c.heard("renew", r.Err)
	}
}

type courierRemote struct {
	backend.Remote
	c *courier
}

func (r courierRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	r.c.mu.Lock()
	r.c.acquires = append(r.c.acquires, req)
	carry := r.c.acquire
	r.c.mu.Unlock()
	if carry != nil {
		return carry(ctx, req, r.Remote.Acquire)
	}
	reply, err := r.Remote.Acquire(ctx, req)
	return reply, r.c.heard("acquire", err)
}

func (r courierRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	r.c.mu.Lock()
	r.c.releases = append(r.c.releases, req)
	r.c.mu.Unlock()
	result, err := r.Remote.Release(ctx, req)
	return result, r.c.heard("release", err)
}

func (r courierRemote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	reply, err := r.Remote.Reenter(ctx, req)
	return reply, r.c.heard("reenter", err)
}

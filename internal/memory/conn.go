package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// A Conn is one session's connection: the client's side of the protocol.
type Conn struct {
	b       *Backend
	session string
	name    string // name in traces and faults
	sink    backend.Sink
	wake    chan struct{} // has a value if the inbox is not empty; capacity 1
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed when no more messages are delivered

	// Guarded by Backend.mu.
	closed bool
	link   chan struct{} // closed when the connection breaks, and replaced by that of the next connection
	inbox  []message
	ahead  time.Duration // how far the server's clock was ahead at the last reply over this connection
	known  bool          // whether there was a reply over this connection
}

// A message is an entry of the inbox: a message of the server, or the notice that the connection is new.
type message struct {
	resumed bool
	protocol.Message
	link   chan struct{} // the link of the connection that the message came over
	judged bool          // the fault has already decided about it
}

func newConn(b *Backend, session string, sink backend.Sink) *Conn {
	return &Conn{
		b: b, session: session, name: b.Name(session), sink: sink, link: make(chan struct{}),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// open begins to deliver messages.
func (c *Conn) open() {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.conns = append(c.b.conns, c)
	go c.deliver()
}

// Close ends the connection. It waits until the Sink is no longer called, so the Sink must not call it.
func (c *Conn) Close() error {
	if c.hangUp() {
		close(c.quit)
	}
	<-c.done
	return nil
}

// hangUp marks the Conn as closed, and reports whether it was open.
func (c *Conn) hangUp() bool {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.closed {
		return false
	}
	c.closed = true
	c.b.dropLocked(c)
	return true
}

// reconnectLocked replaces the connection.
func (c *Conn) reconnectLocked() {
	close(c.link)
	c.link, c.known, c.inbox = make(chan struct{}), false, nil
	c.putLocked(message{resumed: true, link: c.link})
}

// putLocked puts a message in the inbox, if it came over the present connection.
func (c *Conn) putLocked(m message) {
	if c.closed || m.link != c.link {
		return
	}
	c.inbox = append(c.inbox, m)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// deliver passes messages to the sink, in the Conn's goroutine.
func (c *Conn) deliver() {
	defer close(c.done)
	for {
		if m, ok := c.next(); ok {
			c.hand(m)
			continue
		}
		select {
		case <-c.wake:
		case <-c.quit:
			return
		}
	}
}

func (c *Conn) next() (message, bool) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.closed || len(c.inbox) == 0 {
		return message{}, false
	}
	m := c.inbox[0]
	c.inbox = c.inbox[1:]
	return m, true
}

// hand passes a message to the sink, unless the fault drops or delays it.
func (c *Conn) hand(m message) {
	if m.resumed {
		c.sink.Reconnected()
		return
	}
	if !m.judged {
		m.judged = true
		v := c.b.judge(Op{Session: c.name, Verb: Push, Lock: m.Name, Epoch: m.Epoch})
		if v.Again > 0 && !v.Lost {
			c.later(v.Delay+v.Again, m)
		}
		switch {
		case v.Lost:
			c.b.note("push %s %s e%d (lost)", c.name, shown(m.Name), m.Epoch)
			return
		case v.Delay > 0:
			c.later(v.Delay, m)
			return
		}
	}
	g, ok := c.read(m.Message)
	if !ok {
		return
	}
	switch m.Kind {
	case protocol.Taken:
		c.sink.Taken(m.Name, m.Epoch)
	case protocol.Wanted:
		c.sink.Wanted(m.Name, m.Epoch)
	case protocol.Signalled:
		c.sink.Signalled(m.Name, m.Epoch, m.Placed)
	case protocol.Granted:
		c.sink.Granted(g)
	case protocol.SharedGrant, protocol.SharedWanted:
		c.handShared(m.Message, g.NotBefore)
	}
}

// handShared passes a message about a shared name to a sink that implements backend.SharedSink.
func (c *Conn) handShared(m protocol.Message, notBefore time.Time) {
	sink, ok := c.sink.(backend.SharedSink)
	switch {
	case !ok:
	case m.Kind == protocol.SharedWanted:
		sink.SharedWanted(m.Name, m.May, m.Try)
	default:
		sink.Shared(backend.ShareGrant{Name: m.Name, Epoch: m.Epoch, Units: m.Units, First: m.First, Last: m.Last,
			May: m.May, TTL: m.TTL, NotBefore: notBefore})
	}
}

func (c *Conn) later(d time.Duration, m message) {
	time.AfterFunc(d, func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		c.putLocked(m)
	})
}

// read converts the time of a grant to local time, and returns false if the session is disconnected. NotBefore stays
// zero if no reply has come over this connection yet, or if the local time lies in the future.
func (c *Conn) read(g protocol.Message) (backend.Grant, bool) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.b.cut[c.session] {
		return backend.Grant{}, false
	}
	c.b.executed[Push]++
	local := backend.Grant{Name: g.Name, Epoch: g.Epoch, First: g.First, Last: g.Last, TTL: g.TTL}
	at := c.b.start.Add(g.At - c.ahead)
	if at.After(time.Now()) {
		c.known = false
	}
	if c.known {
		local.NotBefore = at
	}
	return local, true
}

// instant converts a local time to the server's clock. The last reply has shown how far that clock is ahead.
func (c *Conn) instant(t time.Time) protocol.Instant {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return t.Sub(c.b.start) + c.ahead
}

// setClock stores how far the server's clock was ahead at a reply.
func (c *Conn) setClock(ahead time.Duration) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.ahead, c.known = ahead, true
}

// line returns the connection for a command. cut means that commands do not arrive.
func (c *Conn) line() (link chan struct{}, cut bool, err error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.closed {
		return nil, false, errors.New("the connection is closed")
	}
	return c.link, c.b.cut[c.session], nil
}

// A reply is the result of a command.
type reply[R any] struct {
	answer R
	ahead  time.Duration
	err    error
}

// call sends a command, which the server executes by calling run, and waits for the reply until ctx ends. An execution after
// call has returned touches neither ctx nor any variable of the caller.
func call[R any](ctx context.Context, c *Conn, op Op, run func(now protocol.Instant) (R, line)) (R, error) {
	var none R
	if err := ended(ctx); err != nil {
		return none, fmt.Errorf("not sent: %w", err)
	}
	v := c.b.judge(op)
	link, cut, err := c.line()
	switch {
	case err != nil:
		return none, err
	case v.Lost:
		return none, errors.New("connection refused")
	}
	replies := make(chan reply[R], 1)
	if !cut {
		send(c.b, op, v, run, replies)
	}
	r, err := await(ctx, link, replies)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return none, err
	}
	c.setClock(r.ahead)
	return r.answer, nil
}

// send executes a command as a verdict says, now or later.
func send[R any](b *Backend, op Op, v Verdict, run func(now protocol.Instant) (R, line), replies chan<- reply[R]) {
	after(v.Delay, func() {
		var r reply[R]
		if v.Refused != "" {
			b.refuse(op, v.Refused)
			r.err = backend.WithRefused(errors.New(v.Refused))
		} else {
			r.answer, r.ahead = execute(b, op.Verb, v.String, run)
		}
		if v.Stopped != "" {
			r.err = backend.WithOutcomeUnknown(backend.WithRefused(errors.New(v.Stopped)))
		}
		if v.Mute {
			r.err = backend.WithOutcomeUnknown(errors.New("the reply was lost"))
		}
		after(v.Late, func() { replies <- r })
	})
	if v.Again > 0 {
		after(v.Delay+v.Again, func() { execute(b, op.Verb, func() string { return " (again)" }, run) })
	}
}

// after calls f after d, or at once if d is not positive.
func after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

// await waits for the reply until ctx ends or the connection breaks.
func await[R any](ctx context.Context, link <-chan struct{}, replies <-chan reply[R]) (reply[R], error) {
	select {
	case r := <-replies:
		return r, nil
	default:
	}
	var expired <-chan time.Time // a context may have a deadline and yet not end at the deadline
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	var err error
	select {
	case r := <-replies:
		return r, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-expired:
		err = context.DeadlineExceeded
	case <-link:
		err = errors.New("connection reset")
	}
	return reply[R]{}, backend.WithOutcomeUnknown(fmt.Errorf("no reply: %w", err))
}

// ended returns why a command must not be sent, nil if it may be.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Bind prepares the verbs for one lock. It refuses the names that redisbackend refuses.
func (c *Conn) Bind(name string) (backend.Remote, error) {
	if err := protocol.CheckName(name); err != nil { // as redisbackend does
		return nil, fmt.Errorf("memory: %w", err)
	}
	return &remote{c: c, name: name}, nil
}

// Renew sends one command for all locks.
func (c *Conn) Renew(ctx context.Context, renewals []backend.Renewal) {
	if len(renewals) == 0 {
		return
	}
	type one struct {
		name  string
		epoch uint64
		lease time.Duration
		under backend.Token
	}
	var batch []one // a late copy must not touch the caller's slice
	for _, r := range renewals {
		batch = append(batch, one{r.Remote.Name(), r.Epoch, r.Lease, r.Under})
	}
	op := Op{Session: c.name, Verb: Renew, Lock: batch[0].name, Epoch: batch[0].epoch}
	type renewed struct {
		ok    bool
		first backend.Token
		units int
	}
	results, err := call(ctx, c, op, func(now protocol.Instant) ([]renewed, line) {
		var answers []renewed
		for _, r := range batch {
			var a renewed
			if s := c.b.shared[r.name]; r.under == 0 {
				a.first = c.b.lockLocked(r.name).Renew(now, c.session, r.epoch, r.lease)
				a.ok = a.first > 0
			} else if s != nil {
				a.units = s.Renew(now, c.session, r.epoch, r.under, r.lease)
				a.ok = a.units > 0
			}
			answers = append(answers, a)
		}
		return answers, func() string {
			var parts []string
			for i, r := range batch {
				parts = append(parts, fmt.Sprintf("%s e%d → %s", shown(r.name), r.epoch, either(answers[i].ok, "renewed", "gone")))
			}
			return fmt.Sprintf("renew %s %s", c.name, strings.Join(parts, ", "))
		}
	})
	for i := range renewals {
		r := &renewals[i]
		r.Gone, r.First, r.Units, r.Err = false, 0, 0, wrapped(op, err)
		if err == nil {
			r.Gone, r.First, r.Units = !results[i].ok, results[i].first, results[i].units
		}
	}
}

// A remote is one lock, seen by one session.
type remote struct {
	c    *Conn
	name string
}

func (r *remote) Name() string { return r.name }

// Acquire sends a copy of an attempt. If the server refuses the copy as late because the server's clock was stepped, Acquire
// sends another one, since the reply has shown the new time.
func (r *remote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	op := r.op(Acquire, req.Epoch)
	type answer struct {
		reply backend.AcquireReply
		err   error
	}
	for {
		notAfter := r.c.instant(req.NotAfter)
		got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
			var a answer
			l, err := r.exclusive(now)
			if a.err = err; err == nil {
				a.reply, a.err = r.acquire(l, now, req, notAfter)
			}
			return a, func() string { return acquired(op, req, a.reply, a.err) }
		})
		if err == nil && errors.Is(got.err, protocol.ErrLate) && time.Now().Before(req.NotAfter) {
			continue
		}
		return got.reply, wrapped(op, cmp.Or(err, got.err))
	}
}

// acquire executes an attempt at the server: the short form, which compares the Prior, or the whole verb if the Prior is no
// longer right. With Redis the two forms are two commands.
func (r *remote) acquire(l *protocol.Lock, now protocol.Instant, req backend.AcquireRequest, notAfter protocol.Instant) (backend.AcquireReply, error) {
	if reply, ok := l.Pass(now, r.c.session, req, notAfter); ok {
		return reply, nil
	}
	reply, err := l.Acquire(now, r.c.session, req, notAfter)
	if reply.Status == backend.Granted {
		reply.Prior = l.Prior(req)
	}
	return reply, err
}

// release executes a release at the server: the short form, which compares the Prior, or the whole verb if the Prior is
// no longer right.
func (r *remote) release(now protocol.Instant, req backend.ReleaseRequest, doubt, stays time.Duration) backend.ReleaseResult {
	if r.lock().Free(now, r.c.session, req) {
		return backend.Freed
	}
	return r.lock().Release(now, r.c.session, req, doubt, stays)
}

func (r *remote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	op := r.op(Reenter, req.Epoch)
	reply, err := call(ctx, r.c, op, func(now protocol.Instant) (backend.ReenterReply, line) {
		reply := r.lock().Reenter(now, r.c.session, req)
		return reply, func() string {
			return fmt.Sprintf("%s op=%d holds=%d → %s", op, req.Op, req.Holds, either(reply.Gone, "gone", fmt.Sprint(reply.Holds)))
		}
	})
	return reply, wrapped(op, err)
}

func (r *remote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	op := r.op(Release, req.Epoch)
	doubt, stays := remaining(req.Until), remaining(req.StaysUntil)
	result, err := call(ctx, r.c, op, func(now protocol.Instant) (backend.ReleaseResult, line) {
		result := r.release(now, req, doubt, stays)
		return result, func() string { return fmt.Sprintf("%s → %s", op, results[result]) }
	})
	return result, wrapped(op, err)
}

func (r *remote) Inspect(ctx context.Context) (backend.State, error) {
	op := r.op(Inspect, 0)
	type answer struct {
		state backend.State
		err   error
	}
	got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
		var a answer
		l, err := r.exclusive(now)
		if a.err = err; err == nil {
			a.state = l.Inspect(now)
		}
		return a, op.String
	})
	return got.state, wrapped(op, cmp.Or(err, got.err))
}

func (r *remote) ForceUnlock(ctx context.Context, notAfter time.Time) (bool, error) {
	return r.force(ctx, notAfter, func(now, limit protocol.Instant) (bool, error) {
		l, err := r.exclusive(now)
		if err != nil {
			return false, err
		}
		return l.Force(now, limit)
	})
}

// force sends a copy of a verb that takes a name from its holders. If the server refuses the copy as late because the server's
// clock was stepped, force sends another one, as Acquire does.
func (r *remote) force(ctx context.Context, notAfter time.Time, run func(now, limit protocol.Instant) (bool, error)) (bool, error) {
	op := r.op(Force, 0)
	type answer struct {
		had bool
		err error
	}
	for {
		limit := r.c.instant(notAfter)
		got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
			var a answer
			a.had, a.err = run(now, limit)
			return a, func() string { return fmt.Sprintf("%s → %s", op, outcome(a.err, either(a.had, "forced", "free"))) }
		})
		if err == nil && errors.Is(got.err, protocol.ErrLate) {
			if time.Now().Before(notAfter) {
				continue
			}
			got.err = fmt.Errorf("%w: %w", backend.ErrUnavailable, got.err)
		}
		return got.had, wrapped(op, cmp.Or(err, got.err))
	}
}

// remaining returns how much is left of the time until which copies may be under way, 0 if none are. The result is a duration
// and not a time: the server counts it from the execution, which is later, so the tombstone lasts long enough whatever the
// server's clock shows.
func remaining(until time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return max(0, time.Until(until))
}

// lock returns the server's state of the lock. Backend.mu is held.
func (r *remote) lock() *protocol.Lock { return r.c.b.lockLocked(r.name) }

// exclusive returns the server's state of the lock, or an error if the name is a shared one's. Backend.mu is held.
func (r *remote) exclusive(now protocol.Instant) (*protocol.Lock, error) {
	return r.c.b.exclusiveLocked(r.name, now)
}

func (r *remote) op(v Verb, epoch uint64) Op {
	return Op{Session: r.c.name, Verb: v, Lock: r.name, Epoch: epoch}
}

// wrapped adds the name of the command to an error.
func wrapped(op Op, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("memory: %s: %w", op.Verb, err)
}

package machine

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Head is the owner that has the baton, and how it wants the lock.
type Head[K comparable] struct {
	Owner    K
	Field    string        // the owner as Redis has it
	Cohort   bool          // the hold would be the session's
	Portable bool          // another session could resume the hold
	Waits    bool          // in Redis, if another session has the lock
	Barges   bool          // takes a free lock even if other sessions wait for it
	Ended    bool          // its context has ended: it inherits nothing
	Fixed    time.Duration // the length of the lease, if that is a fixed one
	Holds    int           // with which it comes back from a condition; 0: one
	Ticket   uint64        // under which Redis has queued the session for it; 0: none
	Ahead    time.Duration // how far the wall clock was ahead when it got the ticket
	Deadline time.Time     // of a try with a time limit
}

// An attempt is what the head wants, and what is known of the copies of its request.
type attempt[K comparable] struct {
	head    Head[K]
	prior   backend.Prior // for the first copy
	keepTTL bool          // the lease goes on
	yields  bool          // another session that waits goes first
	handed  bool          // an owner of this session handed the lock to the head
	asked   bool          // the session that may keep the lock idle was asked for it
	spins   int           // how often the head still asks before it parks
	kept    lease.Lease   // with keepTTL
	refuted time.Time     // when the latest copy was sent that had the reply Waiting: earlier grants are over
	sent    time.Time     // when the copy under way was sent
	ahead   time.Duration // how far the wall clock was ahead when the latest copy was sent
}

// Begin begins with a head that has just got the baton. If the session has the lock in cohort mode, the head inherits
// the hold. Otherwise a hold that was left to it ends here, and its lease goes on if enough of that is left. The baton
// came with the reference of an idle hold if that is Dropped.
func (m *Machine[K]) Begin(at *Moment, h *Head[K]) (s Step) {
	wasIdle := m.wake()
	s.Dropped = wasIdle || m.phase == Lapsed
	if m.inherits(at, h, wasIdle) {
		return m.inherit(at, s, h)
	}
	m.att = attempt[K]{head: *h, prior: m.prior, spins: at.Spin}
	if m.phase == Handed {
		m.att.handed = true
		l := m.hold.lease
		// A hold that another session may have taken up is not kept: what Redis has of this session by now, if anything, may
		// be a grant with a shorter lease.
		m.att.keepTTL = h.Fixed == 0 && !l.Fixed() && !m.hold.portable && l.Length >= at.Lease && l.Remaining(at.Now) > at.Lease*2/3
	}
	if m.turn.limit == 0 || !m.unreleased {
		m.turn = turn{}
	} else { // the turn goes on, also after a head that was handed the lock and left
		m.att.yields = h.Waits && (m.turn.spent(at) || h.Cohort && m.att.handed)
		m.att.keepTTL = m.att.keepTTL && !m.att.yields // if no session waits, Redis gives a new lease instead of yielding
		m.turn.passes++
	}
	if m.att.keepTTL {
		m.att.kept = m.hold.lease
	}
	if h.Ticket > 0 && m.epoch <= h.Ticket && !m.att.handed {
		return m.adopt(s)
	}
	m.clear(Begun)
	s.Do = AskAnew
	return s
}

// wake leaves an idle hold to the head, and reports whether there was one.
func (m *Machine[K]) wake() bool {
	if m.phase != Idle {
		return false
	}
	m.lingerUntil = time.Time{}
	m.enter(Handed)
	return true
}

// inherits reports whether the head gets the hold that its session has already, without a command.
func (m *Machine[K]) inherits(at *Moment, h *Head[K], wasIdle bool) bool {
	if m.phase != Handed || !m.hold.cohort || !h.Cohort {
		return false
	}
	if wasIdle { // no other session has asked for it meanwhile
		m.turn = newTurn(at)
	}
	left := m.hold.lease.Remaining(at.Now)
	return m.hold.token < m.hold.last && left >= m.hold.lease.Length/3 && !m.turn.spent(at) && !h.Ended
}

// inherit makes the head the owner of the hold that was left to it.
func (m *Machine[K]) inherit(at *Moment, s Step, h *Head[K]) Step {
	if at.Abandoned {
		return m.leave(s)
	}
	m.enter(Held)
	m.turn.passes++
	m.hold.owner = h.Owner
	m.hold.token++
	m.used = m.hold.token
	s.Do, s.Holds = Settle, max(h.Holds, 1)
	return s
}

// adopt gives the attempt the place in Redis that came with a signal, so that it need not send anything before the
// grant comes.
func (m *Machine[K]) adopt(s Step) Step {
	t, grant := m.att.head.Ticket, m.grant
	m.number(t)
	if grant.Epoch == t { // the grant came before the baton
		m.grant, s.Woken = grant, true
	}
	m.att.prior, m.att.ahead, m.unreleased = backend.Prior{}, m.att.head.Ahead, true
	m.clear(Parked)
	s.Do, s.TTL = Park, -1
	return s
}

// number gives the attempt an epoch. Nothing that Redis has or grants under an earlier one is trusted from here on.
func (m *Machine[K]) number(epoch uint64) {
	m.epoch, m.used, m.prior, m.grant = epoch, 0, backend.Prior{}, grant{}
}

// Send begins a copy of the attempt, which AcquireRequest returns. After [AskAnew], next is the new epoch; otherwise it is
// not used.
func (m *Machine[K]) Send(at *Moment, next uint64) {
	if m.phase == Begun {
		m.number(next)
	}
	m.enter(Asking)
	m.att.sent, m.att.ahead = at.Now, at.Ahead
}

// AcquireRequest returns the copy of the attempt that is under way.
func (m *Machine[K]) AcquireRequest(at *Moment) backend.AcquireRequest {
	a := &m.att
	req := backend.AcquireRequest{
		Epoch: m.epoch, Owner: a.head.Field, Holds: max(a.head.Holds, 1), Lease: at.Lease, NotAfter: a.notAfter(at),
		Queue: a.head.Waits, Barge: a.head.Barges, Yield: a.yields, KeepTTL: a.keepTTL,
		Tokens: a.tokens(at), Seen: at.Seen, Patience: at.Patience, GrantTTL: at.GrantTTL, Prior: a.prior,
	}
	if a.head.Cohort {
		req.Owner, req.Holds = at.CohortOwner, 1
	}
	if a.head.Fixed > 0 {
		req.Lease, req.Fixed = a.head.Fixed, true
	}
	return req
}

// tokens is the size of the block of tokens that the attempt asks for.
func (a *attempt[K]) tokens(at *Moment) int {
	if a.head.Cohort {
		return at.Block
	}
	return 1
}

// notAfter is when the copy under way is refused. A try with a time limit leaves a command an eighth of its time at
// least.
func (a *attempt[K]) notAfter(at *Moment) time.Time {
	limit := at.CommandTimeout
	if d := a.head.Deadline; !d.IsZero() {
		limit = min(limit, max(d.Sub(a.sent), limit/8))
	}
	return a.sent.Add(limit)
}

// Replied handles the reply to a copy.
func (m *Machine[K]) Replied(at *Moment, r *backend.AcquireReply) Step {
	sent := m.att.sent
	m.att.prior, m.att.sent = backend.Prior{}, time.Time{} // another copy is sent when the state in Redis is not known
	switch r.Status {
	case backend.Granted:
		return m.granted(at, r, sent)
	case backend.Stale: // the epoch is used up: for instance, its grant ended before it was accepted
		m.enter(Begun)
		return Step{Do: AskAnew}
	}
	return m.refuted(at, r, sent)
}

// granted handles a reply that grants the lock. One that comes too late is not trusted: the next copy confirms the hold
// and gives it a full lease. A fixed lease starts only once, so it needs a new epoch.
func (m *Machine[K]) granted(at *Moment, r *backend.AcquireReply, sent time.Time) Step {
	m.unreleased, m.prior = true, r.Prior
	a := &m.att
	h := m.newHold(at, r.First, r.Last)
	switch {
	case a.keepTTL:
		h.lease = a.kept
	case a.head.Fixed > 0: // an earlier copy may have started the lease, so the time left of it counts
		h.lease = lease.New(sent, a.ahead, min(h.span, r.TTL), true)
	default:
		h.lease = lease.New(sent, a.ahead, h.span, false)
	}
	if h.lease.Trusted(at.Now) && !lease.Napped(a.ahead, at.Ahead) {
		if m.turn.limit == 0 || a.yields {
			m.turn = newTurn(at)
		}
		return m.settle(at, &h)
	}
	a.keepTTL, a.kept = false, lease.Lease{}
	if a.head.Fixed > 0 {
		m.enter(Begun)
		return Step{Do: AskAnew}
	}
	m.enter(Parked)
	return Step{Do: Ask}
}

// newHold returns the hold of the attempt, without a lease.
func (m *Machine[K]) newHold(at *Moment, first, last backend.Token) hold[K] {
	head := &m.att.head
	h := hold[K]{owner: head.Owner, cohort: head.Cohort, portable: head.Portable, epoch: m.epoch, token: first, last: last, span: at.Lease}
	if head.Fixed > 0 {
		h.span = head.Fixed
	}
	return h
}

// refuted handles the reply that another session has the lock, or comes first. The next copy asks for a full lease, and
// its grant begins a new turn.
func (m *Machine[K]) refuted(at *Moment, r *backend.AcquireReply, sent time.Time) Step {
	a := &m.att
	m.unreleased = m.unreleased || a.head.Waits
	s := Step{Yielded: a.yields, TTL: r.TTL}
	a.keepTTL, a.kept, a.yields, a.refuted, m.turn = false, lease.Lease{}, false, sent, turn{}
	took := at.Now.Sub(sent)
	switch {
	case a.head.Waits && a.spins > 0:
		a.spins--
		s.Do = Ask
	case a.head.Waits:
		s.Do = Park
	case r.Lingers && !a.asked && took < at.Heartbeat/4: // else both together could take long
		a.asked = true // its session was asked, and gives it up meanwhile if it does not use it
		s.Do, s.Wait = Pause, max(took, minHandOver)
	default:
		return m.leave(s)
	}
	m.enter(Parked)
	return s
}

// minHandOver is how long a try leaves at least to the session of a lock that may be idle.
const minHandOver = time.Millisecond

// A Failure says what is known of a command that had no reply.
type Failure struct {
	Unknown bool // it may have been carried out, or may still be
	Refused bool // it would be refused again, so the caller gives up
}

// Unanswered handles a copy without a reply. After Pause the driver decides how long.
func (m *Machine[K]) Unanswered(at *Moment, f Failure) Step {
	if f.Unknown {
		m.unreleased, m.att.keepTTL, m.att.kept = true, false, lease.Lease{}
		m.doubt(m.att.notAfter(at))
	}
	m.att.prior, m.att.sent = backend.Prior{}, time.Time{}
	if f.Refused || !m.att.head.Waits {
		return m.leave(Step{})
	}
	m.enter(Parked)
	return Step{Do: Pause}
}

// doubt notes that a copy of an attempt may be under way until then.
func (m *Machine[K]) doubt(until time.Time) {
	if until.After(m.doubtUntil) {
		m.doubtUntil = until
	}
}

// pendingUntil returns the time until which a copy may be under way that had no reply, zero if there is none.
func (m *Machine[K]) pendingUntil(at *Moment) time.Time {
	if !m.doubtUntil.After(at.Now) {
		m.doubtUntil = time.Time{}
	}
	return m.doubtUntil
}

// A grant is one that was pushed for an attempt.
type grant struct {
	Epoch       uint64
	first, last backend.Token
	ttl         time.Duration
	notBefore   time.Time
}

// Pushed handles a grant that was pushed. ticket says that an owner of this session has a ticket with its epoch, busy
// that an owner or a clean-up has the baton.
func (m *Machine[K]) Pushed(g *backend.Grant, ticket, busy bool) Step {
	pushed := grant{g.Epoch, g.First, g.Last, g.TTL, g.NotBefore}
	switch {
	case ticket && m.epoch < g.Epoch: // for an owner that was signalled and is not the head yet
		m.grant = pushed
		return Step{Do: Signal}
	case m.epoch == g.Epoch && (m.phase == Asking || m.phase == Parked) && m.att.head.Waits:
		m.grant = pushed
		return Step{Do: Wake}
	case m.epoch > g.Epoch || m.phase == Handed || m.phase == Idle || busy:
		// A newer attempt superseded the grant, or the reply to a heartbeat came first: nothing to do. Or the attempt was
		// given up: a clean-up is on its way, or the next head takes over the grant. Or the session has the lock, and what
		// would release the grant would release that.
		return Step{}
	}
	return Step{Do: Orphan}
}

// Woken handles the end of a pause, or of the time that the head was parked. A grant that came meanwhile is trusted
// without a command if that is possible for long enough to renew it. It is not if the moment of the grant is not known,
// if Redis has replied since that another owner has the lock, if less than half of its TTL is left, if the machine slept
// since Redis was last asked, if the lease is fixed (it starts when it is accepted), or if it is more than the attempt
// asked for. The next copy of the attempt then confirms the grant.
func (m *Machine[K]) Woken(at *Moment) Step {
	g, a := m.grant, &m.att
	if m.phase != Parked || g.Epoch != m.epoch || g.notBefore.IsZero() || g.notBefore.Before(a.refuted) || a.head.Fixed > 0 || !a.asks(at, g) {
		return m.again()
	}
	h := m.newHold(at, g.first, g.last)
	h.lease = lease.Pushed(g.notBefore, a.ahead, g.ttl)
	if h.lease.Remaining(at.Now) < g.ttl/2 || lease.Napped(a.ahead, at.Ahead) {
		return m.again()
	}
	m.turn = newTurn(at)
	if g.first == g.last {
		field := a.head.Field
		if a.head.Cohort {
			field = at.CohortOwner
		}
		m.prior = backend.Prior{Epoch: g.Epoch, Owner: field, Token: g.first, Pushed: true}
	}
	return m.settle(at, &h)
}

// asks reports whether the attempt asks for no less than the grant.
func (a *attempt[K]) asks(at *Moment, g grant) bool {
	req := backend.AcquireRequest{Tokens: a.tokens(at), GrantTTL: at.GrantTTL}
	return check.Grant(&req, &backend.Grant{First: g.first, Last: g.last, TTL: g.ttl})
}

// again returns the step that sends the next copy.
func (m *Machine[K]) again() Step {
	if m.phase == Begun {
		return Step{Do: AskAnew}
	}
	return Step{Do: Ask}
}

// Overtaken continues the attempt of a head that let a Resume go first, and has the baton again. A hold that the
// resumed owner left ends here.
func (m *Machine[K]) Overtaken() Step {
	m.att.keepTTL, m.att.kept = false, lease.Lease{}
	m.wake()
	m.clear(Begun)
	return Step{Do: AskAnew}
}

// settle makes the head the owner of h. If the session has given up its holds meanwhile, the attempt is given up.
func (m *Machine[K]) settle(at *Moment, h *hold[K]) (s Step) {
	if at.Abandoned {
		return m.leave(s)
	}
	s.Do, s.Holds = Settle, max(m.att.head.Holds, 1)
	m.enter(Held)
	m.hold, m.att, m.grant = *h, attempt[K]{}, grant{}
	if h.cohort {
		m.used = h.token
	}
	s.Check = m.moved >= h.epoch && m.check()
	return s
}

// GiveUp ends an attempt that got no hold. The next head takes over what Redis has for the session, such as its place
// among the waiters.
func (m *Machine[K]) GiveUp() Step { return m.leave(Step{}) }

// leave makes s the step that ends what the goroutine with the baton does.
func (m *Machine[K]) leave(s Step) Step {
	m.att = attempt[K]{}
	m.clear(Vacant)
	s.Do = PassOn
	if !m.unreleased {
		s.Do = Leave
	}
	return s
}

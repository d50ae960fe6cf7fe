package machine

import (
	"math"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Head is the owner that has the baton, and how it wants the lock.
type Head[K comparable] struct {
	Owner    K
	Cohort   bool          // in Redis the hold would belong to the session
	Alone    bool          // in Redis the hold would belong to the session if the session is alone with the lock
	Portable bool          // another session could resume the hold
	Waits    bool          // waits in Redis if another session has the lock
	Barges   bool          // takes a free lock even if other sessions wait for it
	Fixed    time.Duration // the length of the lease, if the lease is a fixed one
	AtLeast  time.Duration // for how long no other owner gets the lock, from the beginning of the hold on
	Holds    int           // the hold count with which the owner comes back from a condition; 0: one
	Ticket   uint64        // the ticket under which Redis has queued the session for the owner; 0: none
	Ahead    time.Duration // how far the wall clock was ahead when the owner got the ticket
	Deadline time.Time     // the end of a try with a time limit
}

// An attempt is what is known of the head's request and of its copies. The hold that the head would get is in Machine.hold.
type attempt struct {
	waits    bool // Head.Waits
	barges   bool
	keepTTL  bool // the lease of the hold that was left to the head goes on
	yields   bool // another session that waits goes first
	asked    bool // Redis has already asked the session with the lock to give it up if it is idle
	holds    int32
	spins    int32         // how often the head still asks before it parks
	fixed    time.Duration // Head.Fixed
	deadline instant
	refuted  instant       // when the latest copy with the reply Waiting was sent: earlier grants are over
	sent     instant       // when the copy under way was sent
	ahead    time.Duration // how far the wall clock was ahead when the latest copy was sent
}

// A turn counts the local hand-overs since this session got the lock.
type turn struct {
	began      instant
	passes     int32
	limit      int32 // the most passes; 0: there is no turn
	generation int32 // how many owners were in the queue when the turn began
}

// newTurn begins a turn for the owners that are in the queue now.
func newTurn(o *Options, now instant, waiters int) turn {
	return turn{began: now, limit: int32(min(o.Handoffs, math.MaxInt32)), generation: int32(waiters)}
}

// spent reports whether another session, if one waits, should have the lock now.
func (t *turn) spent(o *Options, now instant) bool {
	lasted := now - t.began
	return t.passes >= t.limit || lasted >= o.HandoffTime || lasted >= o.Generation && t.passes >= t.generation
}

// Begin begins the attempt of a head that has just got the baton and inherits no hold. If a hold was left to the head, the hold
// ends here, but its lease may go on if enough of the lease is left. If the step is Dropped, a hold was idle or lapsed, and the
// hold's reference to the lock state is the caller's now.
func (m *Machine[K]) Begin(at *Moment, h *Head[K]) (s Step) {
	s.Dropped = m.wake() || m.phase == Lapsed
	handed, yields, l := m.phase == Handed, false, m.hold.lease
	// The lease of a portable hold is not kept: another session may have taken up the hold, and what Redis has of this session
	// now, if anything, may be a grant with a shorter lease.
	keepTTL := handed && h.Fixed == 0 && !l.Fixed() && !m.hold.portable && l.Length >= at.Lease && l.Remaining(at.Now) > at.Lease*2/3
	alone := h.Alone && m.begins(h, handed)
	if m.turn.limit == 0 || !m.unreleased {
		m.turn = turn{}
	} else { // the turn goes on, even if the last head was handed the lock and gave up
		yields = h.Waits && (m.turn.spent(at.Options, at.now()) || (h.Cohort || alone) && handed)
		m.turn.passes++
	}
	adopts := h.Ticket > 0 && m.epoch <= h.Ticket && !handed
	if adopts {
		s = m.adopt(at, s, h)
	} else {
		s.Do = AskAnew
		m.want(Begun, at, h)
	}
	switch m.att.yields = yields; {
	case adopts:
	case alone: // the attempt asks for a short lease: the lease that is left may be a long one
		m.hold.cohort, m.hold.alone, m.hold.span = true, true, at.GrantTTL
	case keepTTL && !yields: // if no session waits, Redis gives a new lease instead of yielding
		m.att.keepTTL, m.hold.lease = true, l
	}
	return s
}

// want begins the attempt of a head, and replaces the hold by the one that the head would get, without a lease.
func (m *Machine[K]) want(next Phase, at *Moment, h *Head[K]) {
	m.att = attempt{
		waits: h.Waits, barges: h.Barges, holds: int32(max(h.Holds, 1)), fixed: h.Fixed, deadline: at.instant(h.Deadline), spins: int32(at.Spin),
	}
	m.clear(next)
	m.hold.owner, m.hold.cohort, m.hold.portable, m.hold.span = h.Owner, h.Cohort, h.Portable, at.Lease
	m.hold.stays = h.AtLeast
	if h.Fixed > 0 {
		m.hold.span = h.Fixed
	}
}

// wake leaves an idle hold to the head, and reports whether there was one.
func (m *Machine[K]) wake() bool {
	if m.phase != Idle {
		return false
	}
	m.lingerUntil = 0
	m.enter(Handed)
	return true
}

// Inherit makes a head that has just got the baton the owner of the hold that its session has already, in cohort mode or kept
// alone. If so, it returns Settle; if not, it returns Nothing, and the driver calls Begin. age is the session's age, and
// waiters is the length of the local queue. If dropped, the hold was idle, and the hold's reference to the lock state is the
// caller's now. Like HandOver, Inherit is on the fastest path. It has neither a Moment nor a Step, since these would be on the
// stack, and the stack of a goroutine that has waited long is no longer in the processor's caches.
func (m *Machine[K]) Inherit(o *Options, age time.Duration, waiters int, owner *K) (do Action, dropped bool) {
	now := age + 1
	dropped = m.wake()
	if m.phase != Handed || !m.hold.cohort {
		return Nothing, dropped
	}
	if dropped { // no other session has asked for the hold while it was idle
		m.turn = newTurn(o, now, waiters)
	}
	left := m.hold.lease.Remaining(o.Opened.Add(age))
	if m.hold.token >= m.hold.last || left < m.hold.lease.Length/3 || m.turn.spent(o, now) {
		return Nothing, dropped
	}
	m.enter(Held)
	m.turn.passes++
	m.hold.owner = *owner
	m.hold.token++
	m.used = m.hold.token
	return Settle, dropped
}

// adopt gives the attempt the place in Redis that came with a signal, so that the head need not send anything before
// the grant comes.
func (m *Machine[K]) adopt(at *Moment, s Step, h *Head[K]) Step {
	grant := m.grant
	m.number(h.Ticket)
	if grant.epoch == h.Ticket { // the grant came before the baton
		m.grant, s.Woken = grant, true
	}
	m.prior, m.unreleased, m.run = backend.Prior{}, true, 0
	m.want(Parked, at, h)
	m.att.ahead = h.Ahead
	s.Do, s.TTL = Park, -1
	return s
}

// number gives the attempt a new epoch. Nothing that Redis has or grants under an earlier epoch is trusted from here on.
func (m *Machine[K]) number(epoch uint64) {
	m.epoch, m.used, m.grant = epoch, 0, grant{}
}

// Send begins a copy of the attempt, which AcquireRequest returns. After [AskAnew], next is the new epoch; after [Ask], Send
// ignores next.
func (m *Machine[K]) Send(at *Moment, next uint64) {
	if m.phase == Begun {
		m.number(next)
	}
	m.enter(Asking)
	m.att.sent, m.att.ahead = at.now(), at.Ahead
}

// AcquireRequest returns the copy of the attempt that is under way. The first copy has a Prior: what the session knows of
// the lock in Redis.
func (m *Machine[K]) AcquireRequest(at *Moment) backend.AcquireRequest {
	a := &m.att
	req := backend.AcquireRequest{
		Epoch: m.epoch, Owner: at.Field, Holds: int(a.holds), Lease: m.hold.span, Fixed: a.fixed > 0, NotAfter: m.notAfter(at),
		Queue: a.waits && !m.hold.alone, Barge: a.barges, Yield: a.yields, KeepTTL: a.keepTTL,
		Tokens: 1, Seen: at.Seen, Patience: at.Patience, GrantTTL: at.GrantTTL, Prior: m.prior,
	}
	if m.hold.cohort {
		req.Owner, req.Holds, req.Tokens = at.CohortOwner, 1, at.Block
	}
	if m.hold.alone {
		// From GrantTTL Redis knows how long the record must outlive a renewal. If this attempt waited, a grant to it would
		// last just as long, even if this process had ended. So the attempt takes no place among the waiters.
		req.GrantTTL = at.Lease
	}
	return req
}

// notAfter returns the time from which Redis refuses the copy under way. If the time limit of a try comes sooner, notAfter
// returns the limit, but leaves the copy at least an eighth of its usual time.
func (m *Machine[K]) notAfter(at *Moment) time.Time {
	a, limit := &m.att, at.CommandTimeout
	if m.hold.alone {
		limit = min(limit, m.hold.span/3)
	}
	if a.deadline != 0 {
		limit = min(limit, max(a.deadline-a.sent, limit/8))
	}
	return at.time(a.sent + limit)
}

// Replied handles the reply to a copy.
func (m *Machine[K]) Replied(at *Moment, r *backend.AcquireReply) Step {
	sent := m.att.sent
	m.prior, m.att.sent = backend.Prior{}, 0 // the next copy has no Prior, since what Redis has is not known then
	switch r.Status {
	case backend.Granted:
		return m.granted(at, r, sent)
	case backend.Stale: // the epoch is used up: for instance, its grant ended before the head accepted the grant
		m.together(at)
		m.enter(Begun)
		return Step{Do: AskAnew}
	}
	return m.refuted(at, r, sent)
}

// granted handles a reply that grants the lock. A reply that comes too late is not trusted: the next copy confirms the hold and
// gives it a full lease. The next copy needs a new epoch in two cases: if the lease is fixed, since a fixed lease starts only
// once, and if the session would have kept the lock alone, since the lease of such a hold is too short to be confirmed.
func (m *Machine[K]) granted(at *Moment, r *backend.AcquireReply, sent instant) Step {
	m.unreleased, m.prior = true, r.Prior
	a, l, anew := &m.att, m.hold.lease, m.att.fixed > 0 || m.hold.alone
	switch {
	case a.keepTTL:
	case a.fixed > 0: // an earlier copy may have started the lease, so what is left of the lease counts
		l = lease.New(at.time(sent), a.ahead, min(a.fixed, r.TTL), true)
	case m.hold.alone:
		l = lease.Kept(at.time(sent), a.ahead, m.hold.span)
	default:
		l = lease.New(at.time(sent), a.ahead, m.hold.span, false)
	}
	if at.now()-sent >= at.Heartbeat/4 {
		m.run = 0
	}
	if l.Trusted(at.Now) && !lease.Napped(a.ahead, at.Ahead) {
		if m.turn.limit == 0 || a.yields {
			m.turn = newTurn(at.Options, at.now(), at.Waiters)
		}
		return m.settle(at, r.First, r.Last, l)
	}
	m.together(at)
	if a.keepTTL = false; anew {
		m.enter(Begun)
		return Step{Do: AskAnew}
	}
	m.enter(Parked)
	return Step{Do: Ask}
}

// refuted handles the reply that another session has the lock, or goes first. The next copy asks for a full lease, and its
// grant begins a new turn.
func (m *Machine[K]) refuted(at *Moment, r *backend.AcquireReply, sent instant) Step {
	a := &m.att
	m.unreleased = m.unreleased || a.waits
	s := Step{Yielded: a.yields, TTL: r.TTL}
	a.keepTTL, a.yields, a.refuted, m.turn = false, false, sent, turn{}
	took, alone := at.now()-sent, m.hold.alone
	m.together(at)
	switch {
	case a.waits && alone:
		s.Do = AskAnew
	case a.waits && a.spins > 0:
		a.spins--
		s.Do = Ask
	case a.waits:
		s.Do = Park
	case r.Lingers && !a.asked && took < at.Heartbeat/4: // after a slow reply the next command could take too long
		a.asked = true // Redis has asked the session that keeps the lock, which gives up an idle lock during the pause
		s.Do, s.Wait = Pause, max(took, minHandOver)
	default:
		return m.leave(s)
	}
	m.enter(phaseOfNext(alone))
	return s
}

// minHandOver is the shortest time for which a try waits for another session to give up a lock that may be idle.
const minHandOver = time.Millisecond

// A Failure says what is known of a command that had no reply.
type Failure struct {
	Unknown bool // the command may have been carried out, or may be carried out later
	Refused bool // Redis refused the command and would refuse it again, so the caller gives up
}

// Unanswered handles a copy without a reply. If the step is Pause, the driver decides how long the pause is. The next copy asks
// for a full lease and does not keep the last lease (keepTTL), since on the server that answers, little of the last lease may
// be left.
func (m *Machine[K]) Unanswered(at *Moment, f Failure) Step {
	if f.Unknown {
		m.unreleased = true
		m.doubt(at.instant(m.notAfter(at)))
	}
	m.prior, m.att.keepTTL, m.att.sent = backend.Prior{}, false, 0
	next := phaseOfNext(m.hold.alone)
	m.together(at)
	if f.Refused || !m.att.waits {
		return m.leave(Step{})
	}
	m.enter(next)
	return Step{Do: Pause}
}

// doubt notes that a copy of an attempt may be under way up to the given time.
func (m *Machine[K]) doubt(until instant) { m.doubtUntil = max(m.doubtUntil, until) }

// A grant is what a pushed message says about a grant, to an attempt or a ticket.
type grant struct {
	epoch       uint64
	first, last backend.Token
	ttl         time.Duration
	notBefore   instant
}

// Pushed handles a grant that was pushed. ticket says whether an owner of this session has a ticket with the grant's epoch, and
// busy whether an owner or a clean-up has the baton.
func (m *Machine[K]) Pushed(at *Moment, g *backend.Grant, ticket, busy bool) Step {
	pushed := grant{g.Epoch, g.First, g.Last, g.TTL, at.instant(g.NotBefore)}
	switch {
	case ticket && m.epoch < g.Epoch: // the grant is for an owner that was signalled and is not the head yet
		m.grant = pushed
		return Step{Do: Signal}
	case m.epoch == g.Epoch && (m.phase == Asking || m.phase == Parked) && m.att.waits:
		m.grant = pushed
		return Step{Do: Wake}
	case m.epoch > g.Epoch || m.phase == Handed || m.phase == Idle || busy:
		// There is nothing to do. Either a newer attempt superseded the grant, or a reply granted the lock before this message
		// came. Or the attempt was given up, and a clean-up or the next head takes over the grant. Or the session has the lock,
		// and a release of the grant would release the hold.
		return Step{}
	}
	m.epoch = max(m.epoch, g.Epoch) // so that Begin adopts no earlier ticket, which the release of the grant would give up
	return Step{Do: Orphan}
}

// Woken handles the end of a pause, or of the time that the head was parked. A grant that came meanwhile is trusted without a
// command, unless the moment of the grant is not known, Redis has replied after that moment that another owner has the lock,
// less than half of the grant's TTL is left (too little to renew the lease in time), the computer slept since Redis was last
// asked, the lease is fixed (it starts when the grant is accepted), or the grant has more than the attempt asked for. In these
// cases the next copy of the attempt confirms the grant.
func (m *Machine[K]) Woken(at *Moment) Step {
	g, a := m.grant, &m.att
	if m.phase != Parked || g.epoch != m.epoch || g.notBefore == 0 || a.refuted != 0 && g.notBefore < a.refuted || a.fixed > 0 {
		return m.again()
	}
	req, l := m.AcquireRequest(at), lease.Pushed(at.time(g.notBefore), a.ahead, g.ttl)
	asked := check.Grant(&req, &backend.Grant{First: g.first, Last: g.last, TTL: g.ttl})
	if !asked || l.Remaining(at.Now) < g.ttl/2 || lease.Napped(a.ahead, at.Ahead) {
		return m.again()
	}
	m.turn = newTurn(at.Options, at.now(), at.Waiters)
	if g.first == g.last {
		m.prior = backend.Prior{Epoch: g.epoch, Owner: req.Owner, Token: g.first, Pushed: true}
	}
	return m.settle(at, g.first, g.last, l)
}

// again returns the step that makes the driver send the next copy.
func (m *Machine[K]) again() Step {
	if m.phase == Begun {
		return Step{Do: AskAnew}
	}
	return Step{Do: Ask}
}

// Overtaken begins anew the attempt of a head that let a Resume go first, and that has the baton again. A hold that the owner
// of the Resume left to the head ends here.
func (m *Machine[K]) Overtaken(at *Moment, h *Head[K]) Step {
	m.wake()
	m.want(Begun, at, h)
	return Step{Do: AskAnew}
}

// settle makes the head the owner of the hold that it wanted. If the session has given up its holds meanwhile, the
// attempt is given up.
func (m *Machine[K]) settle(at *Moment, first, last backend.Token, l lease.Lease) (s Step) {
	if at.Abandoned {
		return m.leave(s)
	}
	s.Do, s.Holds = Settle, int(m.att.holds)
	m.enter(Held)
	m.hold.epoch, m.hold.first, m.hold.token, m.hold.last, m.hold.lease = m.epoch, first, first, last, l
	if m.hold.stays > 0 {
		m.hold.stays += at.now()
	}
	m.att, m.grant = attempt{}, grant{}
	if m.hold.cohort {
		m.used = first
	}
	s.Check = m.moved >= m.epoch && m.check()
	return s
}

// GiveUp ends an attempt that got no hold. The next head takes over what Redis has for the session, such as the session's
// place among the waiters.
func (m *Machine[K]) GiveUp() Step { return m.leave(Step{}) }

// leave forgets the attempt and its hold, and makes s the step by which the goroutine with the baton gives the baton up.
func (m *Machine[K]) leave(s Step) Step {
	m.att = attempt{}
	m.clear(Vacant)
	s.Do = PassOn
	if !m.unreleased {
		s.Do = Leave
	}
	return s
}

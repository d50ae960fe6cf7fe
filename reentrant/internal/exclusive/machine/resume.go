package machine

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// Resume begins the Resume of a head, which takes up its hold from another session, or from before a restart. If another
// owner of this session left the lock to the head, Redis cannot have a hold of the head, and the head gives the baton up.
// The attempt of a head that let the Resume go first begins anew later, with Overtaken.
func (m *Machine[K]) Resume(at *Moment, h *Head[K]) Step {
	s := Step{Dropped: m.phase == Lapsed || m.phase == Idle}
	m.wake()
	if m.phase == Handed {
		s.Do = PassOn
		return s
	}
	m.want(Resuming, at, h)
	s.Do = AskAnew
	return s
}

// ResumeOwn begins the Resume of a hold that this session has: the hold goes on under a new epoch, with the lease that h asks
// for. After the reply Redis no longer has the old epoch.
func (m *Machine[K]) ResumeOwn(at *Moment, h *Head[K]) Step {
	m.StartLeaving()
	m.att = attempt{fixed: h.Fixed}
	return Step{Do: AskAnew}
}

// SendResume begins a copy of a Resume, which ResumeRequest returns. After [AskAnew], next is the new epoch; after [Ask], next
// is 0.
func (m *Machine[K]) SendResume(at *Moment, next uint64) {
	if next > 0 {
		m.number(next)
		m.prior = backend.Prior{}
	}
	m.att.sent, m.att.ahead = at.now(), at.Ahead
}

// ResumeRequest returns the copy of the Resume that is under way. Redis refuses the copy from notAfter on.
func (m *Machine[K]) ResumeRequest(at *Moment, notAfter time.Time) backend.ResumeRequest {
	req := backend.ResumeRequest{Epoch: m.epoch, Owner: at.Field, Lease: at.Lease, NotAfter: notAfter, Seen: at.Seen, Until: m.PendingUntil(at)}
	if fixed := m.att.fixed; fixed > 0 {
		req.Lease, req.Fixed = fixed, true
	}
	return req
}

// Resumed handles the reply to a copy of a Resume.
func (m *Machine[K]) Resumed(at *Moment, r *backend.ResumeReply) Step {
	switch r.Status {
	case backend.NotThere:
		return m.NotResumed(Failure{}, true)
	case backend.Overtaken:
		return Step{Do: AskAnew}
	}
	a, sent := &m.att, at.time(m.att.sent)
	h := hold[K]{owner: m.hold.owner, portable: m.hold.portable, epoch: m.epoch, first: r.Token, token: r.Token, last: r.Token, span: at.Lease}
	if h.lease = lease.New(sent, a.ahead, at.Lease, false); a.fixed > 0 {
		h.span, h.lease = a.fixed, lease.New(sent, a.ahead, r.TTL, true)
	}
	if h.stays = m.hold.stays; m.phase == Resuming && h.stays > 0 {
		h.stays += at.now()
	}
	switch {
	case !h.lease.Trusted(at.Now) || lease.Napped(a.ahead, at.Ahead):
		return Step{Do: Ask} // the reply came too late to be trusted
	case m.phase == Resuming:
		m.unreleased, m.turn = true, newTurn(at.Options, at.now(), at.Waiters)
		s := Step{Holds: r.Holds}
		return m.takeUp(at, s, h)
	}
	return m.replace(at, h, r.Holds)
}

// takeUp makes the head the owner of h, a hold that the head had in another session. If this session has given up its holds
// meanwhile, the attempt is given up.
func (m *Machine[K]) takeUp(at *Moment, s Step, h hold[K]) Step {
	m.att = attempt{}
	if at.Abandoned {
		m.clear(Vacant)
		s.Do = PassOn
		return s
	}
	m.enter(Held)
	m.hold = h
	s.Do = Settle
	s.Check = m.moved >= h.epoch && m.check()
	return s
}

// replace replaces the owner's hold by h. If h has another token, it is another hold: the old hold is lost, and the owner has
// the given hold count. In a session that has given up its holds the old hold is not replaced, since no keeper would maintain
// h.
func (m *Machine[K]) replace(at *Moment, h hold[K], holds int) (s Step) {
	m.att = attempt{}
	s.Do = Replace
	if h.token != m.hold.token {
		s.Holds = holds
		if m.Owned() {
			s.Why = m.lose("the owner had got it anew, in another session").Why
		}
	}
	if at.Abandoned {
		m.Stay()
		return s
	}
	m.enter(Held)
	m.hold = h
	s.Check = m.moved >= h.epoch && m.check()
	return s
}

// ResumeUnanswered handles a copy without a reply. If that copy may be under way, it could later take the hold from another
// session, in which the owner may have gone on since. So the next copy has another epoch, which makes Redis refuse the earlier
// copy.
func (m *Machine[K]) ResumeUnanswered(at *Moment, f Failure, notAfter time.Time) Step {
	switch {
	case f.Refused:
		return m.NotResumed(f, false)
	case f.Unknown:
		m.doubt(at.instant(notAfter))
		return Step{Do: AskAnew}
	}
	return Step{Do: Ask}
}

// NotResumed ends a Resume that got no hold. A hold that this session has is lost if Redis does not have it (notThere), or
// may have it under another epoch.
func (m *Machine[K]) NotResumed(f Failure, notThere bool) Step {
	m.att = attempt{}
	switch {
	case m.phase == Resuming:
		m.clear(Vacant)
		if m.unreleased {
			return Step{Do: PassOn}
		}
		return Step{Do: Leave}
	case m.Owned() && (notThere || f.Unknown):
		return m.lose("Redis no longer had it at Resume")
	}
	m.Stay()
	return Step{}
}

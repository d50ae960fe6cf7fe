package machine

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// maxSleep is the time after which Tick looks again at a hold that was to end and may not have ended.
const maxSleep = time.Second

// A Survey is what the keeper knows while it looks at all holds.
type Survey struct {
	Renewing  bool      // a batch of renewals is under way
	Refreshed time.Time // leases that were last renewed before this time are renewed now: the server may have changed then
}

// Tick looks at the hold: whether it is due for renewal, its lease is over, or it has been idle for long enough. The step's
// Wake is when to look again, zero if there is no need.
func (m *Machine[K]) Tick(at *Moment, v Survey) (s Step) {
	h := &m.hold
	if m.Owned() || m.left() {
		slept := h.lease.Slept(at.Now, at.Ahead)
		if m.Owned() && slept.Trust < h.lease.Trust {
			s.Check = m.check()
		}
		h.lease = slept
	}
	trusted := h.lease.Trusted(at.Now)
	switch {
	case m.phase == Lost && at.Now.Before(h.lease.End()):
		s.Wake = h.lease.End()
	case m.phase == Lost:
		s.Do, s.Wake = Evict, at.Now.Add(maxSleep) // in case the driver cannot evict the owner now
	case m.Owned() && !trusted:
		l := m.lose("the lease was not renewed in time")
		s.Do, s.Why, s.Wake = l.Do, l.Why, h.lease.End()
	case (m.phase == Idle || m.phase == Lapsed) && (at.now() >= m.lingerUntil || !trusted || h.alone && h.lease.Sent.Before(v.Refreshed)):
		m.lingerUntil = at.now() + maxSleep // in case an owner that is about to inherit the hold does not do so
		s.Do = m.Dismiss().Do
	case !m.Owned() && (!m.left() || !h.cohort || !trusted):
	case v.Renewing || h.alone && m.phase == Idle:
		s.Wake = h.lease.Until()
	case m.due(at, v):
		if s.Do, s.Wake = Renew, h.lease.Until(); h.alone {
			h.span = at.Lease
		}
	default:
		s.Wake = h.lease.Wake()
	}
	if until := at.time(m.lingerUntil); (m.phase == Idle || m.phase == Lapsed) && (s.Wake.IsZero() || until.Before(s.Wake)) {
		s.Wake = until
	}
	return s
}

// due reports whether the hold is due for renewal. After a renewal that failed, or that found no hold while the owner was
// leaving, the next renewal is due only after a pause.
func (m *Machine[K]) due(at *Moment, v Survey) bool {
	h := &m.hold
	again := h.failing || h.absent
	return h.lease.Sent.Before(v.Refreshed) && !h.lease.Fixed() && !again || h.lease.Due(at.Now, !again)
}

// grantedAgain is the reason for the loss of a hold that Redis has with another token now: another session may have had the
// lock in between.
const grantedAgain = "Redis had forgotten it, and granted it again"

// A Renewed is the reply to a renewal of the hold that has the epoch Epoch.
type Renewed struct {
	Epoch  uint64
	First  backend.Token // the first token of the hold that Redis has with this epoch; 0: not known
	Gone   bool          // Redis no longer has the hold
	Failed bool          // there was no reply, or a refusal
	Sent   time.Time
	Ahead  time.Duration // how far the wall clock was ahead when the renewal was sent
}

// Renewed handles the reply to a renewal. The hold that was renewed may have ended by now. Epochs are never used twice, so a
// reply for another epoch than the hold's is ignored.
func (m *Machine[K]) Renewed(at *Moment, r Renewed) Step {
	h := &m.hold
	if !m.Owned() && !m.left() || h.epoch != r.Epoch {
		return Step{}
	}
	again := !check.Same(h.first, r.First)
	switch {
	case (r.Gone || again) && m.phase == Leaving: // if the owner keeps the hold after all, the next renewal finds the loss
		h.lease, h.absent = h.lease.Retried(at.Now), true
		return Step{}
	case r.Gone:
		return m.Lose(r.Epoch, "Redis no longer had it at renewal")
	case again:
		return m.Lose(r.Epoch, grantedAgain)
	case r.Failed:
		h.lease = h.lease.Retried(at.Now)
	default:
		h.lease, h.absent = m.extended(at, &r), false
	}
	s := Step{Do: Extended, Change: lease.ChangeBy(h.failing, r.Failed)}
	h.failing = r.Failed
	return s
}

// Lose ends the hold, which can no longer be trusted, if the hold has the given epoch. Its owner still has the baton: an
// operation under way finds the loss and passes the baton on, and so does Exit. Without either of them, Tick has the baton
// taken from the owner when the lease is over in Redis too. So another owner of this session gets the lock no sooner than an
// owner of another session could, and the old owner has the margin of the lease to stop.
func (m *Machine[K]) Lose(epoch uint64, why string) Step {
	if m.hold.epoch != epoch {
		return Step{}
	}
	m.run = 0
	switch {
	case m.phase == Handed:
		m.clear(Vacant)
	case m.phase == Idle:
		m.clear(Lapsed)
	case m.Owned():
		return m.lose(why)
	}
	return Step{}
}

// lose marks a hold that an owner has as lost.
func (m *Machine[K]) lose(why string) Step {
	m.run = 0
	m.enter(Lost)
	return Step{Do: Lose, Why: why}
}

// Evicted ends a lost hold, after the driver has taken the baton from its owner.
func (m *Machine[K]) Evicted() { m.clear(Vacant) }

// check reports whether the driver is to ask Redis if the hold is still this session's, and for how long; if so, it notes
// that a check is scheduled. A hold that is renewed and cannot have been taken up needs no check.
func (m *Machine[K]) check() bool {
	if m.hold.checking || !m.hold.portable && !m.hold.lease.Fixed() {
		return false
	}
	m.hold.checking = true
	return true
}

// Taken handles a report that another session has taken up the hold with this epoch. The hold may not have begun here yet.
func (m *Machine[K]) Taken(epoch uint64) (s Step) {
	m.moved = max(m.moved, epoch)
	s.Check = m.Owned() && m.hold.epoch == epoch && m.hold.portable && m.check()
	return s
}

// Reconnected handles the loss of messages: another session may have taken up the hold meanwhile, even if the reply that
// grants the hold is still under way. A hold with a fixed lease is always checked: the lease may end sooner, by the clock of
// another server. Other holds are renewed (Survey.Refreshed), and the driver has a parked head ask Redis again.
func (m *Machine[K]) Reconnected() (s Step) {
	m.moved = max(m.moved, m.epoch)
	s.Check = m.Owned() && m.hold.lease.Fixed() && m.check()
	return s
}

// Checking begins a check, and reports whether the check is still needed. A later event that calls for a check schedules
// another one.
func (m *Machine[K]) Checking(epoch uint64) bool {
	if !m.Owned() || m.hold.epoch != epoch {
		return false
	}
	m.hold.checking = false
	return true
}

// A Checked is the reply to a check of the hold that has the epoch Epoch.
type Checked struct {
	Epoch  uint64
	Ours   bool // Redis has the hold, with this epoch
	Again  bool // Redis had forgotten the hold, and granted the lock to its epoch again
	Failed bool
	Sent   time.Time
	TTL    time.Duration // what was left of the hold's lease
}

// Checked handles the reply to a check. While the owner gives the hold up, or continues it under another epoch (Leaving),
// the reply proves no loss, and another check follows.
func (m *Machine[K]) Checked(at *Moment, c Checked) (s Step) {
	if !m.Owned() || m.hold.epoch != c.Epoch {
		return s
	}
	nothing := c.Failed || m.phase == Leaving
	switch {
	case nothing && !m.hold.checking: // if checking is set, another check is pending already
		m.hold.checking = true
		s.Do = CheckLater
	case !nothing && c.Again:
		return m.lose(grantedAgain)
	case !nothing && !c.Ours:
		return m.lose("another session has it, or none")
	}
	if c.Ours {
		m.hold.lease = m.hold.lease.Left(c.Sent, at.Now, c.TTL)
		s.Wake = m.hold.lease.Wake()
	}
	return s
}

// Wanted handles a report that another session waits for the hold with this epoch. The report is true of earlier holds too.
func (m *Machine[K]) Wanted(epoch uint64) Step {
	if m.hold.alone && m.wanted < m.hold.epoch && m.hold.epoch <= epoch {
		m.judge(true)
	}
	m.wanted, m.run = max(m.wanted, epoch), 0
	if m.Owned() && m.hold.epoch <= epoch {
		return Step{Do: Notify}
	}
	return m.Dismiss()
}

// Dismiss has the driver send a clean-up to an idle hold, unless one is on its way already.
func (m *Machine[K]) Dismiss() Step {
	if m.phase != Idle && m.phase != Lapsed || m.dismissed {
		return Step{}
	}
	m.dismissed = true
	return Step{Do: Dismiss}
}

// Arrive notes that the clean-up sent for Dismiss has arrived, and reports whether the hold is still idle. If so, and if the
// clean-up can take the baton, the driver calls Clean. If not, an owner is about to inherit the hold, or has inherited it.
func (m *Machine[K]) Arrive() bool {
	m.dismissed = false
	return m.phase == Idle || m.phase == Lapsed
}

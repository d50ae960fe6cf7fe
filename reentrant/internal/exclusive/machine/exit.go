package machine

import (
	"time"

	"github.com/relock-go/relock/backend"
)

// CanHandOver reports whether the owner's last unlock may leave the hold to the next owner in line, when the session has the
// given age: the hold must have lasted for its AtLeast, and its lease must be trusted. If so, the driver passes the baton
// before it unlocks the mutex. Then it calls HandOver if an owner took the baton, or if the hold is left to a clean-up, and
// Linger or Exit if not.
func (m *Machine[K]) CanHandOver(o *Options, age time.Duration) bool {
	return m.Owned() && m.hold.stays <= age && m.hold.lease.Trusted(o.Opened.Add(age))
}

// HandOver leaves the hold to the next owner in line, which has the baton. While the turn of this session lasts, that owner
// inherits the hold, or takes the lock over with its own first command to Redis. If no owner is in line, a clean-up can have
// the baton instead: then Clean follows, unless an owner has come meanwhile.
func (m *Machine[K]) HandOver() { m.enter(Handed) }

// Linger keeps the hold for the session at its owner's last unlock, when no owner of this session waits for the lock and the
// hold is in cohort mode or kept alone. The hold is then idle, and the baton free. until is the age of the session up to which
// the hold is kept. If ok is false, the hold is not kept, and the driver calls Exit. Like HandOver, Linger is on a fast path,
// and has no Moment.
func (m *Machine[K]) Linger(o *Options, age time.Duration, closing bool) (until time.Duration, ok bool) {
	if closing || !m.lingers(o) || !m.CanHandOver(o, age) {
		return 0, false
	}
	if until = m.idleUntil(o, age); until <= age {
		return 0, false
	}
	m.enter(Idle)
	m.lingerUntil = until + 1
	return until, true
}

// lingers reports whether the session may keep the hold although no owner of this session waits for the lock.
func (m *Machine[K]) lingers(o *Options) bool {
	renewed := m.hold.alone && m.hold.span > o.GrantTTL
	return m.hold.cohort && o.Linger > 0 && m.hold.token < m.hold.last && m.wanted < m.hold.epoch && !renewed
}

// Exit ends the hold at its owner's last unlock, if the hold is not left to the next owner (HandOver) and not kept (Linger).
func (m *Machine[K]) Exit(at *Moment) Step {
	switch {
	case m.phase == Lost:
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true}
	case !m.hold.lease.Trusted(at.Now):
		m.run = 0
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true, Why: "the lease ended before Unlock"}
	}
	stays := m.hold.stays
	m.clear(Freeing)
	if stays > at.now() {
		m.hold.stays = stays
	}
	return Step{Do: Release}
}

// Clean begins a clean-up, which has the baton and releases what the session has in Redis. The driver calls Clean after PassOn
// if no owner took the baton, and to end a hold that is idle or that an owner left behind.
func (m *Machine[K]) Clean() Step {
	m.clear(Freeing)
	return Step{Do: Release}
}

// LeaveThere notes that what the session has in Redis stays there: later owners of the baton do not release it.
func (m *Machine[K]) LeaveThere() { m.unreleased = false }

// ReleaseRequest returns the request that gives up everything that Redis has of this session for the lock.
func (m *Machine[K]) ReleaseRequest(at *Moment) backend.ReleaseRequest {
	req := backend.ReleaseRequest{Epoch: m.epoch, Until: m.PendingUntil(at), Used: m.used, Prior: m.prior}
	if m.operating { // the operation may change what Redis has
		req.Prior = backend.Prior{}
	}
	if m.hold.stays > 0 {
		req.StaysUntil = at.time(m.hold.stays)
	}
	return req
}

// PendingUntil returns the time until which a copy without a reply may be under way, zero if there is no such copy.
func (m *Machine[K]) PendingUntil(at *Moment) time.Time {
	if m.doubtUntil <= at.now() {
		m.doubtUntil = 0
	}
	return at.time(m.doubtUntil)
}

// Released handles the end of a release. done says whether Redis has nothing of the session any more. freed says whether Redis
// freed the lock, after it had found the lock as the request's Prior said. If done is false, the next head takes over what may
// be left.
func (m *Machine[K]) Released(done, freed bool) {
	prior := m.prior
	if !done || !freed && !m.hold.alone {
		m.run = 0
	}
	m.prior, m.hold = backend.Prior{}, hold[K]{}
	if done {
		m.unreleased = false
	}
	if freed {
		prior.Freed = true
		m.prior = prior
	}
	m.enter(Vacant)
}

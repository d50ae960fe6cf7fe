package machine

import (
	"time"

	"github.com/relock-go/relock/backend"
)

// CanHandOver reports whether the owner's last unlock may leave the hold to the next owner in line, when the session has
// the given age: no other owner may have it before it has lasted as long as it must. The driver then passes the baton, under
// the same mutex; HandOver follows if an owner was there to take it, and otherwise Exit.
func (m *Machine[K]) CanHandOver(o *Options, age time.Duration) bool {
	return m.Owned() && m.hold.stays <= age && m.hold.lease.Trusted(o.Opened.Add(age))
}

// HandOver leaves the hold to the next owner in line, which has the baton: while the turn of this session lasts, that takes
// the lock over in Redis with its own first command, or inherits it. If there is none, it may be left to a clean-up that has
// the baton: Clean follows, unless an owner has come meanwhile.
func (m *Machine[K]) HandOver() { m.enter(Handed) }

// Linger keeps the hold of an owner that gives up its last one, when no owner of this session waits for it: the session
// has it in cohort mode, and the baton is free. It is kept until the session has the returned age. ok is false if it is not
// kept: Exit follows. As HandOver it is on a fast path, and has no Moment.
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

// lingers reports whether the session may keep the hold although no owner waits for it.
func (m *Machine[K]) lingers(o *Options) bool {
	renewed := m.hold.alone && m.hold.span > o.GrantTTL
	return m.hold.cohort && o.Linger > 0 && m.hold.token < m.hold.last && m.wanted < m.hold.epoch && !renewed
}

// Exit ends the hold of an owner that gives up its last one, when no owner of this session waits for it, and it does not
// linger.
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

// Clean begins a clean-up, which has the baton: it releases what the session has in Redis. It follows PassOn if no owner
// took the baton, and ends a hold that is idle or that an owner left behind.
func (m *Machine[K]) Clean() Step {
	m.clear(Freeing)
	return Step{Do: Release}
}

// ReleaseRequest returns the request that gives up everything that Redis has of this session for the lock.
func (m *Machine[K]) ReleaseRequest(at *Moment) backend.ReleaseRequest {
	req := backend.ReleaseRequest{Epoch: m.epoch, Until: m.PendingUntil(at), Used: m.used, Prior: m.prior}
	if m.operating { // which may change it
		req.Prior = backend.Prior{}
	}
	if m.hold.stays > 0 {
		req.StaysUntil = at.time(m.hold.stays)
	}
	return req
}

// PendingUntil returns the time until which a copy may be under way that had no reply, zero if there is none.
func (m *Machine[K]) PendingUntil(at *Moment) time.Time {
	if m.doubtUntil <= at.now() {
		m.doubtUntil = 0
	}
	return at.time(m.doubtUntil)
}

// Released handles the end of a release. done says that Redis has nothing of the session any more, freed that the lock
// is free and Redis has it as the first copy of the request said. Otherwise the next head takes over what may be left.
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

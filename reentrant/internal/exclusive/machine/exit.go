package machine

import (
	"math"
	"time"

	"github.com/relock-go/relock/backend"
)

// A turn counts the local hand-overs since this session got the lock.
type turn struct {
	began      time.Time
	passes     int32
	limit      int32 // 0: there is no turn
	generation int32 // how many owners were in the queue when it began
}

// newTurn begins a turn for the owners that are in the queue now.
func newTurn(at *Moment) turn {
	return turn{began: at.Now, limit: int32(min(at.Handoffs, math.MaxInt32)), generation: int32(at.Waiters)}
}

// spent reports whether another session, if one waits, should have the lock now.
func (t *turn) spent(at *Moment) bool {
	lasted := at.Now.Sub(t.began)
	return t.passes >= t.limit || lasted >= at.HandoffTime || lasted >= at.Generation && t.passes >= t.generation
}

// CanHandOver reports whether the owner's last unlock may leave the hold to the next owner in line. The driver then
// passes the baton, under the same mutex, and tells Exit whether an owner was there to take it.
func (m *Machine[K]) CanHandOver(at *Moment) bool {
	return at.Waiters > 0 && m.owned() && m.hold.lease.Trusted(at.Now)
}

// Exit ends the hold of an owner that gives up its last one. passed says that the next owner in line has the baton: while
// the turn of this session lasts, that takes the lock over in Redis with its own first command, or inherits it. A hold in
// cohort mode lingers if no owner waits for it: the session keeps it, and the baton is free.
func (m *Machine[K]) Exit(at *Moment, passed bool) Step {
	switch {
	case passed:
		m.enter(Handed)
		m.disown()
		return Step{Do: HandOver}
	case m.phase == Lost:
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true}
	case !m.hold.lease.Trusted(at.Now):
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true, Why: "the lease ended before Unlock"}
	case m.lingers(at):
		m.enter(Idle)
		m.disown()
		m.lingerUntil = at.Now.Add(at.Linger)
		return Step{Do: Linger, Wake: m.lingerUntil}
	}
	m.clear(Freeing)
	return Step{Do: Release}
}

// disown takes the hold from its owner, and keeps it for the next.
func (m *Machine[K]) disown() {
	var none K
	m.hold.owner = none
}

// lingers reports whether the session keeps the hold although no owner waits for it.
func (m *Machine[K]) lingers(at *Moment) bool {
	return m.hold.cohort && at.Linger > 0 && m.hold.token < m.hold.last && !at.Closing && m.wanted < m.hold.epoch
}

// Clean begins a clean-up, which has the baton: it releases what the session has in Redis. It follows PassOn if no owner
// took the baton, and ends an idle hold.
func (m *Machine[K]) Clean() Step {
	m.clear(Freeing)
	return Step{Do: Release}
}

// ReleaseRequest returns the request that gives up everything that Redis has of this session for the lock.
func (m *Machine[K]) ReleaseRequest(at *Moment) backend.ReleaseRequest {
	return backend.ReleaseRequest{Epoch: m.epoch, Until: m.pendingUntil(at), Used: m.used, Prior: m.prior}
}

// Released handles the end of a release. done says that Redis has nothing of the session any more, freed that the lock
// is free and Redis has it as the first copy of the request said. Otherwise the next head takes over what may be left.
func (m *Machine[K]) Released(done, freed bool) {
	prior := m.prior
	m.prior = backend.Prior{}
	if done {
		m.unreleased = false
	}
	if freed {
		prior.Freed = true
		m.prior = prior
	}
	m.enter(Vacant)
}

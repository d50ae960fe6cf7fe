package machine

import (
	"math"
	"time"

	"github.com/relock-go/relock/backend"
)

// A turn counts the local hand-overs since this session got the lock.
type turn struct {
	began      instant
	passes     int32
	limit      int32 // 0: there is no turn
	generation int32 // how many owners were in the queue when it began
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

// CanHandOver reports whether the owner's last unlock may leave the hold to the next owner in line, when the session has
// the given age. The driver then passes the baton, under the same mutex; HandOver follows if an owner was there to take it,
// and otherwise Exit.
func (m *Machine[K]) CanHandOver(o *Options, age time.Duration) bool {
	return m.owned() && m.hold.lease.Trusted(o.Opened.Add(age))
}

// HandOver leaves the hold to the next owner in line, which has the baton: while the turn of this session lasts, that takes
// the lock over in Redis with its own first command, or inherits it.
func (m *Machine[K]) HandOver() { m.enter(Handed) }

// Exit ends the hold of an owner that gives up its last one, when no owner of this session waits for it. A hold in cohort
// mode lingers: the session keeps it, and the baton is free.
func (m *Machine[K]) Exit(at *Moment) Step {
	switch {
	case m.phase == Lost:
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true}
	case !m.hold.lease.Trusted(at.Now):
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true, Why: "the lease ended before Unlock"}
	case m.lingers(at):
		m.enter(Idle)
		m.lingerUntil = at.now() + at.Linger
		return Step{Do: Linger, Wake: at.time(m.lingerUntil)}
	}
	m.clear(Freeing)
	return Step{Do: Release}
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
	return backend.ReleaseRequest{Epoch: m.epoch, Until: m.pendingUntil(at), Used: m.used, Prior: m.remembered()}
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

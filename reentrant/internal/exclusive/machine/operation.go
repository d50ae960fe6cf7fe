package machine

import "github.com/relock-go/relock/backend"

// Operate begins an operation of the holder: a re-entry, one of several unlocks, an await or a signal. The operations of an
// epoch have rising numbers, so that Redis carries each operation out only once, whatever copies arrive.
func (m *Machine[K]) Operate() {
	m.hold.op++
	m.operating = true
}

// Trust checks without Redis whether the owner's hold can be trusted: for a re-entry in cohort mode, before each copy of an
// operation, and for a caller that asks. If the hold cannot be trusted, it is lost from here on, even if the keeper has not
// found that yet, in a process that was paused.
func (m *Machine[K]) Trust(at *Moment, why string) Step {
	switch {
	case m.phase == Lost:
		return Step{Lost: true}
	case m.hold.lease.Trusted(at.Now):
		return Step{Do: Ask}
	}
	s := m.Lose(m.hold.epoch, why)
	s.Lost = true
	return s
}

// Operated ends the operation. answered says whether Redis replied, and gone whether Redis no longer has the hold.
func (m *Machine[K]) Operated(answered, gone bool) Step {
	m.operating = false
	if answered && !gone && m.prior.Epoch == m.hold.epoch {
		m.prior.Op = m.hold.op
		return Step{}
	}
	m.prior = backend.Prior{}
	if gone {
		return m.Lose(m.hold.epoch, "Redis no longer had it")
	}
	return Step{}
}

// Finish gives the baton back to the holder after an operation, or passes it on if the hold was lost meanwhile.
func (m *Machine[K]) Finish() Step {
	if m.phase == Lost {
		m.clear(Vacant)
		return Step{Do: PassOn, Lost: true}
	}
	return Step{Do: Settle}
}

// StartLeaving marks the hold before an await or a Resume, a command that ends the hold's epoch in Redis. If Redis then
// no longer has the epoch, that proves no loss.
func (m *Machine[K]) StartLeaving() {
	if m.phase == Held {
		m.enter(Leaving)
	}
}

// Stay undoes StartLeaving, if the hold stays after all.
func (m *Machine[K]) Stay() {
	if m.phase == Leaving {
		m.enter(Held)
		m.hold.absent = false
	}
}

// Left ends the hold of an owner that waits for a condition now: Redis has the owner's ticket instead of the hold. A hold that
// was lost before the reply came stays lost, since its owner has been notified.
func (m *Machine[K]) Left() Step {
	m.prior = backend.Prior{}
	if m.phase == Lost {
		return Step{Lost: true}
	}
	m.clear(Vacant)
	m.unreleased, m.run = false, 0
	return Step{Do: Leave}
}

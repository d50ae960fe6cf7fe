package localqueue

import "slices"

// A model is what a Queue is meant to be, written without links, rings or nodes: one slice for the line, one for the
// operations. Every call is given an id, and its result is noted under it when it ends.
type model struct {
	out, busy bool
	owner     string
	holds     int
	line, ops []wait
	results   map[int]any
}

// A wait is a call that has not ended. then is what its goroutine does when it gets the baton, or with 0 holds in
// ops: when it learns that it will not.
type wait struct {
	id    int
	owner string
	kin   bool
	then  func(holds int)

	expelled any // the call's result if it is sent away
}

type beginResult struct {
	holds int
	ok    bool
}

func (m *model) claim(id int, owner string, shared bool) {
	m.results[id] = m.tryClaim(owner)
	if m.results[id] == Busy {
		delete(m.results, id)
		m.enqueue(id, owner, shared, Cancelled, func(holds int) {
			m.results[id] = Claimed
			if holds > 0 {
				m.results[id] = Reentered
			}
		})
	}
}

func (m *model) tryClaim(owner string) Outcome {
	switch {
	case !m.out:
		m.out, m.busy, m.owner = true, true, owner
		return Claimed
	case m.owner == owner && !m.busy:
		m.busy = true
		return Reentered
	}
	return Busy
}

func (m *model) enqueue(id int, owner string, shared bool, expelled any, then func(int)) {
	m.line = append(m.line, wait{id, owner, shared || owner == m.owner, then, expelled})
}

func (m *model) begin(id int, owner string, then func(holds int)) {
	switch {
	case !m.out || m.owner != owner || m.holds == 0:
		then(0)
	case m.busy:
		m.ops = append(m.ops, wait{id: id, owner: owner, then: then})
	default:
		m.busy = true
		then(m.holds)
	}
}

func (m *model) noteBegin(id int) func(int) {
	return func(holds int) { m.results[id] = beginResult{holds, holds > 0} }
}

func (m *model) settle(holds int) {
	m.holds, m.busy = holds, false
	if len(m.ops) > 0 {
		m.grant(&m.ops, 0, holds)
		return
	}
	if i := slices.IndexFunc(m.line, func(w wait) bool { return w.kin && w.owner == m.owner }); i >= 0 {
		m.grant(&m.line, i, holds)
	}
}

func (m *model) grant(from *[]wait, i, holds int) {
	w := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	m.out, m.busy, m.owner, m.holds = true, true, w.owner, holds
	w.then(holds)
}

func (m *model) handOver() {
	for _, w := range m.ops {
		w.then(0)
	}
	m.ops = nil
	if len(m.line) > 0 {
		m.grant(&m.line, 0, 0)
		return
	}
	m.out, m.busy, m.owner, m.holds = false, false, "", 0
}

func (m *model) pass() bool {
	if len(m.line) == 0 {
		return false
	}
	m.handOver()
	return true
}

func (m *model) evict(owner string) bool {
	if !m.settledBy(owner) {
		return false
	}
	m.handOver()
	return true
}

func (m *model) settledBy(owner string) bool { return m.out && !m.busy && m.owner == owner }

func (m *model) reenter(owner string) beginResult {
	switch {
	case !m.settledBy(owner):
		return beginResult{}
	case m.holds == MaxHolds:
		return beginResult{MaxHolds, false}
	}
	m.holds++
	return beginResult{m.holds, true}
}

func (m *model) exit(owner string) beginResult {
	if !m.settledBy(owner) || m.holds == 1 {
		return beginResult{}
	}
	m.holds--
	return beginResult{m.holds, true}
}

func (m *model) tryAcquire(owner string) bool {
	if !m.out {
		m.out, m.owner, m.holds = true, owner, 1
		return true
	}
	return m.reenter(owner).ok
}

func (m *model) acquire(id int, owner string) {
	switch {
	case m.tryAcquire(owner):
		m.results[id] = nil
	case m.settledBy(owner):
		m.results[id] = ErrTooManyHolds
	default:
		m.enqueue(id, owner, false, ErrExpelled, func(holds int) {
			m.results[id] = nil
			if holds == MaxHolds {
				m.results[id] = ErrTooManyHolds
			}
			m.settle(min(holds+1, MaxHolds))
		})
	}
}

func (m *model) release(id int, owner string) {
	m.begin(id, owner, func(holds int) {
		m.results[id] = nil
		switch {
		case holds == 0:
			m.results[id] = ErrNotHeld
		case holds > 1:
			m.settle(holds - 1)
		default:
			m.handOver()
		}
	})
}

// cancel ends a wait in the line, if id has one, and notes why.
func (m *model) cancel(id int, why any) {
	if i := slices.IndexFunc(m.line, func(w wait) bool { return w.id == id }); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.results[id] = why
	}
}

func (m *model) expel() {
	line := m.line
	m.line = nil
	for _, w := range line {
		m.results[w.id] = w.expelled
	}
}

func (m *model) waiters() []string {
	owners := []string{}
	for _, w := range m.line {
		owners = append(owners, w.owner)
	}
	return owners
}

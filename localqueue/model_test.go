package localqueue

import "slices"

// A model is a Queue without links, rings or nodes, for comparison: one slice for the line, one for the operations.
// Every call has an id, under which its result is recorded when it ends.
type model struct {
	out, busy bool
	owner     string
	holds     int
	arriving  bool // the owner's claim is still counted as queued
	line, ops []wait
	shut      bool
	results   map[int]any
}

// A wait is a call that has not ended. The call's goroutine calls the function then when it gets the baton. For a wait in
// ops, the goroutine also calls this function, with 0 holds, when it learns that it will not get the baton.
type wait struct {
	id      int
	owner   string
	mode    Mode
	sibling bool // admitted when its owner settles
	then    func(holds int)

	expelled any // the call's result if Shut ends its wait
}

type beginResult struct {
	holds int
	ok    bool
}

func (m *model) claim(id int, owner string, mode Mode) {
	if got := m.tryClaim(owner); got != Busy {
		m.results[id] = got
		m.arriving = m.arriving || got == Claimed
		return
	}
	m.enqueue(m.claimWait(id, owner, mode), mode&First != 0)
}

// claimWait returns a waiting claim.
func (m *model) claimWait(id int, owner string, mode Mode) wait {
	return wait{id: id, owner: owner, mode: mode, expelled: Cancelled, then: func(holds int) {
		m.results[id] = Claimed
		if holds > 0 {
			m.results[id] = Reentered
		}
	}}
}

func (m *model) giveWay(id int, mode Mode) {
	if m.shut || len(m.line) == 0 || m.line[0].mode&First == 0 {
		m.results[id] = Busy
		return
	}
	first := m.line[0]
	m.line = m.line[1:]
	m.enqueue(m.claimWait(id, m.owner, mode), true)
	m.admit(first, 0)
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

func (m *model) enqueue(w wait, front bool) {
	if m.shut {
		m.results[w.id] = w.expelled
		return
	}
	w.sibling = w.mode&Shared != 0 || w.owner == m.owner
	if front {
		m.line = slices.Insert(m.line, 0, w)
	} else {
		m.line = append(m.line, w)
	}
}

// siblingOf returns the index of the first waiter that is admitted when owner settles, -1 for none.
func (m *model) siblingOf(owner string) int {
	return slices.IndexFunc(m.line, func(w wait) bool { return w.sibling && w.owner == owner })
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
	m.holds, m.busy, m.arriving = holds, false, false
	if len(m.ops) > 0 {
		w := m.ops[0]
		m.ops = m.ops[1:]
		m.grant(w, holds)
		return
	}
	if i := m.siblingOf(m.owner); i >= 0 {
		w := m.line[i]
		m.line = slices.Delete(m.line, i, i+1)
		m.admit(w, holds)
	}
}

// admit grants the baton to a claim from the line.
func (m *model) admit(w wait, holds int) {
	m.arriving = true
	m.grant(w, holds)
}

func (m *model) grant(w wait, holds int) {
	m.out, m.busy, m.owner, m.holds = true, true, w.owner, holds
	w.then(holds)
}

func (m *model) handOver() {
	for _, w := range m.ops {
		w.then(0)
	}
	m.ops = nil
	if len(m.line) > 0 {
		w := m.line[0]
		m.line = m.line[1:]
		m.admit(w, 0)
		return
	}
	m.out, m.busy, m.owner, m.holds, m.arriving = false, false, "", 0, false
}

func (m *model) pass() bool {
	if m.arriving = false; len(m.line) == 0 {
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

func (m *model) exitOrBegin(owner string) beginResult {
	switch {
	case !m.settledBy(owner):
		return beginResult{}
	case m.holds == 1:
		m.busy = true
		return beginResult{0, true}
	}
	m.holds--
	return beginResult{m.holds, true}
}

func (m *model) tryLock(owner string) bool {
	if !m.out {
		m.out, m.owner, m.holds = true, owner, 1
		return true
	}
	return m.reenter(owner).ok
}

func (m *model) lock(id int, owner string) {
	switch {
	case m.tryLock(owner):
		m.results[id] = nil
	case m.settledBy(owner):
		m.results[id] = errTooManyHolds
	default:
		m.enqueue(wait{id: id, owner: owner, expelled: errShut, then: func(holds int) {
			m.results[id] = nil
			if holds == MaxHolds {
				m.results[id] = errTooManyHolds
			}
			m.settle(min(holds, MaxHolds-1) + 1) // MaxHolds+1 is too large for an int of 32 bits
		}}, false)
	}
}

func (m *model) unlock(id int, owner string) {
	m.begin(id, owner, func(holds int) {
		m.results[id] = nil
		switch {
		case holds == 0:
			m.results[id] = errNotHeld
		case holds > 1:
			m.settle(holds - 1)
		default:
			m.handOver()
		}
	})
}

// cancel ends the wait of the call with this id, if that call is in the line, and records why as its result.
func (m *model) cancel(id int, why any) {
	if i := slices.IndexFunc(m.line, func(w wait) bool { return w.id == id }); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.results[id] = why
	}
}

func (m *model) sendAway() {
	line := m.line
	m.line = nil
	for _, w := range line {
		m.results[w.id] = w.expelled
	}
}

// queued returns the owners of the claims that have not settled.
func (m *model) queued() []string {
	if m.arriving {
		return append([]string{m.owner}, m.waiters()...)
	}
	return m.waiters()
}

func (m *model) waiters() []string {
	owners := []string{}
	for _, w := range m.line {
		owners = append(owners, w.owner)
	}
	return owners
}

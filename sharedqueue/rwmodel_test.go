package sharedqueue

import (
	"maps"
	"slices"
	"time"
)

// An rwModel is an RW with only a map and a slice, for comparison. Every claim has an id, under which its outcome is
// recorded when it ends.
type rwModel struct {
	now, until time.Duration
	units      int
	reads      map[string]int
	writer     string
	writes     int
	token      uint64

	next, last, used uint64

	contended  bool
	inTurn     bool
	admissions int
	turnEnd    time.Duration
	shut       bool

	line     []rwWait
	outcomes map[int]Outcome
}

type rwWait struct {
	id    int
	owner string
	mode  Mode
}

func newRWModel() rwModel {
	return rwModel{reads: map[string]int{}, outcomes: map[int]Outcome{}, next: 1}
}

func (m *rwModel) trusted() bool { return m.now < m.until }

func (m *rwModel) writersWait() bool {
	return slices.ContainsFunc(m.line, func(w rwWait) bool { return w.mode&Write != 0 })
}

// step ends a turn that can admit no further owner. It is called after every step.
func (m *rwModel) step() {
	if m.inTurn && (m.admissions == 0 || m.now >= m.turnEnd || m.writes == 0 && !m.writersWait()) {
		m.inTurn = false
	}
}

// fits reports whether an owner that is outside can be admitted next.
func (m *rwModel) fits(mode Mode) bool {
	m.step()
	if m.writes > 0 || !m.trusted() || m.contended && (!m.inTurn || m.units < All) {
		return false
	}
	if mode&Write == 0 {
		return m.units >= 1
	}
	return m.units == All && m.next <= m.last && len(m.reads) == 0
}

func (m *rwModel) enter(owner string, mode Mode) Outcome {
	if mode&Write == 0 {
		if m.units == All && m.used == 0 {
			m.useToken()
		}
		m.reads[owner]++
		if m.reads[owner] > 1 || m.writes > 0 {
			return Reentered
		}
		return Admitted
	}
	m.writes++
	if m.writes > 1 {
		return Reentered
	}
	if m.inTurn {
		m.admissions--
	}
	m.writer = owner
	m.useToken()
	m.token = m.used
	return Admitted
}

func (m *rwModel) useToken() {
	m.used = m.next
	m.next += 2
}

func (m *rwModel) writesOf(owner string) int {
	if m.writer != owner {
		return 0
	}
	return m.writes
}

func (m *rwModel) try(owner string, mode Mode) Outcome {
	writes := m.writesOf(owner)
	switch {
	case mode&Write != 0 && m.reads[owner] > 0 && writes == 0:
		return Upgrade
	case writes > 0 || m.reads[owner] > 0:
		if !m.trusted() {
			return Busy
		}
		return m.enter(owner, mode)
	case m.shut:
		return Expelled
	case len(m.line) > 0 || !m.fits(mode):
		return Busy
	}
	return m.enter(owner, mode)
}

func (m *rwModel) claim(id int, owner string, mode Mode) {
	o := m.try(owner, mode)
	blocked := len(m.line) > 0 || m.writes > 0 || mode&Write != 0 && len(m.reads) > 0
	if o == Busy && (mode&Once == 0 || !blocked) {
		if mode&Write == 0 || !m.waits(owner, Read) || m.waits(owner, Write) || m.waits(owner, Write|Once) {
			m.line = append(m.line, rwWait{id, owner, mode})
			return
		}
		o = Upgrade
	}
	m.outcomes[id] = o
}

// waits reports whether a claim of a shared owner with that mode is in line.
func (m *rwModel) waits(owner string, mode Mode) bool {
	return slices.ContainsFunc(m.line, func(w rwWait) bool { return w.owner == owner && w.mode == mode|Shared })
}

func (m *rwModel) admit() {
	for len(m.line) > 0 && m.fits(m.line[0].mode) {
		m.admitFirst()
	}
}

func (m *rwModel) admitFirst() {
	w := m.line[0]
	m.outcomes[w.id] = m.enter(w.owner, w.mode) // the claim is in line until it has entered
	m.line = m.line[1:]
	m.admitInside(func(o rwWait) bool { return o.owner == w.owner && o.mode&Shared != 0 })
}

// admitInside admits waiting claims of owners that are already inside.
func (m *rwModel) admitInside(concerns func(rwWait) bool) {
	m.line = slices.DeleteFunc(m.line, func(w rwWait) bool {
		if !concerns(w) || m.reads[w.owner] == 0 && m.writesOf(w.owner) == 0 {
			return false
		}
		o := m.try(w.owner, w.mode)
		if o != Busy {
			m.outcomes[w.id] = o
		}
		return o != Busy
	})
}

// trust sets until when the units are trusted, and admits the claims that can enter now.
func (m *rwModel) trust(until time.Duration) {
	lapsed := !m.trusted()
	if m.until = until; lapsed {
		m.admitInside(func(rwWait) bool { return true })
	}
	m.admit()
}

func (m *rwModel) exitRead(owner string) (left int, ok bool) {
	holds := m.reads[owner]
	if holds == 0 {
		return 0, false
	}
	if m.reads[owner]--; m.reads[owner] == 0 {
		delete(m.reads, owner)
		m.admit()
	}
	return holds - 1, true
}

func (m *rwModel) exitWrite(owner string, n int) (left int, ok bool) {
	if m.writesOf(owner) == 0 {
		return 0, false
	}
	if m.writes -= n; m.writes > 0 {
		return m.writes, true
	}
	m.writer, m.token = "", 0
	if m.contended && len(m.reads) > 0 {
		for len(m.line) > 0 && m.line[0].mode&Write == 0 && m.trusted() {
			m.admitFirst()
		}
		m.inTurn = false
	}
	m.admit()
	return 0, true
}

func (m *rwModel) exitAll(owner string) (reads, writes int) {
	if writes = m.writesOf(owner); writes > 0 {
		reads = m.reads[owner]
		delete(m.reads, owner)
		m.exitWrite(owner, writes)
	}
	return reads, writes
}

func (m *rwModel) addHolds(owner string, reads, writes int) {
	m.writes += writes
	if reads > 0 {
		m.reads[owner] += reads
	}
}

func (m *rwModel) leave(id int, why Outcome) {
	if i := slices.IndexFunc(m.line, func(w rwWait) bool { return w.id == id }); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.outcomes[id] = why
		m.admit()
	}
}

func (m *rwModel) endAll(o Outcome) {
	for _, w := range m.line {
		m.outcomes[w.id] = o
	}
	m.line = nil
}

func (m *rwModel) endTries(need int) {
	m.line = slices.DeleteFunc(m.line, func(w rwWait) bool {
		gone := w.mode&Once != 0 && (need <= 1 || w.mode&Write != 0)
		if gone {
			m.outcomes[w.id] = Busy
		}
		return gone
	})
	m.admit()
}

func (m *rwModel) inUse() int {
	switch {
	case m.writes > 0:
		return All
	case len(m.reads) > 0:
		return 1
	}
	return 0
}

func (m *rwModel) settle(t Terms) {
	if t.Units == All {
		m.next, m.last = t.First, t.Last
		if m.units == 0 {
			m.used = 0
		}
	} else {
		m.next, m.last, m.used = 1, 0, t.Token
	}
	m.units, m.contended, m.inTurn = t.Units, false, false
	m.trust(t.Until)
}

func (m *rwModel) ask(passes int, turnEnd time.Duration) {
	if !m.contended {
		m.contended, m.inTurn, m.admissions, m.turnEnd = true, passes > 0, passes, turnEnd
	}
	m.step()
}

func (m *rwModel) keep(units int) (kept int, token uint64) {
	m.units = min(m.units, max(units, m.inUse()))
	token = m.used
	if m.units < All {
		m.next, m.last = 1, 0
	}
	if m.units == 0 {
		m.used = 0
	}
	return m.units, token
}

func (m *rwModel) lose() map[string]Loss[string] {
	lost := map[string]Loss[string]{}
	for owner, reads := range m.reads {
		lost[owner] = Loss[string]{owner, reads, 0}
	}
	if m.writes > 0 {
		lost[m.writer] = Loss[string]{m.writer, m.reads[m.writer], m.writes}
	}
	m.reads, m.writer, m.writes, m.token = map[string]int{}, "", 0, 0
	m.units, m.next, m.last, m.used = 0, 1, 0, 0
	return lost
}

func (m *rwModel) look() State {
	m.step()
	s := State{
		Limit: All,
		Units: m.units, InUse: m.inUse(), Waiting: len(m.line),
		Asked: m.contended, TurnOver: m.contended && (!m.inTurn || m.units < All), Spent: m.next > m.last, Used: m.used,
	}
	for _, w := range m.line {
		if w.mode&Write != 0 {
			s.Writers++
		}
	}
	if len(m.line) > 0 {
		s.Head, s.Once = 1, m.line[0].mode&Once != 0
		if m.line[0].mode&Write != 0 {
			s.Head = All
		}
		s.Want, s.Once = max(s.Head, s.InUse), m.line[0].mode&Once != 0
	}
	return s
}

// need returns what the engine should act on: units to give back, or to ask for.
func (m *rwModel) need() need {
	s := m.look()
	d := need{keep: s.Units}
	short := s.Waiting > 0 && (s.Units < s.Head || s.Head == All && s.Spent)
	switch {
	case s.Waiting > 0 && (s.TurnOver || short):
		return need{keep: min(s.Units, s.InUse), want: s.Want, once: s.Once}
	case s.TurnOver, s.Waiting == 0 && s.InUse < All && (s.Units == All || m.shut):
		d.keep = min(s.Units, s.InUse)
	}
	return d
}

func (m *rwModel) readers() int {
	n := 0
	for reads := range maps.Values(m.reads) {
		n += reads
	}
	return n
}

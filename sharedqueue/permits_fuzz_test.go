package sharedqueue

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A permitsModel is Permits with only a slice, for comparison.
type permitsModel struct {
	now, until                    time.Duration
	units, inUse, limit           int
	contended, inTurn, shut, came bool
	keepAtMost, admissions        int
	turnEnd                       time.Duration
	line                          []permitsWait
	outcomes                      map[int]Outcome
}

type permitsWait struct {
	id, n int
	mode  Mode
}

func (m *permitsModel) step() {
	if m.inTurn && (m.admissions == 0 || m.now >= m.turnEnd) {
		m.inTurn = false
	}
}

func (m *permitsModel) fits(n int) bool {
	m.step()
	limit := m.units
	if m.contended && !m.inTurn {
		limit = min(limit, m.keepAtMost)
	}
	return m.inUse+n <= limit && m.within(n) && m.now < m.until
}

func (m *permitsModel) within(n int) bool { return m.inUse == 0 || m.inUse+n <= m.limit }

func (m *permitsModel) take(n int) {
	m.inUse += n
	m.came = true
	if m.inTurn && m.inUse > m.keepAtMost {
		m.admissions--
	}
}

func (m *permitsModel) try(n int) Outcome {
	switch {
	case m.shut:
		return Expelled
	case len(m.line) > 0 || !m.fits(n):
		return Busy
	}
	m.take(n)
	return Admitted
}

func (m *permitsModel) claim(id, n int, mode Mode) {
	o := m.try(n)
	if o == Busy && (mode&Once == 0 || len(m.line) == 0 && m.within(n)) {
		m.line = append(m.line, permitsWait{id, n, mode})
		return
	}
	m.outcomes[id] = o
}

func (m *permitsModel) admit() {
	for len(m.line) > 0 && m.fits(m.line[0].n) {
		m.take(m.line[0].n)
		m.outcomes[m.line[0].id] = Admitted
		m.line = m.line[1:]
	}
}

func (m *permitsModel) exit(n int) bool {
	if n > m.inUse {
		return false
	}
	m.inUse -= n
	m.admit()
	return true
}

func (m *permitsModel) leave(id int, why Outcome) {
	if i := slices.IndexFunc(m.line, func(w permitsWait) bool { return w.id == id }); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		m.outcomes[id] = why
		m.admit()
	}
}

func (m *permitsModel) endAll(o Outcome) {
	for _, w := range m.line {
		m.outcomes[w.id] = o
	}
	m.line = nil
}

func (m *permitsModel) endTries(need int) {
	m.line = slices.DeleteFunc(m.line, func(w permitsWait) bool {
		gone := w.mode&Once != 0 && m.inUse+w.n >= need
		if gone {
			m.outcomes[w.id] = Busy
		}
		return gone
	})
	m.admit()
}

func (m *permitsModel) want() int {
	n := m.inUse
	for _, w := range m.line {
		n += w.n
	}
	return n
}

func (m *permitsModel) look() State {
	m.step()
	s := State{Units: m.units, InUse: m.inUse, Waiting: len(m.line), Asked: m.contended, TurnOver: m.contended && !m.inTurn, Limit: m.limit}
	if len(m.line) > 0 {
		s.Head, s.Want, s.Once = m.line[0].n, m.want(), m.line[0].mode&Once != 0
	}
	return s
}

func (m *permitsModel) need() need {
	s := m.look()
	d := need{keep: min(s.Units, max(s.InUse, s.Limit)), limit: s.Limit}
	if s.Waiting > 0 && (s.InUse+s.Head > s.Units || s.TurnOver) {
		d.want, d.least = s.Want, s.InUse+s.Head
	}
	switch {
	case s.Waiting == 0 && s.InUse == 0:
		d.keep = 0
	case s.Asked && (s.TurnOver || s.Waiting == 0):
		d.keep = s.InUse
	}
	return d
}

// A permitsRig drives Permits and their model through the same steps and compares them after each step.
type permitsRig struct {
	t     *testing.T
	clock clock
	q     *Permits
	m     permitsModel
	calls int
	seen  need

	mu       sync.Mutex
	outcomes map[int]Outcome

	leave []leaver
}

func newPermitsRig(t *testing.T) *permitsRig {
	r := &permitsRig{t: t, m: permitsModel{limit: All, outcomes: map[int]Outcome{}}, outcomes: map[int]Outcome{}}
	r.q = NewPermits(r.clock.now)
	r.seen.limit = All
	return r
}

func (r *permitsRig) note(id int, o Outcome) {
	r.mu.Lock()
	r.outcomes[id] = o
	r.mu.Unlock()
}

func (r *permitsRig) enter(n int, mode Mode) {
	r.calls++
	id := r.calls
	r.m.claim(id, n, mode)
	o, w, _, changed := r.q.Enter(n, mode)
	r.checkLook(changed)
	if o != Waiting {
		r.note(id, o)
		return
	}
	done, timeout := make(chan struct{}), make(chan time.Time, 1)
	go func() {
		o, _, _ := r.q.Wait(w, done, timeout)
		r.note(id, o)
	}()
	r.leave = append(r.leave, leaver{id, func() { close(done) }, func() { timeout <- time.Time{} }})
}

func (r *permitsRig) quit(n int, byTimeout bool) {
	if len(r.leave) == 0 {
		return
	}
	n %= len(r.leave)
	l := r.leave[n]
	r.leave = append(r.leave[:n], r.leave[n+1:]...)
	if byTimeout {
		l.timeout()
		r.m.leave(l.id, TimedOut)
		return
	}
	l.cancel()
	r.m.leave(l.id, Cancelled)
}

func (r *permitsRig) checkLook(changed bool) {
	r.t.Helper()
	if r.m.now < r.m.until || r.m.units == 0 {
		require.Equal(r.t, r.m.need() != r.seen, changed)
	} else if r.m.need() != r.seen {
		require.True(r.t, changed)
	}
}

func (r *permitsRig) settle(units int, until time.Duration) {
	r.q.Settle(Terms{Units: units, Until: until})
	r.m.units, r.m.until, r.m.contended, r.m.inTurn = units, until, false, false
	r.m.admit()
}

func (r *permitsRig) step(code, arg byte) {
	q, m := r.q, &r.m
	n, big := int(arg&7), int(arg>>3)
	switch code % 14 {
	case 0, 1, 2:
		r.enter(max(n, 1), Mode(arg>>3&1)*Once)
	case 3:
		n = max(n, 1)
		o, changed := q.Try(n)
		require.Equal(r.t, m.try(n), o)
		r.checkLook(changed)
	case 4, 5, 6, 7:
		ok, changed := q.Exit(n)
		require.Equal(r.t, m.exit(n), ok)
		r.checkLook(changed)
	case 8:
		r.settle(max(m.inUse, n+big/8), m.now+time.Duration(big))
	case 9:
		turnEnd := m.now + time.Duration(big&3)
		q.Ask(n, big>>2, turnEnd)
		if m.keepAtMost = n; !m.contended {
			m.contended, m.inTurn, m.admissions, m.turnEnd = true, big>>2 > 0, big>>2, turnEnd
		}
		m.admit()
	case 10:
		m.units = min(m.units, max(n, m.inUse))
		require.Equal(r.t, m.units, q.Keep(n))
	case 11:
		r.quit(int(arg>>1), arg&1 != 0)
	case 12:
		r.clock.time += time.Duration(arg & 3)
		m.now = r.clock.time
		if arg&4 != 0 {
			q.Trust(m.now + time.Duration(big))
			m.until = m.now + time.Duration(big)
			m.admit()
		}
		st := q.Look()
		st.Since, st.Pace = 0, 0
		require.Equal(r.t, m.look(), st)
		r.seen = m.need()
	case 13:
		switch {
		case arg == 0xFF:
			q.Shut()
			m.shut = true
			m.endAll(Expelled)
		case arg >= 0xF0:
			q.Expel()
			m.endAll(Expelled)
		case arg >= 0xC0:
			q.EndTries(n)
			m.endTries(n)
		case arg >= 0x80:
			require.Equal(r.t, m.inUse, q.Lose())
			m.inUse, m.units = 0, 0
		case arg >= 0x60:
			q.Limit(n)
			m.limit = n
			m.admit()
		case arg >= 0x50:
			q.Unask()
			m.contended, m.inTurn = false, false
			m.admit()
		default:
			require.Equal(r.t, m.inUse == 0 && len(m.line) == 0 && !m.came, q.Rest())
			m.came = false
		}
	}
}

func (r *permitsRig) compare() {
	synctest.Wait()
	require.Equal(r.t, r.m.inUse == 0 && len(r.m.line) == 0, r.q.Idle())
	require.Equal(r.t, r.m.inUse, r.q.InUse())
	require.Len(r.t, r.m.line, r.q.line.Len)
	r.mu.Lock()
	outcomes := maps.Clone(r.outcomes)
	r.mu.Unlock()
	require.Equal(r.t, r.m.outcomes, outcomes)
}

// drain gives the queue everything that it asks for, until no claim waits.
func (r *permitsRig) drain() {
	r.q.Limit(All)
	r.m.limit = All
	r.m.admit()
	r.settle(r.m.want(), r.m.now+1)
	r.compare()
	require.Empty(r.t, r.m.line)
	require.True(r.t, r.m.exit(r.m.inUse))
	ok, _ := r.q.Exit(r.q.InUse())
	require.True(r.t, ok)
	require.True(r.t, r.q.Idle())
}

func runPermitsSteps(t *testing.T, steps []byte) {
	synctest.Test(t, func(t *testing.T) {
		r := newPermitsRig(t)
		for ; len(steps) >= 2; steps = steps[2:] {
			r.step(steps[0], steps[1])
			r.compare()
		}
		r.drain()
	})
}

func FuzzPermits(f *testing.F) {
	f.Add([]byte{8, 0xFB, 0, 2, 0, 1, 0, 1, 0, 2, 4, 1, 4, 1, 11, 0})          // a wide claim waits, one behind it leaves
	f.Add([]byte{8, 0xFB, 0, 3, 0, 1, 9, 0xF9, 4, 1, 4, 1, 4, 1, 10, 1})       // asked back, a turn, given back
	f.Add([]byte{0, 9, 0, 9, 13, 0xC1, 13, 0xF0, 8, 0xFB, 13, 0x80, 13, 0xFF}) // tries, expelled, lost, shut
	f.Fuzz(func(t *testing.T, steps []byte) {
		runPermitsSteps(t, steps[:min(len(steps), 2*maxSteps)])
	})
}

// Every test run makes the checks of FuzzPermits on random inputs.
func TestRandomStepsOfPermitsAgreeWithTheModel(t *testing.T) {
	seed := newSeed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range rounds(400) {
		steps := make([]byte, 2+rnd.IntN(200))
		for i := range steps {
			steps[i] = byte(rnd.Uint32())
		}
		steps[0], steps[1] = 8, 0xF8|byte(rnd.Uint32()) // units, trusted for long
		runPermitsSteps(t, steps)
	}
}

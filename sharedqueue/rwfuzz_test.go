package sharedqueue

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An rwRig drives an RW and its model through the same steps and compares them after each step. Waits run in goroutines
// of their own; the bubble shows when all of them are blocked or done.
type rwRig struct {
	t     *testing.T
	clock clock
	q     *RW[string]
	m     rwModel
	calls int
	token uint64 // the last token of all blocks so far
	seen  need   // the model's need when Look was last called
	open  bool   // whether the queue was open before the step

	mu       sync.Mutex
	outcomes map[int]Outcome

	leave []leaver
}

// A leaver is a claim that may wait, with a function that cancels its wait.
type leaver struct {
	id      int
	cancel  func()
	timeout func()
}

func newRWRig(t *testing.T) *rwRig {
	r := &rwRig{t: t, m: newRWModel(), outcomes: map[int]Outcome{}}
	r.q = NewRW(r.clock.now, keyOf, named)
	return r
}

func (r *rwRig) note(id int, o Outcome) {
	r.mu.Lock()
	r.outcomes[id] = o
	r.mu.Unlock()
}

func (r *rwRig) enter(owner string, mode Mode) {
	r.calls++
	id := r.calls
	r.m.claim(id, owner, mode)
	o, w, _, changed := r.q.Enter(owner, mode)
	r.checkLook(changed)
	if o != Waiting {
		require.Nil(r.t, w)
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

// quit cancels the n'th of the claims that may wait.
func (r *rwRig) quit(n int, byTimeout bool) {
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

// checkLook asserts that a call reports a change if it changed what the engine acts on. A call that changed nothing may
// report a change only if the trust has ended.
func (r *rwRig) checkLook(changed bool) {
	r.t.Helper()
	switch {
	case r.m.need() != r.seen:
		require.True(r.t, changed || r.q.open, "the engine has to look")
	case r.open || r.q.open: // it is not certain whether a reader is inside
	case r.m.trusted() || r.m.units == 0:
		require.False(r.t, changed, "the engine need not look")
	}
}

func (r *rwRig) look() {
	require.Equal(r.t, r.m.look(), r.q.Look())
	r.seen = r.m.need()
}

// block returns terms with a new block of tokens, as a server would issue it.
func (r *rwRig) block(units int, tokens uint64, until time.Duration) Terms {
	t := Terms{Units: units, Until: until, Token: r.token}
	if units == All {
		t.First = r.token + 2
		t.Last = r.token + 2*tokens
		r.token = t.Last
	}
	return t
}

var fuzzOwners = [...]string{"a", "b", "c", ""}
var fuzzUnits = [...]int{0, 1, All, All}

// step decodes two bytes into a step and carries it out.
func (r *rwRig) step(code, arg byte) {
	q, m := r.q, &r.m
	r.open = q.open
	owner, big, units := fuzzOwners[arg&3], int(arg>>4), fuzzUnits[arg>>2&3]
	switch code % 20 {
	case 0, 1:
		r.enter(owner, Read|Mode(arg>>2&3)*Once)
	case 2, 3:
		r.enter(owner, Write|Mode(arg>>2&3)*Once)
	case 4:
		o, _, changed := q.TryRead(owner)
		require.Equal(r.t, m.try(owner, Read), o)
		r.checkLook(changed)
	case 5:
		o, changed := q.TryWrite(owner)
		require.Equal(r.t, m.try(owner, Write), o)
		r.checkLook(changed)
	case 6, 7, 8:
		left, ok, changed := q.ExitRead(owner)
		wantLeft, want := m.exitRead(owner)
		require.Equal(r.t, want, ok)
		require.Equal(r.t, wantLeft, left)
		r.checkLook(changed)
	case 9, 10:
		left, ok, changed := q.ExitWrite(owner)
		wantLeft, want := m.exitWrite(owner, 1)
		require.Equal(r.t, want, ok)
		require.Equal(r.t, wantLeft, left)
		r.checkLook(changed)
	case 11:
		reads, writes, changed := q.ExitAll(owner)
		wantReads, wantWrites := m.exitAll(owner)
		require.Equal(r.t, wantReads, reads)
		require.Equal(r.t, wantWrites, writes)
		r.checkLook(changed)
	case 12:
		reads, writes := big&3, big>>2
		require.Equal(r.t, m.writesOf(owner) > 0, q.AddHolds(owner, reads, writes))
		if m.writesOf(owner) > 0 {
			m.addHolds(owner, reads, writes)
		}
	case 13:
		t := r.block(max(units, m.inUse()), 1+uint64(big), m.now+time.Duration(big))
		q.Settle(t)
		m.settle(t)
	case 14:
		q.Ask(0, big, m.now+time.Duration(arg&7))
		m.ask(big, m.now+time.Duration(arg&7))
	case 15:
		wantKept, wantToken := m.keep(units)
		kept, token := q.Keep(units)
		require.Equal(r.t, wantKept, kept)
		require.Equal(r.t, wantToken, token)
	case 16:
		want, got := m.lose(), map[string]Loss[string]{}
		for _, l := range q.Lose() {
			require.NotContains(r.t, got, l.Owner, "the loss is reported twice")
			got[l.Owner] = l
		}
		require.Equal(r.t, want, got)
	case 17:
		r.quit(int(arg>>1), arg&1 != 0)
	case 18:
		r.clock.time += time.Duration(arg & 3)
		m.now = r.clock.time
		if arg&4 != 0 {
			q.Trust(m.now + time.Duration(big))
			m.trust(m.now + time.Duration(big))
		}
		r.look()
	case 19:
		switch {
		case arg == 0xFF:
			q.Shut()
			m.shut = true
			m.endAll(Expelled)
		case arg >= 0xE0:
			q.Expel()
			m.endAll(Expelled)
		case arg >= 0x80:
			q.EndTries(units)
			m.endTries(units)
		default:
			r.look()
		}
	}
}

// rest waits until all goroutines are blocked or done.
func (r *rwRig) rest() {
	synctest.Wait()
	r.m.step()
}

// compare asserts that the queue and the model are in the same state, and that the same claims have ended with the same
// outcomes.
func (r *rwRig) compare() {
	q, m, t := r.q, &r.m, r.t
	var line []string
	for _, w := range m.line {
		line = append(line, w.owner)
	}
	_, _, waiters := q.Waiters()
	require.Equal(t, line, waiters)
	require.Equal(t, m.inUse() == 0 && len(line) == 0, q.Idle())
	require.Equal(t, m.readers(), q.Readers())
	writer, writes := q.Writer()
	require.Equal(t, m.writer, writer)
	require.Equal(t, m.writes > 0, writes)
	for _, owner := range fuzzOwners {
		reads, writes, token := q.Holds(owner)
		require.Equal(t, m.reads[owner], reads, "%q reads", owner)
		require.Equal(t, m.writesOf(owner), writes, "%q writes", owner)
		want := m.token
		if writes == 0 {
			want = 0
			if reads > 0 {
				want = m.used
			}
		}
		require.Equal(t, want, token, "the token of %q", owner)
		if used, ok := q.ReadToken(owner); ok {
			require.Equal(t, m.used, used)
		}
	}
	r.mu.Lock()
	outcomes := maps.Clone(r.outcomes)
	r.mu.Unlock()
	require.Equal(t, m.outcomes, outcomes)
}

// drain empties the queue. It gives the queue everything that the queue asks for, so every wait must end.
func (r *rwRig) drain() {
	for r.m.inUse() > 0 || len(r.m.line) > 0 {
		r.q.Lose()
		r.m.lose()
		t := r.block(All, 1, r.m.now+1)
		r.q.Settle(t)
		r.m.settle(t)
		r.rest()
		r.compare()
	}
	require.True(r.t, r.q.Idle())
}

func runRWSteps(t *testing.T, steps []byte) {
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		for ; len(steps) >= 2; steps = steps[2:] {
			r.step(steps[0], steps[1])
			r.rest()
			if steps[0] < 0x80 { // not always, since compare calls Look, which counts lone readers with the others
				r.compare()
			}
		}
		r.drain()
	})
}

// maxSteps limits the length of an input: longer ones find nothing that shorter ones would not.
const maxSteps = 300

func FuzzRW(f *testing.F) {
	f.Add([]byte{13, 0xF4, 0, 0, 0, 1, 2, 2, 0, 3, 0, 0, 6, 0, 6, 0, 6, 1, 14, 0x10}) // readers, a writer between, a re-entry
	f.Add([]byte{13, 0xF8, 2, 0, 2, 1, 0, 2, 14, 0x3F, 9, 0, 9, 1, 6, 2, 15, 0})      // a turn
	f.Add([]byte{13, 0xF8, 2, 0, 0, 0, 0, 1, 2, 2, 14, 0x3F, 9, 0, 15, 4})            // a downgrade while another waits
	f.Add([]byte{0, 0, 2, 1, 17, 1, 13, 0xF8, 18, 7, 16, 0, 13, 0xF8})                // one leaves the line, trust ends, a loss
	f.Add([]byte{13, 0xF8, 3, 8, 3, 8, 1, 8, 9, 0, 9, 0, 6, 0})                       // a shared owner
	f.Add([]byte{0, 4, 0, 5, 19, 0x84, 19, 0xE0, 3, 4, 19, 0x88, 19, 0xFF, 0, 1})     // tries, expelled, shut
	f.Fuzz(func(t *testing.T, steps []byte) {
		runRWSteps(t, steps[:min(len(steps), 2*maxSteps)])
	})
}

// Every test run makes the checks of FuzzRW on random inputs.
func TestRandomStepsOfAnRWAgreeWithTheModel(t *testing.T) {
	seed := newSeed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range rounds(400) {
		steps := make([]byte, 2+rnd.IntN(200))
		for i := range steps {
			steps[i] = byte(rnd.Uint32())
		}
		// Most inputs begin with units that are trusted for long, or little would happen.
		steps[0], steps[1] = 13, 0xF0|byte(rnd.Uint32())
		runRWSteps(t, steps)
	}
}

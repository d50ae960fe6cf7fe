package sharedqueue

import (
	"sync/atomic"
	"time"
)

// Permits is the part of a semaphore that stays in the process: it hands out the units that the session has. Permits have no
// owner: any goroutine may give them back. As with [RW], methods report changed when the engine must call Look.
type Permits struct {
	queue[struct{}]

	limit atomic.Int64 // the most permits that are handed out; written under mu

	// Guarded by mu.

	inUse    int
	came     bool          // a claim was admitted since the latest Rest
	life     uint64        // how often Lose was called
	placed   bool          // the first in line waits at the server
	exited   time.Duration // when an Exit last found a claim in line
	pace     time.Duration // the longest recent wait of a first in line for an Exit
	paceEnds time.Duration // until when pace counts
	wanted   notices[any]  // the channels of Wanted, by user
}

// A PermitWaiter is a claim of permits in line.
type PermitWaiter = Waiter[struct{}]

// NewPermits makes a queue for a session that has no units. now is the clock to which Terms.Until refers.
func NewPermits(now func() time.Duration) *Permits {
	p := &Permits{}
	p.now = now
	p.limit.Store(All)
	p.seen.limit = All
	return p
}

// Limit sets how many permits all sessions together may use; this session alone hands out no more either. A claim for more
// permits than the limit waits until this session has no permit in use.
func (p *Permits) Limit(permits int) (changed bool) {
	if p.limit.Load() == int64(permits) {
		return false
	}
	p.mu.Lock()
	p.limit.Store(int64(permits))
	p.admitLocked()
	return p.unlock(0)
}

// Try takes n permits, at least one, if they need no wait and no claim is in line. The outcome is [Admitted], [Busy] or, if the
// queue is shut, [Expelled].
func (p *Permits) Try(n int) (o Outcome, changed bool) {
	p.mu.Lock()
	o = p.claimLocked(nil, n)
	return o, p.unlock(o)
}

// Enter takes n permits, at least one, or, if the caller has to wait for them, a place in line. If the outcome is [Waiting],
// the caller calls Wait. The other outcomes are those of Try, but [Busy] only in mode [Once]. Other modes have no effect. life
// is the value of [Permits.Life] when the permits were taken: once Life has changed, they are lost.
func (p *Permits) Enter(n int, mode Mode) (o Outcome, w *PermitWaiter, life uint64, changed bool) {
	return p.EnterFor(nil, n, mode, 0)
}

// EnterFor is Enter with two more parameters. call is any value: the report of the admission has it ([Change]). most is how
// many claims may be in line, or 0 for any number: if the claim would have to wait and the line has that many, the outcome is
// [Full].
func (p *Permits) EnterFor(call any, n int, mode Mode, most int) (o Outcome, w *PermitWaiter, life uint64, changed bool) {
	p.mu.Lock()
	o = p.claimLocked(call, n)
	switch {
	case o != Busy || mode&Once != 0 && (p.line.Len > 0 || !p.withinLocked(n)):
	case most > 0 && p.line.Len >= most:
		o = Full
	default:
		head := p.line.add(call, struct{}{}, n, mode&Once)
		p.headLocked(head)
		w, o = (*PermitWaiter)(head), Waiting
	}
	life = p.life
	return o, w, life, p.unlock(o)
}

// Wait waits as [RW.Wait] does. life is what [Permits.Life] was when w was admitted.
func (p *Permits) Wait(w *PermitWaiter, done <-chan struct{}, timeout <-chan time.Time) (o Outcome, life uint64, changed bool) {
	why := w.await(done, timeout)
	p.mu.Lock()
	first := p.line.First
	if o, life = p.endWaitLocked(w, why); o == why {
		if p.line.First != first {
			p.headLocked(p.line.First)
		}
		p.admitLocked()
	}
	return o, life, p.unlock(o)
}

// headLocked notes the time if w, which may be nil, has just become the first in line. p.mu is held.
func (p *Permits) headLocked(w *node[struct{}]) {
	if w != nil && w == p.line.First {
		p.line.since = p.now()
	}
}

// Life returns how often all permits were lost.
func (p *Permits) Life() uint64 {
	p.mu.Lock()
	life := p.life
	p.unlock(0)
	return life
}

// Exit gives n permits back. ok is false, and nothing changes, if fewer than n are in use.
func (p *Permits) Exit(n int) (ok, changed bool) {
	p.mu.Lock()
	if ok = n <= p.inUse; ok {
		p.inUse -= n
		p.changedLocked(0, nil, n)
		if p.inUse == 0 {
			p.wanted.forgetAll()
		}
		p.paceLocked()
		p.admitLocked()
	}
	return ok, p.unlock(0)
}

// paceLocked notes how long the first in line has waited for the Exit that comes now. p.mu is held.
func (p *Permits) paceLocked() {
	if p.line.Len == 0 {
		return
	}
	now := p.now()
	if waited := now - max(p.line.since, p.exited); waited >= p.pace || now > p.paceEnds {
		p.pace, p.paceEnds = waited, now+4*waited
	}
	p.exited = now
}

// claimLocked takes n permits if that needs no wait, and returns Busy otherwise. p.mu is held.
func (p *Permits) claimLocked(call any, n int) Outcome {
	switch {
	case p.shut:
		return Expelled
	case p.line.Len > 0 || !p.fitsLocked(n):
		return Busy
	}
	p.takeLocked(call, n)
	return Admitted
}

// fitsLocked reports whether n more permits can be handed out. p.mu is held.
func (p *Permits) fitsLocked(n int) bool {
	total := p.inUse + n
	return total <= p.units && p.withinLocked(n) && (total <= p.keepAtMost || !p.overLocked()) && p.trusted()
}

// withinLocked reports whether n more permits are within the limit. A claim for more than the limit is let in if no permit is
// in use, and then is alone. p.mu is held.
func (p *Permits) withinLocked(n int) bool {
	return p.inUse == 0 || p.inUse+n <= int(p.limit.Load())
}

// takeLocked hands out n permits. p.mu is held.
func (p *Permits) takeLocked(call any, n int) {
	p.inUse += n
	p.changedLocked(Admitted, call, n)
	p.came = true
	if p.inUse > p.keepAtMost {
		p.countAdmissionLocked()
	}
}

// admitLocked admits waiters from the head of the line as long as they fit. p.mu is held.
func (p *Permits) admitLocked() {
	for w := p.line.First; w != nil && p.fitsLocked(w.Value().n); w = p.line.First {
		r := w.Value()
		p.takeLocked(r.call, r.n)
		r.life = p.life
		p.line.end(w, Admitted)
		p.headLocked(p.line.First)
	}
}

// Settle replaces the units that the session has, and ends what Ask began. The claims in line are admitted, in order, as they
// fit. The units must not be fewer than those in use.
func (p *Permits) Settle(t Terms) {
	p.mu.Lock()
	if t.Units < p.inUse {
		p.mu.Unlock()
		panic("sharedqueue: bug: Settle with fewer units than are in use")
	}
	p.settleLocked(t.Units, t.Until)
	p.placed = false
	p.admitLocked()
	p.unlock(0)
}

// Trust sets when the trust in the session's units ends.
func (p *Permits) Trust(until time.Duration) {
	p.mu.Lock()
	p.until.Store(int64(until))
	p.admitLocked()
	p.unlock(0)
}

// Ask says that another session waits, or tries. Permits still hands out up to keepAtMost units. More units than that are
// handed out only in a turn, which ends after the given number of admissions, or at turnEnd; after the turn they go back to the
// server as they become free. A further Ask changes keepAtMost only. The next Settle or Unask ends what Ask began.
func (p *Permits) Ask(keepAtMost, admissions int, turnEnd time.Duration) {
	p.mu.Lock()
	p.askLocked(keepAtMost, admissions, turnEnd)
	p.admitLocked() // keepAtMost may be higher than before
	p.unlock(0)
}

// Unask says that no other session waits any more.
func (p *Permits) Unask() {
	p.mu.Lock()
	p.unaskLocked()
	p.admitLocked()
	p.unlock(0)
}

// Keep lowers the session's units to the given number or, if more are in use, to the number in use. It returns how many are
// left.
func (p *Permits) Keep(units int) (kept int) {
	p.mu.Lock()
	p.units = min(p.units, max(units, p.inUse))
	kept = p.units
	p.unlock(0)
	return kept
}

// Lose takes the units and all permits in use away, and returns how many were in use. The claims in line stay there. The
// lost permits no longer count as in use, so their users must not call Exit for them.
func (p *Permits) Lose() (inUse int) {
	p.mu.Lock()
	inUse = p.inUse
	p.inUse, p.units = 0, 0
	p.wanted.forgetAll()
	p.life++
	p.unlock(0)
	return inUse
}

// EndTries ends, with [Busy], each claim in mode [Once] that would bring the permits in use to the number need or higher.
func (p *Permits) EndTries(need int) {
	p.mu.Lock()
	for w := range p.line.All() {
		if r := w.Value(); r.mode&Once != 0 && p.inUse+r.n >= need {
			p.line.end(w, Busy)
			p.headLocked(p.line.First)
		}
	}
	p.admitLocked()
	p.unlock(0)
}

// FailTries ends all claims in mode [Once], with [Unanswered].
func (p *Permits) FailTries() {
	p.mu.Lock()
	first := p.line.First
	p.line.failTries()
	if p.line.First != first {
		p.headLocked(p.line.First)
	}
	p.admitLocked()
	p.unlock(0)
}

// Shut sends away the claims in line, and all later ones, with [Expelled]. Permits in use can still be given back.
func (p *Permits) Shut() {
	p.mu.Lock()
	p.shut = true
	p.line.endAll(Expelled)
	p.unlock(0)
}

// Expel sends away the claims in line, with [Expelled]. Later claims are not affected.
func (p *Permits) Expel() {
	p.mu.Lock()
	p.placed = false
	p.line.endAll(Expelled)
	p.unlock(0)
}

// Rest reports whether no permit is in use, no claim is in line, and no claim was admitted since the previous Rest.
func (p *Permits) Rest() bool {
	p.mu.Lock()
	rest := p.inUse == 0 && p.line.Len == 0 && !p.came
	p.came = false
	p.unlock(0)
	return rest
}

// InUse returns the number of permits in use. Unlike Look, it does not remember the state.
func (p *Permits) InUse() int {
	p.mu.Lock()
	inUse := p.inUse
	p.unlock(0)
	return inUse
}

// Look returns the state, and remembers it: later calls report changed when the engine should look again.
func (p *Permits) Look() State {
	p.mu.Lock()
	p.seen = p.needLocked()
	s := State{
		Units: p.units, InUse: p.inUse, Waiting: p.line.Len,
		Asked: p.contended, TurnOver: p.overLocked(), Limit: int(p.limit.Load()), Since: p.line.since, Pace: p.pace,
	}
	if w := p.line.First; w != nil {
		r := w.Value()
		s.Head, s.Want, s.Once = r.n, p.inUse+p.line.permits, r.mode&Once != 0
	}
	p.unlock(0)
	return s
}

// Idle reports whether no permit is in use, and no claim in line.
func (p *Permits) Idle() bool {
	p.mu.Lock()
	idle := p.inUse == 0 && p.line.Len == 0
	p.unlock(0)
	return idle
}

// Usage reports whether permits are in use, and returns the number of claims in line. Unlike Look, it does not remember the
// state.
func (p *Permits) Usage() (inside bool, waiting int) {
	p.mu.Lock()
	inside, waiting = p.inUse > 0, p.line.Len
	p.unlock(0)
	return inside, waiting
}

// needLocked returns what the engine should act on. p.mu is held.
func (p *Permits) needLocked() need {
	limit := int(p.limit.Load())
	d := need{keep: min(p.units, max(p.inUse, limit)), limit: limit}
	w := p.line.First
	if w != nil && (p.inUse+w.Value().n > p.units || p.overLocked()) {
		d.want, d.least = p.inUse+p.line.permits, p.inUse+w.Value().n
	}
	switch {
	case w == nil && p.inUse == 0: // idle permits go back immediately
		d.keep = 0
	case p.contended && (w == nil || p.overLocked()):
		d.keep = p.inUse
	}
	return d
}

// unlock ends a critical section as [RW.unlock] does.
func (p *Permits) unlock(o Outcome) (changed bool) {
	if p.wanted.open > 0 {
		p.noticeLocked()
	}
	if invariants {
		p.check()
	}
	changed = p.needLocked() != p.seen || (o == Busy || o == Waiting) && p.units > 0 && !p.trusted()
	p.mu.Unlock()
	return changed
}

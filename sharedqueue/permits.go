package sharedqueue

import (
	"sync/atomic"
	"time"
)

// Permits is the part of a semaphore that stays in the process: it hands out the units that the session has. Permits have
// no owner: any goroutine may give them back.
// The result look of a method means what it means for an [RW].
type Permits struct {
	terms[struct{}]

	limit atomic.Int64 // the most permits that are handed out; written under mu

	// Guarded by mu.

	inUse int
	came  bool   // a claim was admitted since the latest Rest
	life  uint64 // how often Lose was called
}

// A PermitWaiter is a claim of permits in line.
type PermitWaiter = Waiter[struct{}]

// NewPermits makes a queue for a session that has no units. now is the clock of Terms.
func NewPermits(now func() time.Duration) *Permits {
	q := &Permits{}
	q.now = now
	q.limit.Store(All)
	q.seen.limit = All
	return q
}

// Limit sets the most permits that all sessions may use together, so that this session hands out no more either. Claims
// for more than that wait until no permit is in use.
func (q *Permits) Limit(permits int) (look bool) {
	if q.limit.Load() == int64(permits) {
		return false
	}
	q.mu.Lock()
	q.limit.Store(int64(permits))
	q.admitLocked()
	return q.unlock(0)
}

// Try takes n permits, at least one, if that needs no wait and overtakes no claim in line. The outcome is [Admitted],
// [Busy] or, of a queue that is shut, [Expelled].
func (q *Permits) Try(n int) (o Outcome, look bool) {
	q.mu.Lock()
	o = q.claimLocked(nil, n)
	return o, q.unlock(o)
}

// Enter takes n permits, at least one, or, if that needs a wait, a place in line. With the outcome [Waiting] the caller
// goes on with Wait; the other outcomes are those of Try. It is [Busy] only in mode [Once], which is the only mode that
// matters. life is what [Permits.Life] was when the permits were taken: they are lost when it has changed.
func (q *Permits) Enter(n int, mode Mode) (o Outcome, w *PermitWaiter, life uint64, look bool) {
	return q.EnterFor(nil, n, mode)
}

// EnterFor is Enter for a call, which the report of the admission has ([Change]).
func (q *Permits) EnterFor(call any, n int, mode Mode) (o Outcome, w *PermitWaiter, life uint64, look bool) {
	q.mu.Lock()
	o = q.claimLocked(call, n)
	if o == Busy && (mode&Once == 0 || q.line.Len == 0 && q.withinLocked(n)) {
		head := q.line.add(call, struct{}{}, n, mode&Once)
		q.headLocked(head)
		w, o = (*PermitWaiter)(head), Waiting
	}
	life = q.life
	return o, w, life, q.unlock(o)
}

// Wait waits as [RW.Wait] does. life is that of Enter.
func (q *Permits) Wait(w *PermitWaiter, done <-chan struct{}, timeout <-chan time.Time) (o Outcome, life uint64, look bool) {
	why := w.await(done, timeout)
	q.mu.Lock()
	first := q.line.First
	if o, life = q.endWaitLocked(w, why); o == why {
		if q.line.First != first {
			q.headLocked(q.line.First)
		}
		q.admitLocked()
	}
	return o, life, q.unlock(o)
}

// headLocked notes when w became the first in line, if it is. q.mu is held.
func (q *Permits) headLocked(w *node[struct{}]) {
	if w != nil && w == q.line.First {
		q.line.since = q.now()
	}
}

// Life returns how often all permits were lost.
func (q *Permits) Life() uint64 {
	q.mu.Lock()
	life := q.life
	q.unlock(0)
	return life
}

// Exit gives n permits back. ok is false, and nothing changes, if fewer are in use.
func (q *Permits) Exit(n int) (ok, look bool) {
	q.mu.Lock()
	if ok = n <= q.inUse; ok {
		q.inUse -= n
		q.changedLocked(0, nil, n)
		q.admitLocked()
	}
	return ok, q.unlock(0)
}

// claimLocked takes n permits if that needs no wait, and returns Busy otherwise. q.mu is held.
func (q *Permits) claimLocked(call any, n int) Outcome {
	switch {
	case q.shut:
		return Expelled
	case q.line.Len > 0 || !q.fitsLocked(n):
		return Busy
	}
	q.takeLocked(call, n)
	return Admitted
}

// fitsLocked reports whether n more permits can be handed out. q.mu is held.
func (q *Permits) fitsLocked(n int) bool {
	total := q.inUse + n
	return total <= q.units && q.withinLocked(n) && (total <= q.may || !q.overLocked()) && q.trusted()
}

// withinLocked reports whether n more permits are within the limit. A claim for more than that is alone. q.mu is held.
func (q *Permits) withinLocked(n int) bool {
	return q.inUse == 0 || q.inUse+n <= int(q.limit.Load())
}

// takeLocked hands out n permits. q.mu is held.
func (q *Permits) takeLocked(call any, n int) {
	q.inUse += n
	q.changedLocked(Admitted, call, n)
	q.came = true
	if q.inUse > q.may {
		q.passLocked()
	}
}

// admitLocked admits waiters from the head of the line as long as they fit. q.mu is held.
func (q *Permits) admitLocked() {
	for w := q.line.First; w != nil && q.fitsLocked(w.Value().n); w = q.line.First {
		r := w.Value()
		q.takeLocked(r.call, r.n)
		r.life = q.life
		q.line.end(w, Admitted)
		q.headLocked(q.line.First)
	}
}

// Settle replaces what the session has, and ends what Ask began. Those in line are admitted, in order, as they fit. The
// units must not be fewer than those in use.
func (q *Permits) Settle(t Terms) {
	q.mu.Lock()
	if t.Units < q.inUse {
		q.mu.Unlock()
		panic("sharedqueue: bug: Settle with fewer units than are in use")
	}
	q.settleLocked(t.Units, t.Until)
	q.admitLocked()
	q.unlock(0)
}

// Trust prolongs the trust in the units that the session has.
func (q *Permits) Trust(until time.Duration) {
	q.mu.Lock()
	q.until.Store(int64(until))
	q.admitLocked()
	q.unlock(0)
}

// Ask says that another session waits. Up to may units go on being handed out. What is above is handed out for a turn of
// the given number of admissions, until turnEnd; then it goes back as it falls free. Asking again changes may only. The
// next Settle, or Unask, ends all this.
func (q *Permits) Ask(may, passes int, turnEnd time.Duration) {
	q.mu.Lock()
	q.askLocked(may, passes, turnEnd)
	q.admitLocked() // may can be more than before
	q.unlock(0)
}

// Unask says that no other session waits any more.
func (q *Permits) Unask() {
	q.mu.Lock()
	q.unaskLocked()
	q.admitLocked()
	q.unlock(0)
}

// Keep lowers the units to the given number or, if more are in use, to those. It returns what is left.
func (q *Permits) Keep(units int) (kept int) {
	q.mu.Lock()
	q.units = min(q.units, max(units, q.inUse))
	kept = q.units
	q.unlock(0)
	return kept
}

// Lose takes the units and all permits in use away, and returns how many were in use. Those in line stay there. The
// lost permits no longer count as in use, so their users must not call Exit for them.
func (q *Permits) Lose() (inUse int) {
	q.mu.Lock()
	inUse = q.inUse
	q.inUse, q.units = 0, 0
	q.life++
	q.unlock(0)
	return inUse
}

// EndTries ends the claims in mode [Once] with which the session would need as many units as this or more in total, with
// [Busy].
func (q *Permits) EndTries(need int) {
	q.mu.Lock()
	for w := range q.line.All() {
		if r := w.Value(); r.mode&Once != 0 && q.inUse+r.n >= need {
			q.line.end(w, Busy)
			q.headLocked(q.line.First)
		}
	}
	q.admitLocked()
	q.unlock(0)
}

// Shut sends away those in line, and all later claims. Exits go on.
func (q *Permits) Shut() {
	q.mu.Lock()
	q.shut = true
	q.line.endAll(Expelled)
	q.unlock(0)
}

// Expel sends away those in line. Later claims are not affected.
func (q *Permits) Expel() {
	q.mu.Lock()
	q.line.endAll(Expelled)
	q.unlock(0)
}

// Rest reports whether no permit is in use and no claim in line, and none was since the previous Rest.
func (q *Permits) Rest() bool {
	q.mu.Lock()
	rest := q.inUse == 0 && q.line.Len == 0 && !q.came
	q.came = false
	q.unlock(0)
	return rest
}

// InUse returns the number of permits in use. It takes no note, as Look does.
func (q *Permits) InUse() int {
	q.mu.Lock()
	inUse := q.inUse
	q.unlock(0)
	return inUse
}

// Look returns the state, and takes note of it: later calls report look when the engine should look again.
func (q *Permits) Look() State {
	q.mu.Lock()
	q.seen = q.demandLocked()
	s := State{
		Units: q.units, InUse: q.inUse, Waiting: q.line.Len,
		Asked: q.asked, TurnOver: q.overLocked(), Limit: int(q.limit.Load()), Since: q.line.since,
	}
	if w := q.line.First; w != nil {
		r := w.Value()
		s.Head, s.Want, s.Once = r.n, q.inUse+q.line.permits, r.mode&Once != 0
	}
	q.unlock(0)
	return s
}

// Idle reports whether no permit is in use, and no claim in line.
func (q *Permits) Idle() bool {
	q.mu.Lock()
	idle := q.inUse == 0 && q.line.Len == 0
	q.unlock(0)
	return idle
}

// Usage reports whether permits are in use, and returns the number of claims in line. It takes no note, as Look does.
func (q *Permits) Usage() (inside bool, waiting int) {
	q.mu.Lock()
	inside, waiting = q.inUse > 0, q.line.Len
	q.unlock(0)
	return inside, waiting
}

// demandLocked returns what the engine should act on. q.mu is held.
func (q *Permits) demandLocked() demand {
	limit := int(q.limit.Load())
	d := demand{keep: min(q.units, max(q.inUse, limit)), limit: limit}
	w := q.line.First
	if w != nil && (q.inUse+w.Value().n > q.units || q.overLocked()) {
		d.want, d.least = q.inUse+q.line.permits, q.inUse+w.Value().n
	}
	switch {
	case w == nil && q.inUse == 0: // idle permits go back at once
		d.keep = 0
	case q.asked && (w == nil || q.overLocked()):
		d.keep = q.inUse
	}
	return d
}

// unlock ends a critical section as [RW.unlock] does.
func (q *Permits) unlock(o Outcome) (look bool) {
	if invariants {
		q.check()
	}
	look = q.demandLocked() != q.seen || (o == Busy || o == Waiting) && q.units > 0 && !q.trusted()
	q.mu.Unlock()
	return look
}

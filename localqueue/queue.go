package localqueue

import (
	"math"
	"sync"
	"time"
)

// MaxHolds is the highest hold count, the one at which java.util.concurrent.locks.ReentrantLock gives up too.
const MaxHolds = math.MaxInt32

type state uint8

const (
	free    state = iota // nobody has the baton, and nobody waits for it
	busy                 // one goroutine is at work with it: a claimant, or an operation of the holder
	offered              // nobody has it; the first in line was woken to take it, see Compete
	settled              // its holder has it, and nothing is under way
)

// A Queue hands one baton from goroutine to goroutine in order of arrival. K names the owners. The zero value is
// ready for use. A Queue must not be copied, and one that had waiters in a testing/synctest bubble must stay there.
//
// Whoever is told [Claimed], [Reentered], or true by [Queue.Begin], has the baton busy and owes it exactly one end:
// Settle, Leave, or Pass if that answers true. These three do not ask who is calling.
type Queue[K comparable] struct {
	// mu is held for a few instructions at a time. It is a leaf: no other lock is taken under it.
	mu sync.Mutex

	// The baton. Guarded by mu.

	state state
	owner K   // zero while free or offered
	holds int // zero while free or offered, and while busy for a claimant
	// granted is the node by which a busy baton came to the goroutine that now has it. The node can serve again
	// once that goroutine has woken, and it has when it takes its next step with the baton. Waiting for that step
	// saves a critical section per hand-over.
	granted *waiter[K]

	shut bool // nobody waits any more. Guarded by mu.

	// Those who wait. Guarded by mu.

	line list[K]          // for the baton
	ops  list[K]          // in Begin, for the operation under way on their own hold
	kin  map[K]*waiter[K] // shared owner -> the first of its waiters in line, see addKinLocked

	// Nodes for later waiters, linked by next. Guarded by mu.

	spare  *waiter[K]
	spares int
}

// unlock ends a critical section.
func (q *Queue[K]) unlock() {
	if invariants {
		q.check()
	}
	q.mu.Unlock()
}

// Claim takes the baton for owner, and waits in line for it if it is out.
//
// It answers [Claimed] when the baton is the caller's, and [Reentered] when owner holds it already; that does not
// wait, unless another goroutine is at work for the same owner. Either way the baton is now busy on the caller's
// behalf.
//
// A wait ends early when done is closed or timeout delivers; nil channels never do. A done that is closed already
// gives [Cancelled] even for a claim that need not wait. If the baton was granted in the instant the wait ended,
// the grant has won: Claim answers Claimed, or Reentered, and the caller decides what to do with it.
//
// Set shared if other goroutines may act for the same owner at the same time. Then the owner's waiters are let in as
// soon as one of them has settled.
func (q *Queue[K]) Claim(owner K, shared bool, done <-chan struct{}, timeout <-chan time.Time) Outcome {
	w, got := q.stand(owner, shared, false, done)
	if w == nil {
		return got
	}
	return q.await(w, done, timeout)
}

// stand makes the baton busy for owner if it can be had now, and otherwise gives it a place in line.
func (q *Queue[K]) stand(owner K, shared, competes bool, done <-chan struct{}) (*waiter[K], Outcome) {
	select {
	case <-done:
		return nil, Cancelled
	default:
	}
	q.mu.Lock()
	defer q.unlock()
	if competes {
		q.overtakeLocked()
	}
	got := q.claimLocked(owner)
	switch {
	case got != Busy:
		return nil, got
	case q.shut:
		return nil, Cancelled
	}
	w := q.enqueueLocked(owner, shared)
	if competes {
		w.rank = competing
	}
	return w, Busy
}

// TryClaim is Claim without the wait: it answers [Busy] instead. It never overtakes anybody, as the baton is free
// only when nobody waits.
func (q *Queue[K]) TryClaim(owner K) Outcome {
	q.mu.Lock()
	got := q.claimLocked(owner)
	q.unlock()
	return got
}

// claimLocked makes the baton busy for owner if it can be had now. q.mu is held.
func (q *Queue[K]) claimLocked(owner K) Outcome {
	switch {
	case q.state == free:
		q.state, q.owner = busy, owner
		return Claimed
	case q.state == settled && q.owner == owner:
		q.state = busy
		return Reentered
	default:
		return Busy
	}
}

// await parks until w gets its turn or wants to leave. It is the only place where claims wait.
func (q *Queue[K]) await(w *waiter[K], done <-chan struct{}, timeout <-chan time.Time) Outcome {
	if done == nil && timeout == nil {
		<-w.turn // what the select below would do, in three quarters of the time and with one sudog less
		return w.outcome()
	}
	select {
	case <-w.turn:
		return w.outcome()
	case <-done:
		return q.quit(w, Cancelled)
	case <-timeout:
		return q.quit(w, TimedOut)
	}
}

// quit takes w out of line, unless it was granted the baton, or expelled, first.
func (q *Queue[K]) quit(w *waiter[K], why Outcome) Outcome {
	q.mu.Lock()
	if q.offeredLocked(w) {
		q.acceptLocked(w)
	}
	queued := w.queued
	if queued && fault != faultGhost {
		q.dequeueLocked(w)
		q.recycleLocked(w)
	}
	q.unlock()
	if queued || fault == faultLostGrant {
		return why
	}
	<-w.turn // sent where w was unlinked, so this does not block; and the node must not keep its turn
	return w.outcome()
}

// Begin starts an operation on owner's hold: the baton becomes busy on the caller's behalf, and holds is the hold
// count. While another goroutine has an operation under way for the same owner, Begin waits for its end,
// uninterruptibly, and ahead of those who want to re-enter: it may be an unlock that they all wait for.
// ok is false when owner holds nothing, or does no more once that other operation has ended.
func (q *Queue[K]) Begin(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if q.owner != owner || q.holds == 0 {
		q.unlock()
		return 0, false
	}
	if q.state == settled {
		q.state = busy
		holds = q.holds
		q.unlock()
		return holds, true
	}
	w := q.nodeLocked(owner)
	q.ops.push(w)
	q.unlock()
	<-w.turn
	return int(w.holds), w.holds > 0
}

// Settle ends a claim or an operation: the owner now has so many holds, from 1 to [MaxHolds], and nothing is under
// way. If other goroutines of the same owner wait, one of them gets the baton at once, for its operation or for
// re-entry.
func (q *Queue[K]) Settle(holds int) {
	if holds < 1 || holds > MaxHolds {
		panic("localqueue: bug: Settle with an impossible hold count")
	}
	q.lockBusy("Settle")
	q.state, q.holds = settled, holds
	q.resumeLocked()
	q.unlock()
}

// Pass ends a claim or an operation by giving the baton to the longest waiter, as a claimant without holds. If
// nobody waits it answers false and changes nothing: the caller still has the baton, busy.
func (q *Queue[K]) Pass() bool {
	q.lockBusy("Pass")
	waited := q.line.first != nil
	if waited {
		q.handOverLocked()
	}
	q.unlock()
	return waited
}

// Leave ends a claim or an operation by giving the baton to the longest waiter, or freeing it if nobody waits.
func (q *Queue[K]) Leave() {
	q.lockBusy("Leave")
	q.handOverLocked()
	q.unlock()
}

// Evict takes the baton from a holder whose hold was lost behind its back, and gives it to the longest waiter or
// frees it. It answers false, changing nothing, if owner is not the holder or is at work with the baton: that
// operation will find out by itself.
func (q *Queue[K]) Evict(owner K) bool {
	q.mu.Lock()
	evicted := q.owner == owner && (q.state == settled || q.state == busy && fault == faultEvictBusy)
	if evicted {
		q.handOverLocked()
	}
	q.unlock()
	return evicted
}

// lockBusy takes q.mu for the goroutine that has the busy baton, and collects the node that it was granted by.
func (q *Queue[K]) lockBusy(verb string) {
	q.mu.Lock()
	if q.state != busy {
		q.mu.Unlock()
		panic("localqueue: bug: " + verb + " without a busy baton")
	}
	if w := q.granted; w != nil {
		q.granted = nil
		q.recycleLocked(w)
	}
}

// resumeLocked gives a baton that has just been settled to the next goroutine of the same owner, if one waits.
// q.mu is held.
func (q *Queue[K]) resumeLocked() {
	if w := q.ops.first; w != nil {
		q.ops.remove(w)
		q.grantLocked(w, q.holds)
		return
	}
	if len(q.kin) == 0 || fault == faultDeafKin {
		return
	}
	if w := q.kin[q.owner]; w != nil {
		q.dequeueLocked(w)
		q.grantLocked(w, q.holds)
	}
}

// handOverLocked ends the present hold or claim and gives the baton to the longest waiter, or frees it. Operations
// that wait for the hold are told that it is gone. q.mu is held.
func (q *Queue[K]) handOverLocked() {
	for w := q.ops.first; w != nil && fault != faultDeafOps; w = q.ops.first {
		q.ops.remove(w)
		w.wake(0) // the node is left to the collector: nobody knows when its goroutine wakes
	}
	w := q.line.first
	if w == nil {
		var nobody K
		q.state, q.owner, q.holds = free, nobody, 0
		return
	}
	if fault == faultLIFO {
		w = q.line.last
	}
	if w.rank == competing && w.overtaken < MaxOvertaken {
		q.offerLocked(w)
		return
	}
	q.dequeueLocked(w)
	q.grantLocked(w, 0)
}

// grantLocked makes the baton busy on behalf of w, which was taken off its list, and wakes it. q.mu is held.
func (q *Queue[K]) grantLocked(w *waiter[K], holds int) {
	q.state, q.owner, q.holds, q.granted = busy, w.owner, holds, w
	w.wake(holds)
	q.misgrantLocked(w)
}

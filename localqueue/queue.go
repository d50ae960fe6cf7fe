package localqueue

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/internal/waitline"
)

// MaxHolds is the highest hold count. java.util.concurrent.locks.ReentrantLock has the same limit.
const MaxHolds = math.MaxInt32

type state uint8

const (
	free    state = iota // no owner has the baton, and no goroutine waits for it
	busy                 // one goroutine works with it: a claimant, or an operation of the holder
	offered              // no owner has it; the first in line was woken to take it, see barge.go
	settled              // its holder has it, and no operation is under way
)

// A Queue passes one baton from goroutine to goroutine in order of arrival. K identifies the owners. The zero value is ready
// for use. A Queue must not be copied. A Queue that had waiters in a testing/synctest bubble must not be used outside of the
// bubble.
//
// A goroutine that gets [Claimed] or [Reentered], or true from [Queue.Begin], has the baton busy and must end that exactly
// once: with Settle, with Leave, or with Pass if that returns true. These three methods do not check which goroutine calls
// them.
type Queue[K comparable] struct {
	// mu is held for a few instructions at a time. It is a leaf: no other lock is taken under it.
	mu sync.Mutex

	// The baton. Guarded by mu.

	state    state
	arriving bool // busy by a Claim or Reserve that has neither settled nor given up: the owner still counts as queued
	owner    K    // zero while free or offered
	holds    int  // zero while free or offered, and while busy for a claimant
	// granted is the node by which a busy baton came to the goroutine that now has it. The node can be used again once that
	// goroutine has woken. When that goroutine takes its next step with the baton, it has woken, and recycling the node in that
	// step saves a critical section per hand-over.
	granted *node[K]

	shut bool // no goroutine may begin to wait. Guarded by mu.

	length atomic.Int32 // line.Len, to be read without mu. Written with mu held.

	// The waiters. Guarded by mu.

	line     waitline.Line[waiter[K]]   // those that wait for the baton
	ops      waitline.Line[waiter[K]]   // those that wait in Begin for the end of an operation on their owner's hold
	siblings map[K]*node[K]             // shared owner -> the first of its waiters in line, see addSiblingLocked
	spares   waitline.Spares[waiter[K]] // nodes for later waiters
}

// unlock ends a critical section.
func (q *Queue[K]) unlock() {
	if invariants {
		q.check()
	}
	q.mu.Unlock()
}

// A Mode says how a claim waits. Modes can be combined with |.
type Mode uint8

const (
	// Shared says that several goroutines may act for the owner at the same time. As soon as one of them has settled,
	// those that wait for the same owner are let in.
	Shared Mode = 1 << iota
	// Barging gives up the strict order, like the unfair mode of java.util.concurrent. The claim takes a baton that is
	// offered to another barging waiter that has not woken yet, and can be overtaken in the same way, [MaxOvertaken]
	// times. A running goroutine gets the baton sooner than one that must be woken first.
	Barging
	// First puts the claim before all other waiters, for an owner that the goroutine with the baton may itself depend on.
	// That goroutine can let the claim go first with [Queue.GiveWay].
	First

	// Fair is the mode of a claim that waits in order of arrival and is never overtaken.
	Fair Mode = 0
)

// Claim takes the baton for owner and waits in line for it if necessary. The wait ends early when done is closed ([Cancelled])
// or timeout delivers ([TimedOut]); either may be nil. If done is closed already, Claim returns Cancelled even if the baton is
// free. A grant wins over a cancellation or timeout that comes at the same moment.
//
// With [Claimed] and [Reentered] the caller has the baton, busy.
func (q *Queue[K]) Claim(owner K, mode Mode, done <-chan struct{}, timeout <-chan time.Time) Outcome {
	select {
	case <-done:
		return Cancelled
	default:
	}
	return q.Wait(q.Reserve(owner, mode), done, timeout)
}

// TryClaim is [Queue.Claim] without the wait: it returns [Busy] instead. In fair mode it overtakes no waiter, because
// the baton is free only when no goroutine waits.
func (q *Queue[K]) TryClaim(owner K, mode Mode) Outcome {
	q.mu.Lock()
	if mode&Barging != 0 {
		q.overtakeLocked()
	}
	got := q.claimLocked(owner)
	q.unlock()
	return got
}

// A Place is the result of [Queue.Reserve]: a place in line, or the baton itself. Each place in line needs exactly one
// [Queue.Wait]. Until then the baton may belong to the place.
type Place[K comparable] struct {
	w   *node[K] // nil if the claim did not have to wait
	got Outcome  // the result if w is nil, else Busy
}

// Outcome returns [Busy] if the place is in line, and otherwise what Wait would return at once.
func (p Place[K]) Outcome() Outcome { return p.got }

// Reserve is the first half of [Queue.Claim]. It takes the baton for owner, or a place in line if the claim must wait for the
// baton. It never blocks. The second half is [Queue.Wait], which another goroutine may call.
func (q *Queue[K]) Reserve(owner K, mode Mode) Place[K] { return q.ReserveWithin(owner, mode, 0) }

// ReserveWithin is [Queue.Reserve] with a limit: most is how many claims may wait, as [Queue.Queued] counts them. If so many
// wait already, the claim does not, and the place's Wait returns [Full] immediately. A claim of the owner that has the baton
// now is let in together with that owner, and never gets Full. If most is 0, there is no limit.
func (q *Queue[K]) ReserveWithin(owner K, mode Mode, most int) (p Place[K]) {
	q.mu.Lock()
	if mode&Barging != 0 {
		q.overtakeLocked()
	} else if mode&First != 0 && q.state == offered {
		q.acceptLocked(q.line.First) // the waiter with the offer accepts it now, since it is about to lose the front of the line
	}
	p.got = q.claimLocked(owner)
	switch {
	case p.got == Claimed:
		q.arriving = true
	case p.got == Reentered:
	case q.shut:
		p.got = Cancelled
	case most > 0 && owner != q.owner && q.queuedLocked() >= most:
		p.got = Full
	default:
		p.w = q.enqueueLocked(owner, mode, mode&First != 0)
	}
	q.unlock()
	return p
}

// Wait is the second half of [Queue.Claim]: it waits for the turn of a place, until done is closed or timeout delivers.
func (q *Queue[K]) Wait(p Place[K], done <-chan struct{}, timeout <-chan time.Time) Outcome {
	w := p.w
	if w == nil {
		return p.got
	}
	for {
		why := waitline.Await(w, done, timeout, Cancelled, TimedOut)
		if why == 0 && w.Value().mode&Barging == 0 {
			return w.Value().outcome()
		}
		if got := q.endWait(w, why); got != Busy { // if Busy, another claim took the offer, and the wait goes on
			return got
		}
	}
}

// GiveWay lets an owner that waits with mode [First] go before the caller, which has claimed the baton and has no holds.
// If such an owner is at the front of the line, it gets the baton, and the caller goes to the front and waits as Claim does.
// Otherwise GiveWay returns [Busy] at once and the caller keeps the baton.
func (q *Queue[K]) GiveWay(owner K, mode Mode, done <-chan struct{}, timeout <-chan time.Time) Outcome {
	q.lockBusy("GiveWay")
	first := q.line.First
	if first == nil || first.Value().mode&First == 0 {
		q.unlock()
		return Busy
	}
	q.dequeueLocked(first)
	w := q.enqueueLocked(owner, mode, true)
	q.admitLocked(first, 0)
	q.unlock()
	return q.Wait(Place[K]{w: w}, done, timeout)
}

// claimLocked makes the baton busy for owner if that needs no wait. q.mu is held.
func (q *Queue[K]) claimLocked(owner K) Outcome {
	switch {
	case q.state == free:
		q.state, q.owner = busy, owner
		return Claimed
	case q.isSettledLocked(owner):
		q.state = busy
		return Reentered
	default:
		return Busy
	}
}

// endWait ends the wait of w. If why is 0, w was woken; if not, why is the reason for which w's goroutine stopped waiting.
// endWait returns why if w was still in line, and otherwise the outcome with which w was woken. It returns Busy, and the wait
// goes on, if w was woken for an offer that another claim took.
func (q *Queue[K]) endWait(w *node[K], why Outcome) Outcome {
	q.mu.Lock()
	defer q.unlock()
	if q.offeredLocked(w) {
		q.acceptLocked(w)
	}
	switch {
	case w.TakeTurn():
		return w.Value().outcome()
	case why == 0:
		return Busy
	}
	q.dequeueLocked(w)
	q.recycleLocked(w)
	return why
}

// Pass ends a claim or an operation of the caller by giving the baton to the longest waiter, which is then a claimant without
// holds. If no goroutine waits, Pass returns false. The caller then still has the baton, busy, and does not count as queued any
// more.
func (q *Queue[K]) Pass() bool {
	q.lockBusy("Pass")
	q.arriving = false
	waited := q.line.First != nil
	if waited {
		q.handOverLocked()
	}
	q.unlock()
	return waited
}

// Leave ends a claim or an operation of the caller by giving the baton to the longest waiter, or by freeing it if no
// goroutine waits.
func (q *Queue[K]) Leave() {
	q.lockBusy("Leave")
	q.handOverLocked()
	q.unlock()
}

// Evict takes the baton from owner, a holder whose hold is lost, and gives the baton to the longest waiter or frees it. Evict
// returns false, and changes nothing, if owner is not the holder, or if an operation of owner is under way: that operation
// finds the loss by itself.
func (q *Queue[K]) Evict(owner K) bool {
	q.mu.Lock()
	evicted := q.owner == owner && q.state == settled
	if evicted {
		q.handOverLocked()
	}
	q.unlock()
	return evicted
}

// Shut ends all waits for the baton, also those that would begin later, with [Cancelled]. A goroutine that has the baton
// keeps it, and claims that need no wait go on.
func (q *Queue[K]) Shut() {
	q.mu.Lock()
	q.shut = true
	if q.state == offered { // the waiter with the offer has the baton, since some goroutine must pass the baton on
		q.acceptLocked(q.line.First)
	}
	for w := q.line.First; w != nil; w = q.line.First {
		q.dequeueLocked(w)
		wake(w, expelled) // the node is left to the collector: the queue does not learn when its goroutine wakes
	}
	q.unlock()
}

// lockBusy locks q.mu for the goroutine that has the busy baton, and recycles the node that the baton came with.
func (q *Queue[K]) lockBusy(method string) {
	q.mu.Lock()
	if q.state != busy {
		q.mu.Unlock()
		panic("localqueue: bug: " + method + " without a busy baton")
	}
	if w := q.granted; w != nil {
		q.granted = nil
		q.recycleLocked(w)
	}
}

// handOverLocked ends the current hold or claim and gives the baton to the longest waiter, or frees it. Callers of Begin
// that wait for the hold are woken without it. q.mu is held.
func (q *Queue[K]) handOverLocked() {
	for w := q.ops.First; w != nil; w = q.ops.First {
		q.ops.Remove(w)
		wake(w, 0) // the node is left to the collector: the queue does not learn when its goroutine wakes
	}
	w := q.line.First
	if w == nil {
		var none K
		q.state, q.owner, q.holds, q.arriving = free, none, 0, false
		return
	}
	if v := w.Value(); v.mode&Barging != 0 && v.overtaken < MaxOvertaken {
		q.offerLocked(w)
		return
	}
	q.dequeueLocked(w)
	q.admitLocked(w, 0)
}

// admitLocked makes the baton busy for w, which was taken out of the line, and wakes w. q.mu is held.
func (q *Queue[K]) admitLocked(w *node[K], holds int) {
	q.arriving = true
	q.grantLocked(w, holds)
}

// grantLocked makes the baton busy for w, which was taken off its list, and wakes w. q.mu is held.
func (q *Queue[K]) grantLocked(w *node[K], holds int) {
	q.state, q.owner, q.holds, q.granted = busy, w.Value().owner, holds, w
	wake(w, holds)
}

// Reenter adds a hold to owner's settled hold, in one critical section. ok is false, and nothing changes, if owner is
// not the holder or has an operation under way (holds is then 0), or if it has [MaxHolds] holds already (holds is then
// MaxHolds).
func (q *Queue[K]) Reenter(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if q.isSettledLocked(owner) {
		if ok = q.holds < MaxHolds; ok {
			q.holds++
		}
		holds = q.holds
	}
	q.unlock()
	return holds, ok
}

// ExitOrBegin takes one of owner's holds, or begins an operation if owner has only one, in one critical section. If ok,
// holds is how many are left. With 0 left the last hold is still there, and the caller has the baton, busy, as after
// [Queue.Begin]. ok is false, and nothing changes, if owner is not the holder or has an operation under way.
func (q *Queue[K]) ExitOrBegin(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if ok = q.isSettledLocked(owner); ok {
		if q.holds > 1 {
			q.holds--
			holds = q.holds
		} else {
			q.state = busy
		}
	}
	q.unlock()
	return holds, ok
}

// Begin starts an operation on owner's hold: the caller has the baton, busy, and holds is the hold count. While another
// goroutine has an operation under way for the same owner, Begin waits for its end. That wait cannot be cancelled, and
// it ends before any re-entry is let in, because the operation may be an unlock that all of those wait for. ok is false
// if owner has no hold, or has none left when the other operation ends.
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
	q.ops.Push(w)
	q.unlock()
	w.Wait()
	holds = int(w.Value().holds)
	return holds, holds > 0
}

// Settle ends a claim or an operation of the caller. The owner then has the given number of holds, from 1 to [MaxHolds],
// and no operation is under way. If other goroutines of the same owner wait, one of them gets the baton at once, for its
// operation or for its re-entry.
func (q *Queue[K]) Settle(holds int) {
	if holds < 1 || holds > MaxHolds {
		panic("localqueue: bug: Settle with an impossible hold count")
	}
	q.lockBusy("Settle")
	q.state, q.holds, q.arriving = settled, holds, false
	if q.ops.First != nil || len(q.siblings) > 0 {
		q.resumeLocked()
	}
	q.unlock()
}

// isSettledLocked reports whether owner is the holder and no operation is under way. q.mu is held.
func (q *Queue[K]) isSettledLocked(owner K) bool {
	return q.state == settled && q.owner == owner
}

// resumeLocked gives a baton that has just been settled to the next goroutine of the same owner, if one waits.
// q.mu is held.
func (q *Queue[K]) resumeLocked() {
	if w := q.ops.First; w != nil {
		q.ops.Remove(w)
		q.grantLocked(w, q.holds)
		return
	}
	if w := q.siblings[q.owner]; w != nil {
		q.dequeueLocked(w)
		q.admitLocked(w, q.holds)
	}
}

// The results of the methods below were true at one moment during the call.

// HoldCount returns the number of owner's holds, 0 if it is not the holder.
func (q *Queue[K]) HoldCount(owner K) int {
	q.mu.Lock()
	holds := 0
	if q.owner == owner {
		holds = q.holds
	}
	q.unlock()
	return holds
}

// Holder returns the owner that has holds, if there is one.
func (q *Queue[K]) Holder() (owner K, ok bool) {
	q.mu.Lock()
	if ok = q.holds > 0; ok {
		owner = q.owner
	}
	q.unlock()
	return owner, ok
}

// Len returns the number of goroutines in line. Those that wait in Begin are not in line.
func (q *Queue[K]) Len() int { return int(q.length.Load()) }

// Waiters returns the owners in line, longest waiter first. A shared owner is listed once for each goroutine.
func (q *Queue[K]) Waiters() []K {
	q.mu.Lock()
	owners := make([]K, 0, q.line.Len)
	for w := range q.line.All() {
		owners = append(owners, w.Value().owner)
	}
	q.unlock()
	return owners
}

// Queued returns the number of claims that wait: those in line, and the one that has the baton and has not settled yet.
// A claim of [Queue.TryClaim] or of a holder that enters again does not wait, and neither does one that has given up and keeps
// the baton after a [Queue.Pass].
func (q *Queue[K]) Queued() int {
	q.mu.Lock()
	n := q.queuedLocked()
	q.unlock()
	return n
}

// queuedLocked returns what Queued returns. q.mu is held.
func (q *Queue[K]) queuedLocked() int {
	if q.arriving {
		return q.line.Len + 1
	}
	return q.line.Len
}

// QueuedOwners returns the owners of the claims that Queued counts, longest waiter first. A shared owner is listed once for
// each goroutine.
func (q *Queue[K]) QueuedOwners() []K {
	q.mu.Lock()
	owners := make([]K, 0, q.line.Len+1)
	if q.arriving {
		owners = append(owners, q.owner)
	}
	for w := range q.line.All() {
		owners = append(owners, w.Value().owner)
	}
	q.unlock()
	return owners
}

// Idle reports whether the baton is free. No goroutine waits then.
func (q *Queue[K]) Idle() bool {
	q.mu.Lock()
	idle := q.state == free
	q.unlock()
	return idle
}

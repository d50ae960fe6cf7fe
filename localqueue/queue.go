package localqueue

import (
	"math"
	"sync"
	"sync/atomic"

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

// A Queue passes one baton from goroutine to goroutine in order of arrival. K identifies the owners. The zero value is
// ready for use. A Queue must not be copied, and one that had waiters in a testing/synctest bubble must stay there.
//
// A goroutine that gets [Claimed] or [Reentered], or true from [Queue.Begin], has the baton busy and must end that
// exactly once: with Settle, with Leave, or with Pass if that returns true. These three do not check the caller.
type Queue[K comparable] struct {
	// mu is held for a few instructions at a time. It is a leaf: no other lock is taken under it.
	mu sync.Mutex

	// The baton. Guarded by mu.

	state    state
	arriving bool // busy by a Claim or Reserve that has neither settled nor given up: the owner still counts as queued
	owner    K    // zero while free or offered
	holds    int  // zero while free or offered, and while busy for a claimant
	// granted is the node by which a busy baton came to the goroutine that now has it. The node can be used again
	// once that goroutine has woken, which it has when it takes its next step with the baton. Recycling it in that
	// step saves a critical section per hand-over.
	granted *node[K]

	shut bool // no goroutine may begin to wait. Guarded by mu.

	length atomic.Int32 // line.Len, to be read without mu. Written with mu held.

	// The waiters. Guarded by mu.

	line     waitline.Line[waiter[K]]   // for the baton
	ops      waitline.Line[waiter[K]]   // in Begin, for the operation under way on their own hold
	siblings map[K]*node[K]             // shared owner -> the first of its waiters in line, see addSiblingLocked
	spares   waitline.Spares[waiter[K]] // for later waiters
}

// unlock ends a critical section.
func (q *Queue[K]) unlock() {
	if invariants {
		q.check()
	}
	q.mu.Unlock()
}

// Pass ends a claim or an operation of the caller by giving the baton to the longest waiter, as a claimant without holds.
// If no goroutine waits it returns false: the caller still has the baton, busy, and does not count as queued any more.
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

// Evict takes the baton from a holder that has lost its hold without an operation of its own, and gives the baton to the
// longest waiter or frees it. It returns false, and changes nothing, if owner is not the holder or has an operation under
// way: that operation finds the loss by itself.
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
	if q.state == offered { // the waiter with the offer has the baton, since some goroutine must give it on
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

package localqueue

import (
	"time"

	"github.com/relock-go/relock/internal/waitline"
)

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
	// First stands before all other waiters, for an owner that the goroutine with the baton may itself depend on.
	// That goroutine can let it go first with [Queue.GiveWay].
	First

	// Fair is the mode of a claim that waits in order of arrival and is never overtaken.
	Fair Mode = 0
)

// Claim takes the baton for owner and waits in line for it if necessary. The wait ends early when done is closed
// ([Cancelled]) or timeout delivers ([TimedOut]); either may be nil. A done that is closed already wins over a baton
// that is free. A grant wins over a cancellation or timeout that comes at the same moment.
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

// A Place is the result of [Queue.Reserve]: a place in line, or the baton itself. Each place needs exactly one
// [Queue.Wait]. Until then the baton may belong to the place.
type Place[K comparable] struct {
	w   *node[K] // nil if the claim did not have to wait
	got Outcome  // the result if w is nil
}

// Waits reports whether the place is in line: Wait does not return at once.
func (p Place[K]) Waits() bool { return p.w != nil }

// Reserve is the first half of [Queue.Claim]. It takes the baton for owner, or a place in line if that needs a wait.
// It never blocks. The second half, [Queue.Wait], may be another goroutine's.
func (q *Queue[K]) Reserve(owner K, mode Mode) Place[K] { return q.ReserveWithin(owner, mode, 0) }

// ReserveWithin is [Queue.Reserve] for a claim that does not wait behind most others, as [Queue.Queued] counts them: the
// place's Wait then returns [Full] at once. Claims of the owner that has the baton at the moment are let in with it, and
// never Full. A most of 0 is no limit.
func (q *Queue[K]) ReserveWithin(owner K, mode Mode, most int) (p Place[K]) {
	q.mu.Lock()
	if mode&Barging != 0 {
		q.overtakeLocked()
	} else if mode&First != 0 && q.state == offered {
		q.acceptLocked(q.line.First) // it is about to lose the front of the line
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
		if got := q.endWait(w, why); got != Busy { // otherwise another claim took the offer
			return got
		}
	}
}

// GiveWay lets an owner that waits with mode [First] go before the caller, which has claimed the baton and has no holds.
// If such an owner is at the front of the line, it gets the baton and the caller waits directly behind it, as in Claim.
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

// endWait ends the wait of w, whose goroutine stopped waiting for the reason why, or was woken if that is 0. It returns why
// if w was still in line, and otherwise what w was woken with. It returns Busy, and the wait goes on, if w was woken for an
// offer that another claim took.
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

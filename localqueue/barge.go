package localqueue

import "time"

// MaxOvertaken is how often a [Barging] waiter is overtaken at most. It bounds the wait: with n waiters ahead of it, at
// most (n+1) × (MaxOvertaken+1) others have the baton first.
const MaxOvertaken = 16

// A barging waiter at the front of the line is offered the baton and woken. It has the baton when it takes the offer.
// Until then another barging claim may take the offer instead. If the wait of the waiter is cancelled meanwhile, the
// waiter has the baton all the same: there is always one goroutine that must give the baton on.

// waitForOffer is [Queue.Wait] for a barging waiter, which waits on when its offer is taken by another.
func (q *Queue[K]) waitForOffer(w *waiter[K], done <-chan struct{}, timeout <-chan time.Time) Outcome {
	for {
		select {
		case <-w.turn:
			if got := q.accept(w); got != Busy {
				return got
			}
		case <-done:
			return q.quit(w, Cancelled)
		case <-timeout:
			return q.quit(w, TimedOut)
		}
	}
}

// offerLocked offers the baton to w, the first in line. q.mu is held.
func (q *Queue[K]) offerLocked(w *waiter[K]) {
	var none K
	q.state, q.owner, q.holds, q.arriving = offered, none, 0, false
	w.wake(0)
}

// offeredLocked reports whether the baton is offered to w. q.mu is held.
func (q *Queue[K]) offeredLocked(w *waiter[K]) bool { return q.state == offered && q.line.first == w }

// overtakeLocked takes an offer back, if there is one, so that the baton is free for the caller. The waiter that had the
// offer keeps its place. q.mu is held, and the caller claims the baton before it unlocks q.mu.
func (q *Queue[K]) overtakeLocked() {
	if q.state != offered {
		return
	}
	w := q.line.first
	q.state = free
	w.overtaken++
	w.drainTurn()
}

// accept takes the baton that was offered to w, which has just woken. It returns Busy if another claim took the offer.
func (q *Queue[K]) accept(w *waiter[K]) Outcome {
	q.mu.Lock()
	defer q.unlock()
	switch {
	case q.offeredLocked(w):
		q.acceptLocked(w)
	case w.queued:
		return Busy
	}
	w.drainTurn()
	return w.outcome()
}

// acceptLocked grants w the baton that it was offered. q.mu is held.
func (q *Queue[K]) acceptLocked(w *waiter[K]) {
	q.dequeueLocked(w)
	w.drainTurn()
	q.admitLocked(w, 0)
}

// drainTurn takes back a turn that w has not received yet. The queue's mutex is held.
func (w *waiter[K]) drainTurn() {
	select {
	case <-w.turn:
	default:
	}
}

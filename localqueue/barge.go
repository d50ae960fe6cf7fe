package localqueue

// MaxOvertaken is how often a [Barging] waiter is overtaken at most. If n waiters are ahead of a waiter, at most
// (n+1) × (MaxOvertaken+1) others have the baton first.
const MaxOvertaken = 16

// A barging waiter at the front of the line is offered the baton and woken. It has the baton when it takes the offer.
// Until then another barging claim may take the offer instead. If the waiter's wait is cancelled while the offer stands, the
// waiter has the baton nevertheless: there is always one goroutine that must pass the baton on.

// offerLocked offers the baton to w, the first in line. q.mu is held.
func (q *Queue[K]) offerLocked(w *node[K]) {
	var none K
	q.state, q.owner, q.holds, q.arriving = offered, none, 0, false
	wake(w, 0)
}

// offeredLocked reports whether the baton is offered to w. q.mu is held.
func (q *Queue[K]) offeredLocked(w *node[K]) bool { return q.state == offered && q.line.First == w }

// overtakeLocked takes an offer back, if there is one, so that the baton is free for the caller. The waiter that had the
// offer keeps its place. q.mu is held, and the caller claims the baton before it unlocks q.mu.
func (q *Queue[K]) overtakeLocked() {
	if q.state != offered {
		return
	}
	w := q.line.First
	q.state = free
	w.Value().overtaken++
	w.Drain()
}

// acceptLocked grants w the baton that it was offered. q.mu is held.
func (q *Queue[K]) acceptLocked(w *node[K]) {
	q.dequeueLocked(w)
	w.Drain()
	q.admitLocked(w, 0)
}

package localqueue

import "time"

// MaxOvertaken is how often one who waits in Compete is overtaken, at most. It bounds the wait: with n in line ahead
// of it, at most (n+1) × (MaxOvertaken+1) others have the baton first.
const MaxOvertaken = 16

// Compete is [Queue.Claim] without the strict order: the caller takes a baton that was offered to somebody who
// competes too and has not yet woken to take it, and can itself be overtaken like that, [MaxOvertaken] times. Who
// waits in Claim is never overtaken.
//
// This is the unfair mode of java.util.concurrent: a goroutine that is running gets the baton sooner than one that
// must be woken first. The baton is in good hands all the time: until somebody overtakes, the one it was offered to
// answers for it, also when its wait is cancelled.
func (q *Queue[K]) Compete(owner K, shared bool, done <-chan struct{}, timeout <-chan time.Time) Outcome {
	w, got := q.stand(owner, shared, true, done)
	for w != nil && got == Busy {
		select {
		case <-w.turn:
			got = q.accept(w)
		case <-done:
			return q.quit(w, Cancelled)
		case <-timeout:
			return q.quit(w, TimedOut)
		}
	}
	return got
}

// TryCompete is Compete without the wait: it answers [Busy] instead.
func (q *Queue[K]) TryCompete(owner K) Outcome {
	q.mu.Lock()
	q.overtakeLocked()
	got := q.claimLocked(owner)
	q.unlock()
	return got
}

// offerLocked wakes the first in line to take the baton, if nobody is quicker. q.mu is held.
func (q *Queue[K]) offerLocked(w *waiter[K]) {
	var nobody K
	q.state, q.owner, q.holds = offered, nobody, 0
	w.wake(0)
}

// offeredLocked tells whether the baton is offered to w. q.mu is held.
func (q *Queue[K]) offeredLocked(w *waiter[K]) bool { return q.state == offered && q.line.first == w }

// overtakeLocked takes an offer back, so that the baton is free for the caller. Whom it was offered to keeps its
// place. q.mu is held, and the caller claims before it is given up.
func (q *Queue[K]) overtakeLocked() {
	if q.state != offered {
		return
	}
	w := q.line.first
	q.state = free
	if fault != faultGreedy {
		w.overtaken++
	}
	w.calm()
}

// accept is what one who competes does when it wakes: it takes the baton that it was offered. It answers Busy if
// another was quicker.
func (q *Queue[K]) accept(w *waiter[K]) Outcome {
	q.mu.Lock()
	defer q.unlock()
	switch {
	case q.offeredLocked(w):
		q.acceptLocked(w)
	case w.queued:
		return Busy
	}
	w.calm()
	return w.outcome()
}

// acceptLocked makes the baton busy on behalf of w, to whom it was offered. q.mu is held.
func (q *Queue[K]) acceptLocked(w *waiter[K]) {
	q.dequeueLocked(w)
	w.calm()
	q.grantLocked(w, 0)
}

// calm takes back a turn that was not yet received. The queue's mutex is held.
func (w *waiter[K]) calm() {
	select {
	case <-w.turn:
	default:
	}
}

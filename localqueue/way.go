package localqueue

import "time"

// StandFirst is [Queue.Stand] before all others, for somebody that the head of the line itself may be waiting for. The
// goroutine at work with the baton can let it go first ([Queue.GiveWay]).
func (q *Queue[K]) StandFirst(owner K, shared bool) Place[K] {
	q.mu.Lock()
	defer q.unlock()
	if q.state == offered { // the first in line is first no more
		q.acceptLocked(q.line.first)
	}
	if q.state == free || q.settledLocked(owner) {
		w := q.nodeLocked(owner)
		q.grantLocked(w, q.holds)
		return Place[K]{w}
	}
	w := q.nodeLocked(owner)
	if q.shut {
		w.wake(expelled) // the node is left to the collector
		return Place[K]{w}
	}
	w.rank = urgent
	q.frontLocked(w, shared)
	return Place[K]{w}
}

// Wait is [Queue.Turn] for a wait that done can end; it then answers Cancelled.
func (q *Queue[K]) Wait(p Place[K], done <-chan struct{}) Outcome { return q.await(p.w, done, nil) }

// GiveWay is for a claimant: if somebody stands first in line by [Queue.StandFirst], it gives them the baton and waits
// behind them, as in Claim. Else it answers [Busy] at once, and the baton is still the caller's.
func (q *Queue[K]) GiveWay(owner K, shared bool, done <-chan struct{}, timeout <-chan time.Time) Outcome {
	q.lockBusy("GiveWay")
	first := q.line.first
	if first == nil || first.rank != urgent || q.shut {
		q.unlock()
		return Busy
	}
	q.dequeueLocked(first)
	w := q.nodeLocked(owner)
	q.frontLocked(w, shared)
	q.grantLocked(first, 0)
	q.unlock()
	return q.await(w, done, timeout)
}

// frontLocked puts w at the beginning of the line, and of the ring of its kin. q.mu is held.
func (q *Queue[K]) frontLocked(w *waiter[K], shared bool) {
	w.queued = true
	q.line.pushFront(w)
	if shared || w.owner == q.owner || q.kin[w.owner] != nil {
		q.addKinLocked(w)
		q.kin[w.owner] = w // the one before the first is the last, so this makes it the first
	}
}

func (l *list[K]) pushFront(w *waiter[K]) {
	w.next = l.first
	if l.first == nil {
		l.last = w
	} else {
		l.first.prev = w
	}
	l.first = w
	l.n++
}

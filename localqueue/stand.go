package localqueue

// A Place is where somebody stands in line who was put there by another goroutine. Each owes one [Queue.Turn].
type Place[K comparable] struct{ w *waiter[K] }

// Stand is the first half of a Claim, on behalf of another goroutine: it puts owner in line, or gives it the baton if
// that needs no wait. It never blocks.
func (q *Queue[K]) Stand(owner K, shared bool) Place[K] {
	q.mu.Lock()
	defer q.unlock()
	switch {
	case q.state == free, q.settledLocked(owner):
		w := q.nodeLocked(owner)
		q.grantLocked(w, q.holds)
		return Place[K]{w}
	case q.shut:
		w := q.nodeLocked(owner)
		w.wake(expelled) // the node is left to the collector
		return Place[K]{w}
	}
	return Place[K]{q.enqueueLocked(owner, shared)}
}

// Turn is the second half, for the goroutine that the place is for: it waits, uninterruptibly, and answers as Claim.
func (q *Queue[K]) Turn(p Place[K]) Outcome {
	<-p.w.turn
	return p.w.outcome()
}

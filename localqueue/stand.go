package localqueue

// A Place is where somebody stands in line who was put there by another goroutine. Each owes one [Queue.Turn]: until
// then the baton may be the place's, and nobody else's.
type Place[K comparable] struct{ w *waiter[K] }

// Stand is the first half of a Claim, on behalf of another goroutine: it puts owner in line, or gives it the baton if
// that needs no wait. It never blocks. Like who waits in Claim, a place is never overtaken.
func (q *Queue[K]) Stand(owner K, shared bool) Place[K] {
	q.mu.Lock()
	defer q.unlock()
	switch {
	case q.state == free, q.settledLocked(owner), fault == faultSnatch && q.state == offered:
		w := q.nodeLocked(owner)
		if q.grantLocked(w, q.holds); fault == faultUnturned {
			w.calm()
		}
		return Place[K]{w}
	case q.shut && fault != faultStraggler:
		w := q.nodeLocked(owner)
		w.wake(expelled) // the node is left to the collector
		return Place[K]{w}
	}
	return Place[K]{q.enqueueLocked(owner, shared && fault != faultEstranged)}
}

// Turn is the second half, for the goroutine that the place is for: it waits, uninterruptibly, and answers as Claim.
func (q *Queue[K]) Turn(p Place[K]) Outcome {
	<-p.w.turn
	return p.w.outcome()
}

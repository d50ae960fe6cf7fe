package localqueue

// Expel sends away everybody who waits for the baton: their Claims answer [Cancelled] although nothing ended them,
// and their Acquires [ErrExpelled]. Whoever has the baton keeps it, and later claims wait as usual.
func (q *Queue[K]) Expel() {
	q.mu.Lock()
	if q.state == offered { // somebody must answer for the baton: whom it was offered to has it
		q.acceptLocked(q.line.first)
	}
	for w := q.line.first; w != nil; w = q.line.first {
		q.dequeueLocked(w)
		w.wake(expelled) // the node is left to the collector: nobody knows when its goroutine wakes
	}
	q.unlock()
}

// Shut expels everybody who waits, and everybody who would have to wait from now on. Whoever has the baton keeps it.
func (q *Queue[K]) Shut() {
	q.mu.Lock()
	q.shut = true
	q.unlock()
	q.Expel()
}

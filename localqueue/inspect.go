package localqueue

// What these methods answer was true at one moment during the call.

// HoldCount is the number of owner's holds; 0 if it is not the holder.
func (q *Queue[K]) HoldCount(owner K) int {
	q.mu.Lock()
	holds := 0
	if q.owner == owner {
		holds = q.holds
	}
	q.unlock()
	return holds
}

// Holder is the owner that has holds, if there is one.
func (q *Queue[K]) Holder() (K, bool) {
	return q.whoHas(true)
}

// Claimant is the owner that has the baton without holds as yet, if there is one.
func (q *Queue[K]) Claimant() (K, bool) {
	return q.whoHas(false)
}

// whoHas is the owner of the baton if it is out, with holds or without.
func (q *Queue[K]) whoHas(holds bool) (owner K, ok bool) {
	q.mu.Lock()
	if ok = q.state != free && q.state != offered && q.holds > 0 == holds; ok {
		owner = q.owner
	}
	q.unlock()
	return owner, ok
}

// Len is the number of goroutines in line. Those that wait in Begin are not in line.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	n := q.line.n
	q.unlock()
	return n
}

// Waiters lists the owners in line, longest waiter first. A shared owner is there once for each goroutine.
func (q *Queue[K]) Waiters() []K {
	q.mu.Lock()
	owners := make([]K, 0, q.line.n)
	for w := q.line.first; w != nil; w = w.next {
		owners = append(owners, w.owner)
	}
	q.unlock()
	return owners
}

// Waiting tells whether owner is in line. It looks through the line.
func (q *Queue[K]) Waiting(owner K) bool {
	q.mu.Lock()
	w := q.line.first
	for w != nil && w.owner != owner {
		w = w.next
	}
	q.unlock()
	return w != nil
}

// Idle tells whether the baton is free. Nobody waits then.
func (q *Queue[K]) Idle() bool {
	q.mu.Lock()
	idle := q.state == free
	q.unlock()
	return idle
}

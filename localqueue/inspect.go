package localqueue

// The results of these methods were true at one moment during the call.

// HoldCount returns the number of owner's holds, 0 if it is not the holder.
func (q *Queue[K]) HoldCount(owner K) int {
	q.mu.Lock()
	holds := 0
	if q.owner == owner {
		holds = q.holds
	}
	q.unlock()
	return holds
}

// Holder returns the owner that has holds, if there is one.
func (q *Queue[K]) Holder() (owner K, ok bool) {
	q.mu.Lock()
	if ok = q.holds > 0; ok {
		owner = q.owner
	}
	q.unlock()
	return owner, ok
}

// Len returns the number of goroutines in line. Those that wait in Begin are not in line.
func (q *Queue[K]) Len() int { return int(q.length.Load()) }

// Waiters returns the owners in line, longest waiter first. A shared owner is listed once for each goroutine.
func (q *Queue[K]) Waiters() []K {
	q.mu.Lock()
	owners := make([]K, 0, q.line.n)
	for w := q.line.first; w != nil; w = w.next {
		owners = append(owners, w.owner)
	}
	q.unlock()
	return owners
}

// Idle reports whether the baton is free. No goroutine waits then.
func (q *Queue[K]) Idle() bool {
	q.mu.Lock()
	idle := q.state == free
	q.unlock()
	return idle
}

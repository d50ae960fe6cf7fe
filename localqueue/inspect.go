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
	owners := make([]K, 0, q.line.Len)
	for w := range q.line.All() {
		owners = append(owners, w.Value().owner)
	}
	q.unlock()
	return owners
}

// Queued returns the number of claims that wait: those in line, and the one that has the baton and has not settled yet.
// A claim of [Queue.TryClaim] or of a holder that enters again does not wait, and neither does one that has given up and keeps
// the baton after a [Queue.Pass].
func (q *Queue[K]) Queued() int {
	q.mu.Lock()
	n := q.queuedLocked()
	q.unlock()
	return n
}

// queuedLocked is Queued. q.mu is held.
func (q *Queue[K]) queuedLocked() int {
	if q.arriving {
		return q.line.Len + 1
	}
	return q.line.Len
}

// QueuedOwners returns the owners of the claims that Queued counts, longest waiter first. A shared owner is listed once for
// each goroutine.
func (q *Queue[K]) QueuedOwners() []K {
	q.mu.Lock()
	owners := make([]K, 0, q.line.Len+1)
	if q.arriving {
		owners = append(owners, q.owner)
	}
	for w := range q.line.All() {
		owners = append(owners, w.Value().owner)
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

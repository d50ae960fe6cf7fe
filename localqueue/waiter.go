package localqueue

// maxSpares is how many nodes a queue keeps for its next waiters. However many goroutines take turns, all nodes but a
// handful belong to the waiters, so a few spares are enough for contention without allocation. They cost what a queue
// that has emptied goes on holding, some 150 bytes a node. A burst leaves more spares than that; the collector gets the
// rest.
const maxSpares = 64

// A waiter is the node of one goroutine that waits for its turn.
type waiter[K comparable] struct {
	// Immutable while enqueued.

	owner K
	// turn is made with the node and never closed. A wait ends with one value in it or, if cancelled, with none. The
	// goroutine that grants the turn sends under mu; only the waiter receives. The sender never blocks, thanks to the
	// buffer.
	turn chan struct{}

	// Guarded by the queue's mu.

	prev, next *waiter[K] // in the line, or in ops; next also among the spares
	ring       *ring[K]   // made when the node first waits for a shared owner, meaningful while inRing

	// holds is the hold count that the turn comes with. It is written under mu before the send and read by the waiter
	// after the receive.
	holds int32

	mode Mode // immutable while enqueued

	// Guarded by the queue's mu.

	queued    bool // in the line: neither granted nor cancelled
	inRing    bool // in the line, and in the ring of its owner's waiters
	overtaken uint8
}

// A ring links a waiter to its siblings, the other waiters in line for the same shared owner. It is apart from the node
// because most waiters have no siblings, and a hundred thousand of them should not pay for it.
type ring[K comparable] struct{ prev, next *waiter[K] }

// wake ends w's wait with a hold count.
func (w *waiter[K]) wake(holds int) {
	w.holds = int32(holds)
	w.turn <- struct{}{}
}

// expelled is the hold count of waiters that are sent away without a turn.
const expelled = -1

// outcome is the result of a wait, by what w was woken with.
func (w *waiter[K]) outcome() Outcome {
	switch {
	case w.holds == expelled:
		return Cancelled
	case w.holds > 0:
		return Reentered
	}
	return Claimed
}

// A list is a doubly linked list of waiters in order of arrival, linked through the nodes themselves.
type list[K comparable] struct {
	first, last *waiter[K]
	n           int
}

func (l *list[K]) push(w *waiter[K]) {
	w.prev = l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
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

func (l *list[K]) remove(w *waiter[K]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	l.n--
}

// enqueueLocked puts a node for owner at the front or the end of the line. The node is a sibling of the owner's other
// waiters if the owner is shared, and also if the owner is at work with the baton right now. q.mu is held.
func (q *Queue[K]) enqueueLocked(owner K, mode Mode, front bool) *waiter[K] {
	w := q.nodeLocked(owner)
	w.mode, w.queued = mode, true
	if front {
		q.line.pushFront(w)
	} else {
		q.line.push(w)
	}
	q.length.Store(int32(q.line.n))
	if mode&Shared != 0 || owner == q.owner || front && q.siblings[owner] != nil {
		q.addSiblingLocked(w, front)
	}
	return w
}

// dequeueLocked takes w out of the line. q.mu is held.
func (q *Queue[K]) dequeueLocked(w *waiter[K]) {
	w.queued = false
	q.line.remove(w)
	q.length.Store(int32(q.line.n))
	if w.inRing {
		q.removeSiblingLocked(w)
	}
}

// addSiblingLocked adds w to the ring of its owner's waiters in line. The map has the first of each ring, and the one
// before the first is the last, so no search is needed to find the next to let in, or to leave. q.mu is held.
func (q *Queue[K]) addSiblingLocked(w *waiter[K], front bool) {
	w.inRing = true
	if w.ring == nil {
		w.ring = new(ring[K])
	}
	first := q.siblings[w.owner]
	if first == nil {
		if q.siblings == nil {
			q.siblings = make(map[K]*waiter[K])
		}
		q.siblings[w.owner] = w
		*w.ring = ring[K]{prev: w, next: w}
		return
	}
	last := first.ring.prev
	*w.ring = ring[K]{prev: last, next: first}
	last.ring.next, first.ring.prev = w, w
	if front {
		q.siblings[w.owner] = w
	}
}

// removeSiblingLocked takes w out of the ring of its owner's waiters. q.mu is held.
func (q *Queue[K]) removeSiblingLocked(w *waiter[K]) {
	prev, next := w.ring.prev, w.ring.next
	switch {
	case next == w:
		delete(q.siblings, w.owner)
	case q.siblings[w.owner] == w:
		q.siblings[w.owner] = next
	}
	prev.ring.next, next.ring.prev = next, prev
	w.inRing, *w.ring = false, ring[K]{}
}

// nodeLocked takes a spare node, or makes one. q.mu is held.
func (q *Queue[K]) nodeLocked(owner K) *waiter[K] {
	w := q.spare
	if w == nil {
		return &waiter[K]{owner: owner, turn: make(chan struct{}, 1)}
	}
	q.spare, w.next = w.next, nil
	q.spares--
	w.owner, w.mode, w.overtaken = owner, Fair, 0
	return w
}

// recycleLocked keeps w for a later waiter. Its goroutine must have ended its wait, or the channel would have two
// receivers. q.mu is held.
func (q *Queue[K]) recycleLocked(w *waiter[K]) {
	if q.spares == maxSpares {
		return
	}
	var none K
	w.owner = none // what an owner refers to is not kept alive
	q.spare, w.next = w, q.spare
	q.spares++
}

package localqueue

// maxSpares is how many nodes a queue keeps for its next waiters. However many goroutines take turns, all nodes but
// a handful are with those who wait, so a few spares make contention free of allocation. What they cost is what a
// queue that has emptied goes on holding, some 150 bytes a node. A burst that ends leaves more spares than
// that; the rest goes to the collector.
const maxSpares = 64

// A waiter is the node of one goroutine that waits for its turn.
type waiter[K comparable] struct {
	// Immutable while enqueued.

	owner K
	// turn is made with the node and never closed. A wait ends with one value in it or, if cancelled, with none.
	// Whoever grants the turn sends, under mu; only the waiter receives. The buffer means the sender never blocks.
	turn chan struct{}

	// Guarded by the queue's mu.

	prev, next *waiter[K]  // in the line, or in ops; next also among the spares
	kin        *kinship[K] // made when the node first stands for a shared owner, meaningful while inRing

	// holds is the hold count that the turn comes with. Written under mu before the send, read by the waiter after
	// the receive, and by nobody else.
	holds int32

	// Guarded by the queue's mu.

	queued    bool // in the line: neither granted nor cancelled
	inRing    bool // in the line, and in the ring of its owner's waiters
	rank      rank
	overtaken uint8 // how often it was
}

// A rank is how a waiter stands towards the others.
type rank uint8

const (
	ordinary  rank = iota
	competing      // may be overtaken, see Compete
	urgent         // stands before all others, see StandFirst
)

// A kinship links a waiter to the others in line for the same shared owner. It is apart from the node because most
// waiters have no kin, and a hundred thousand of them should not pay for it.
type kinship[K comparable] struct{ prev, next *waiter[K] }

// wake ends w's wait with a hold count.
func (w *waiter[K]) wake(holds int) {
	w.holds = int32(holds)
	w.turn <- struct{}{}
}

// expelled is the hold count of those who are sent away without a turn.
const expelled = -1

// outcome reads what w was woken with.
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

// enqueueLocked puts owner at the end of the line. Its node is kin to others of the same owner if the owner is
// shared, and also if the owner turns out to be at work with the baton right now. q.mu is held.
func (q *Queue[K]) enqueueLocked(owner K, shared bool) *waiter[K] {
	w := q.nodeLocked(owner)
	w.queued = true
	q.line.push(w)
	if shared || owner == q.owner {
		q.addKinLocked(w)
	}
	return w
}

// dequeueLocked takes w out of the line, from wherever it stands. q.mu is held.
func (q *Queue[K]) dequeueLocked(w *waiter[K]) {
	w.queued = false
	q.line.remove(w)
	if w.inRing {
		q.removeKinLocked(w)
	}
}

// addKinLocked adds w to the ring of its owner's waiters in line. The map knows the first of each ring, and the one
// before the first is the last; so it takes no search to find whom to let in, or to leave. q.mu is held.
func (q *Queue[K]) addKinLocked(w *waiter[K]) {
	w.inRing = true
	if w.kin == nil {
		w.kin = new(kinship[K])
	}
	first := q.kin[w.owner]
	if first == nil {
		if q.kin == nil {
			q.kin = make(map[K]*waiter[K])
		}
		q.kin[w.owner] = w
		*w.kin = kinship[K]{prev: w, next: w}
		return
	}
	last := first.kin.prev
	*w.kin = kinship[K]{prev: last, next: first}
	last.kin.next, first.kin.prev = w, w
}

// removeKinLocked takes w out of the ring of its owner's waiters. q.mu is held.
func (q *Queue[K]) removeKinLocked(w *waiter[K]) {
	prev, next := w.kin.prev, w.kin.next
	switch {
	case next == w:
		delete(q.kin, w.owner)
	case q.kin[w.owner] == w:
		q.kin[w.owner] = next
	}
	prev.kin.next, next.kin.prev = next, prev
	w.inRing, *w.kin = false, kinship[K]{}
}

// nodeLocked takes a spare node, or makes one. q.mu is held.
func (q *Queue[K]) nodeLocked(owner K) *waiter[K] {
	w := q.spare
	if w == nil {
		return &waiter[K]{owner: owner, turn: make(chan struct{}, 1)}
	}
	q.spare, w.next = w.next, nil
	q.spares--
	w.owner, w.rank, w.overtaken = owner, ordinary, 0
	return w
}

// recycleLocked keeps w for a later waiter. Its goroutine must have ended its wait, or the channel would have two
// receivers. q.mu is held.
func (q *Queue[K]) recycleLocked(w *waiter[K]) {
	if q.spares == maxSpares {
		return
	}
	var nobody K
	w.owner = nobody // what an owner refers to is not kept alive
	q.spare, w.next = w, q.spare
	q.spares++
}

package localqueue

import "github.com/relock-go/relock/internal/waitline"

// A node is the place of one goroutine that waits for its turn.
type node[K comparable] = waitline.Node[waiter[K]]

// A waiter is what the queue knows of a goroutine that waits.
type waiter[K comparable] struct {
	owner K        // immutable while enqueued
	ring  *ring[K] // made when the node first waits for a shared owner, meaningful while inRing. Guarded by the queue's mu.

	// holds is the hold count that the turn comes with. It is written under mu before the node is woken and read by the
	// waiter after that.
	holds int32

	mode Mode // immutable while enqueued

	// Guarded by the queue's mu.

	inRing    bool // the node is in the line, and in the ring of its owner's waiters
	overtaken uint8
}

// A ring links a waiter to its siblings, the other waiters in line for the same shared owner. It is apart from the node
// because most waiters have no siblings, and a hundred thousand of them should not pay for it.
// The type of its links is node[K] written out, since Go 1.26 fails on a generic alias within a cycle of types.
type ring[K comparable] struct{ prev, next *waitline.Node[waiter[K]] }

// wake ends w's wait with a hold count.
func wake[K comparable](w *node[K], holds int) {
	w.Value().holds = int32(holds)
	w.Wake()
}

// expelled is the hold count with which Shut wakes waiters, which get no turn.
const expelled = -1

// outcome returns the result of the wait, by the hold count with which w was woken.
func (w *waiter[K]) outcome() Outcome {
	switch {
	case w.holds == expelled:
		return Cancelled
	case w.holds > 0:
		return Reentered
	}
	return Claimed
}

// enqueueLocked puts a node for owner at the front or the end of the line. The node is a sibling of the owner's other
// waiters if the owner is shared, and also if the owner is at work with the baton right now. q.mu is held.
func (q *Queue[K]) enqueueLocked(owner K, mode Mode, front bool) *node[K] {
	w := q.nodeLocked(owner)
	w.Value().mode = mode
	if front {
		q.line.PushFront(w)
	} else {
		q.line.Push(w)
	}
	q.length.Store(int32(q.line.Len))
	if mode&Shared != 0 || owner == q.owner {
		q.addSiblingLocked(w, front)
	}
	return w
}

// dequeueLocked takes w out of the line. q.mu is held.
func (q *Queue[K]) dequeueLocked(w *node[K]) {
	q.line.Remove(w)
	q.length.Store(int32(q.line.Len))
	if w.Value().inRing {
		q.removeSiblingLocked(w)
	}
}

// addSiblingLocked adds w to the ring of its owner's waiters in line. The map has the first node of each ring, and the node
// before the first is the last, so neither letting in the next waiter of a ring nor taking one out needs a search. q.mu is
// held.
func (q *Queue[K]) addSiblingLocked(w *node[K], front bool) {
	v := w.Value()
	v.inRing = true
	if v.ring == nil {
		v.ring = new(ring[K])
	}
	first := q.siblings[v.owner]
	if first == nil {
		if q.siblings == nil {
			q.siblings = make(map[K]*node[K])
		}
		q.siblings[v.owner] = w
		*v.ring = ring[K]{prev: w, next: w}
		return
	}
	last := first.Value().ring.prev
	*v.ring = ring[K]{prev: last, next: first}
	last.Value().ring.next, first.Value().ring.prev = w, w
	if front {
		q.siblings[v.owner] = w
	}
}

// removeSiblingLocked takes w out of the ring of its owner's waiters. q.mu is held.
func (q *Queue[K]) removeSiblingLocked(w *node[K]) {
	v := w.Value()
	prev, next := v.ring.prev, v.ring.next
	switch {
	case next == w:
		delete(q.siblings, v.owner)
	case q.siblings[v.owner] == w:
		q.siblings[v.owner] = next
	}
	prev.Value().ring.next, next.Value().ring.prev = next, prev
	v.inRing, *v.ring = false, ring[K]{}
}

// nodeLocked returns a node for owner. q.mu is held.
func (q *Queue[K]) nodeLocked(owner K) *node[K] {
	w := q.spares.Take()
	w.Value().owner = owner
	return w
}

// recycleLocked keeps w and w's ring for a later waiter. No goroutine waits with w any more. q.mu is held.
func (q *Queue[K]) recycleLocked(w *node[K]) {
	*w.Value() = waiter[K]{ring: w.Value().ring}
	q.spares.Keep(w)
}

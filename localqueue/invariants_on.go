//go:build invariants || race

package localqueue

const invariants = true

// checkWalk is how many nodes of a list check looks at, from either end. Whole lists would make a test with ten
// thousand waiters quadratic.
const checkWalk = 128

// check panics unless every invariant holds. q.mu is held.
func (q *Queue[K]) check() {
	q.checkBaton()
	q.line.check(q.checkInLine)
	must(int(q.length.Load()) == q.line.n, "list and length disagree")
	q.ops.check(q.checkOperation)
	q.checkSiblings()
	q.checkSpares()
}

func must(ok bool, what string) {
	if !ok {
		panic("localqueue: bug: " + what)
	}
}

func (q *Queue[K]) checkBaton() {
	var none K
	must(q.holds >= 0 && q.holds <= MaxHolds, "impossible hold count")
	switch q.state {
	case free:
		must(q.owner == none && q.holds == 0, "a free baton has an owner")
		must(q.line.n == 0 && q.ops.n == 0 && len(q.siblings) == 0, "the baton is free while a goroutine waits")
	case settled:
		must(q.holds > 0, "a settled baton has no holds")
		must(q.ops.n == 0, "an operation waits for a settled baton")
		must(q.siblings[q.owner] == nil, "a sibling of the holder waits for a settled baton")
	case offered:
		must(q.owner == none && q.holds == 0 && q.ops.n == 0, "an offered baton has an owner")
		must(q.line.n > 0 && q.line.first.mode&Barging != 0, "the baton is offered to no waiter")
	default:
		must(q.state == busy, "unknown state")
	}
	must(!q.arriving || q.state == busy, "an owner arrives without the baton")
	if w := q.granted; w != nil {
		must(q.state == busy, "a granted baton is not busy")
		must(!w.queued && w.prev == nil && w.next == nil && !w.inRing, "granted, and still linked")
	}
}

func (q *Queue[K]) checkInLine(w *waiter[K]) {
	must(w.queued && (len(w.turn) == 0 || q.offeredLocked(w)), "granted, and still in line")
	must(w.overtaken <= MaxOvertaken, "overtaken too often")
}

func (q *Queue[K]) checkOperation(w *waiter[K]) {
	must(q.state == busy && q.holds > 0 && w.owner == q.owner, "an operation waits for no hold of its owner")
	must(!w.queued && !w.inRing && len(w.turn) == 0, "an operation waits in line")
}

// check walks the list from both ends.
func (l *list[K]) check(node func(*waiter[K])) {
	must((l.first == nil) == (l.n == 0) && (l.last == nil) == (l.n == 0), "list and length disagree")
	n := 0
	var prev *waiter[K]
	for w := l.first; w != nil && n < checkWalk; w = w.next {
		must(w.prev == prev, "a list's back link is wrong")
		must(w.next != nil || w == l.last, "a list ends before its last node")
		node(w)
		prev = w
		n++
	}
	must(n == min(l.n, checkWalk), "list and length disagree")
	var next *waiter[K]
	for w := l.last; w != nil && n > 0; w = w.prev {
		must(w.next == next, "a list's link is wrong")
		node(w)
		next = w
		n--
	}
}

// checkSiblings checks that each ring belongs to one owner and is in order, and that the map has the first node of
// each.
func (q *Queue[K]) checkSiblings() {
	must(len(q.siblings) <= q.line.n, "more rings than waiters")
	for owner, first := range q.siblings {
		w := first
		for n := 0; ; n++ {
			must(w.owner == owner && w.queued && w.inRing, "a sibling has another owner, or is not in line")
			must(w.ring.next.ring.prev == w, "a ring's back link is wrong")
			if w = w.ring.next; w == first || n == checkWalk {
				break
			}
		}
	}
	seen := make(map[K]bool)
	n := 0
	for w := q.line.first; w != nil && n < checkWalk; w = w.next {
		if w.inRing && !seen[w.owner] {
			must(q.siblings[w.owner] == w, "a ring is out of order, or unknown")
			seen[w.owner] = true
		}
		n++
	}
}

func (q *Queue[K]) checkSpares() {
	var none K
	n := 0
	for w := q.spare; w != nil && n <= maxSpares; w = w.next {
		must(!w.queued && !w.inRing && w.owner == none && len(w.turn) == 0, "a spare is in use")
		n++
	}
	must(n == q.spares && n <= maxSpares, "spares and their number disagree")
}

//go:build invariants || race

package localqueue

const invariants = true

// checkWalk is how many waiters checkSiblings looks at. A look at all would make a test with ten thousand waiters quadratic.
const checkWalk = 128

// check panics unless every invariant holds. q.mu is held.
func (q *Queue[K]) check() {
	q.checkBaton()
	q.line.Check(q.checkInLine)
	must(int(q.length.Load()) == q.line.Len, "line and length disagree")
	q.ops.Check(q.checkOperation)
	q.checkSiblings()
	q.spares.Check(checkSpare)
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
		must(q.line.Len == 0 && q.ops.Len == 0 && len(q.siblings) == 0, "the baton is free while a goroutine waits")
	case settled:
		must(q.holds > 0, "a settled baton has no holds")
		must(q.ops.Len == 0, "an operation waits for a settled baton")
		must(q.siblings[q.owner] == nil, "a sibling of the holder waits for a settled baton")
	case offered:
		must(q.owner == none && q.holds == 0 && q.ops.Len == 0, "an offered baton has an owner")
		must(q.line.Len > 0 && q.line.First.Value().mode&Barging != 0, "the baton is offered to no waiter")
	default:
		must(q.state == busy, "unknown state")
	}
	must(!q.arriving || q.state == busy, "an owner arrives without the baton")
	if w := q.granted; w != nil {
		must(q.state == busy, "a granted baton is not busy")
		must(!w.InLine() && !w.Value().inRing, "granted, and still linked")
	}
}

func (q *Queue[K]) checkInLine(w *node[K]) {
	must(!w.Woken() || q.offeredLocked(w), "granted, and still in line")
	must(w.Value().overtaken <= MaxOvertaken, "overtaken too often")
}

func (q *Queue[K]) checkOperation(w *node[K]) {
	must(q.state == busy && q.holds > 0 && w.Value().owner == q.owner, "an operation waits for no hold of its owner")
	must(!w.Value().inRing && !w.Woken(), "an operation waits in line")
}

// checkSiblings checks that each ring belongs to one owner and is in order, and that the map has the first node of each ring.
func (q *Queue[K]) checkSiblings() {
	must(len(q.siblings) <= q.line.Len, "more rings than waiters")
	for owner, first := range q.siblings {
		w := first
		for n := 0; ; n++ {
			must(w.Value().owner == owner && w.InLine() && w.Value().inRing, "a sibling has another owner, or is not in line")
			must(w.Value().ring.next.Value().ring.prev == w, "a ring's back link is wrong")
			if w = w.Value().ring.next; w == first || n == checkWalk {
				break
			}
		}
	}
	seen := make(map[K]bool)
	n := 0
	for w := range q.line.All() {
		if v := w.Value(); v.inRing && !seen[v.owner] {
			must(q.siblings[v.owner] == w, "a ring is out of order, or unknown")
			seen[v.owner] = true
		}
		if n++; n == checkWalk {
			break
		}
	}
}

func checkSpare[K comparable](w *node[K]) {
	var none K
	must(!w.Value().inRing && w.Value().owner == none, "a spare is in use")
}

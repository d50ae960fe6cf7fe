//go:build invariants || race

package waitline

// checkWalk is how many nodes of a line Check looks at, from each end. A look at whole lines would make a test with ten
// thousand waiters quadratic.
const checkWalk = 128

// Check panics unless every invariant of the line holds. It calls node for each node that it looks at.
func (l *Line[T]) Check(node func(*Node[T])) {
	must((l.First == nil) == (l.Len == 0), "a line and its length disagree")
	if l.First == nil {
		return
	}
	last := l.First.prev
	must(last != nil && last.next == nil, "the first in line does not know the last")
	n := 0
	for w, prev := l.First, last; w != nil && n < checkWalk; w, prev = w.next, w {
		must(w.prev == prev, "a back link of a line is wrong")
		must(w.next != nil || w == last, "a line ends before its last node")
		node(w)
		n++
	}
	must(n == min(l.Len, checkWalk), "a line and its length disagree")
	for w, next := last, (*Node[T])(nil); n > 0; w, next = w.prev, w {
		must(w != nil && w.next == next, "a link of a line is wrong")
		node(w)
		n--
	}
}

// Check panics unless every invariant of the spares holds. It calls node for each spare.
func (s *Spares[T]) Check(node func(*Node[T])) {
	n := 0
	for w := s.first; w != nil && n <= MaxSpares; w = w.next {
		must(!w.InLine() && !w.Woken(), "a spare is in use")
		node(w)
		n++
	}
	must(n == s.Len && n <= MaxSpares, "spares and their number disagree")
}

// InLine reports whether n is in a line.
func (n *Node[T]) InLine() bool { return n.prev != nil }

// Woken reports whether n was woken, and n's goroutine has not received the turn yet.
func (n *Node[T]) Woken() bool { return len(n.granted) > 0 }

func must(ok bool, what string) {
	if !ok {
		panic("waitline: bug: " + what)
	}
}

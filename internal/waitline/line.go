package waitline

import "iter"

// A Line is a list of nodes in order of arrival, linked through the nodes themselves. The zero value is an empty line. A
// Line must not be copied.
type Line[T any] struct {
	// Only the methods of Line write these fields.

	First *Node[T] // the longest waiter, or nil
	Len   int
}

// Push puts w, which is in no line, at the end of this line.
func (l *Line[T]) Push(w *Node[T]) {
	l.Len++
	if l.First == nil {
		l.First, w.prev = w, w
		return
	}
	last := l.First.prev
	last.next, w.prev, l.First.prev = w, last, w
}

// PushFront puts w, which is in no line, at the front of this line.
func (l *Line[T]) PushFront(w *Node[T]) {
	if l.First == nil {
		l.Push(w)
		return
	}
	l.Len++
	w.prev, w.next = l.First.prev, l.First
	l.First.prev, l.First = w, w
}

// Remove takes w, which is in this line, out of it.
func (l *Line[T]) Remove(w *Node[T]) {
	l.Len--
	if w == l.First {
		l.First = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else if l.First != nil {
		l.First.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// All returns the nodes in order. The node that the loop is at may be removed.
func (l *Line[T]) All() iter.Seq[*Node[T]] {
	return func(yield func(*Node[T]) bool) {
		for w := l.First; w != nil; {
			next := w.next
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

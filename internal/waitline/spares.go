package waitline

// MaxSpares is how many nodes a queue keeps for its next waiters. However many goroutines take turns, all nodes but a
// handful belong to the waiters, so a few spares are enough for contention without allocation. An empty queue keeps its
// spares, some 150 bytes each. After a burst more nodes become spare than MaxSpares; the garbage collector gets the rest.
const MaxSpares = 64

// Spares are nodes for later waiters. The zero value has none. Spares must not be copied.
type Spares[T any] struct {
	// Only the methods of Spares write these fields.

	Len int

	first *Node[T]
}

// Take returns a spare node, with the Value that the node had when it was kept, or a new node.
func (s *Spares[T]) Take() *Node[T] {
	w := s.first
	if w == nil {
		return &Node[T]{granted: make(chan struct{}, 1)}
	}
	s.first, w.next = w.next, nil
	s.Len--
	return w
}

// Keep keeps w for a later waiter. The goroutine that waited with w must have stopped, or w's channel would have two
// receivers. The caller clears w's Value first, or w would keep alive what the Value refers to.
func (s *Spares[T]) Keep(w *Node[T]) {
	if s.Len == MaxSpares {
		return
	}
	s.first, w.next = w, s.first
	s.Len++
}

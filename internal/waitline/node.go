package waitline

import "time"

// A Node is the place of one goroutine that waits. T is what the queue knows of that goroutine.
type Node[T any] struct {
	value T

	// granted is made with the node and never closed. It gets one value when the turn is granted, and none if the wait is
	// cancelled. The goroutine that grants the turn sends with the mutex held; the send never blocks, thanks to the buffer.
	granted chan struct{}

	prev *Node[T] // the node before this one in line; for the first in line, the last; nil while the node is in no line
	next *Node[T] // the next node in line, or the next spare
}

// Value returns what the queue knows of the waiter. The queue decides which goroutine may use it, and when.
func (n *Node[T]) Value() *T { return &n.value }

// Wait waits until n is woken. It is called without the mutex, by the goroutine that waits.
func (n *Node[T]) Wait() { <-n.granted }

// Await waits until n is woken, done is closed or timeout delivers; done and timeout may be nil. It returns the zero value
// if n was woken, and otherwise cancelled or timedOut. Like Wait, it is called without the mutex, by the goroutine that waits.
func Await[T, R any](n *Node[T], done <-chan struct{}, timeout <-chan time.Time, cancelled, timedOut R) (why R) {
	if done == nil && timeout == nil {
		n.Wait() // does what the select below would do, in three quarters of the time
		return why
	}
	select {
	case <-n.granted:
	case <-done:
		why = cancelled
	case <-timeout:
		why = timedOut
	}
	return why
}

// Wake gives n its turn. A queue may also wake a node that stays in line, as an offer, and take the offer back with Drain.
func (n *Node[T]) Wake() { n.granted <- struct{}{} }

// Drain takes back a turn that the waiter has not received yet.
func (n *Node[T]) Drain() {
	select {
	case <-n.granted:
	default:
	}
}

// TakeTurn decides for a goroutine that stops waiting. It returns false if n is in line: the goroutine may leave. If n is not
// in line, n was granted its turn, even if the goroutine stopped for another reason. TakeTurn then empties n's channel and
// returns true.
func (n *Node[T]) TakeTurn() bool {
	if n.prev != nil {
		return false
	}
	n.Drain()
	return true
}

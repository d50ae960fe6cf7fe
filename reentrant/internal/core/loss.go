package core

import (
	"context"
	"sync"
)

// A LossNotifier reports the loss of a hold. Only holds whose loss a caller asked about have one.
type LossNotifier struct {
	mu      sync.Mutex // a leaf
	Lost    chan struct{}
	closed  bool // Lost is closed
	cancels []*context.CancelCauseFunc
}

// NewLossNotifier returns a notifier that has reported nothing.
func NewLossNotifier() *LossNotifier { return &LossNotifier{Lost: make(chan struct{})} }

// CloseLost closes the channel Lost. It may be called with other mutexes held, since it runs no code of users.
func (n *LossNotifier) CloseLost() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.closed = true
		close(n.Lost)
	}
}

// Notify closes Lost and calls the functions that Add has added. The goroutine that finds the hold lost calls Notify with no
// mutex held, since cancelling a context can run code of users.
func (n *LossNotifier) Notify() {
	n.CloseLost()
	n.mu.Lock()
	cancels := n.cancels
	n.cancels = nil
	n.mu.Unlock()
	for _, cancel := range cancels {
		(*cancel)(ErrLost)
	}
}

// Add arranges that cancel is called with ErrLost when the hold is lost, until Remove.
func (n *LossNotifier) Add(cancel *context.CancelCauseFunc) {
	n.mu.Lock()
	fired := n.closed
	if !fired {
		n.cancels = append(n.cancels, cancel)
	}
	n.mu.Unlock()
	if fired {
		(*cancel)(ErrLost)
	}
}

// Remove undoes Add.
func (n *LossNotifier) Remove(cancel *context.CancelCauseFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, c := range n.cancels {
		if c == cancel {
			n.cancels = append(n.cancels[:i], n.cancels[i+1:]...)
			return
		}
	}
}

// AlreadyLost is the result of Lost for a caller without a hold.
var AlreadyLost = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// UntilLost returns a context that ends with cause ErrLost when the notifier reports the loss, and immediately if notifier is
// nil.
func UntilLost(ctx context.Context, notifier *LossNotifier) (within context.Context, stop func()) {
	within, cancel := context.WithCancelCause(ctx)
	if notifier == nil {
		cancel(ErrLost)
		return within, func() {}
	}
	notifier.Add(&cancel)
	return within, func() {
		notifier.Remove(&cancel)
		cancel(nil)
	}
}

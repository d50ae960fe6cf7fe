package core

import (
	"context"
	"sync"
)

// A LossNotifier reports the loss of a hold. One exists only for holds that a caller asked about.
type LossNotifier struct {
	mu      sync.Mutex // a leaf
	Lost    chan struct{}
	closed  bool // Lost is closed
	cancels []*context.CancelCauseFunc
}

// NewLossNotifier returns a notifier that has reported nothing.
func NewLossNotifier() *LossNotifier { return &LossNotifier{Lost: make(chan struct{})} }

// CloseLost closes the channel of Lost. It may be called with other mutexes held: it runs no code of users.
func (s *LossNotifier) CloseLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.Lost)
	}
}

// Notify is called by the goroutine that finds the hold lost, with no other mutex held: cancelling a context can run
// code of users.
func (s *LossNotifier) Notify() {
	s.CloseLost()
	s.mu.Lock()
	cancels := s.cancels
	s.cancels = nil
	s.mu.Unlock()
	for _, cancel := range cancels {
		(*cancel)(ErrLost)
	}
}

// Add arranges that cancel is called with ErrLost when the hold is lost, until Remove.
func (s *LossNotifier) Add(cancel *context.CancelCauseFunc) {
	s.mu.Lock()
	fired := s.closed
	if !fired {
		s.cancels = append(s.cancels, cancel)
	}
	s.mu.Unlock()
	if fired {
		(*cancel)(ErrLost)
	}
}

// Remove undoes Add.
func (s *LossNotifier) Remove(cancel *context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.cancels {
		if c == cancel {
			s.cancels = append(s.cancels[:i], s.cancels[i+1:]...)
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

// UntilLost returns a context that ends with cause ErrLost when the notifier reports the loss, and at once if it is nil.
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

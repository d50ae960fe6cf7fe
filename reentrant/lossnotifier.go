package reentrant

import (
	"context"
	"sync"
)

// A lossNotifier reports the loss of a hold. One exists only for holds that a caller asked about.
type lossNotifier struct {
	mu      sync.Mutex // a leaf
	lost    chan struct{}
	closed  bool // lost is closed
	cancels []*context.CancelCauseFunc
}

func newLossNotifier() *lossNotifier { return &lossNotifier{lost: make(chan struct{})} }

// closeLost closes the channel of Lost. It may be called with other mutexes held: it runs no code of users.
func (s *lossNotifier) closeLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.lost)
	}
}

// notify is called by the goroutine that finds the hold lost, with no other mutex held: cancelling a context can run
// code of users.
func (s *lossNotifier) notify() {
	s.closeLost()
	s.mu.Lock()
	cancels := s.cancels
	s.cancels = nil
	s.mu.Unlock()
	for _, cancel := range cancels {
		(*cancel)(ErrLost)
	}
}

// add arranges that cancel is called with ErrLost when the hold is lost, until remove.
func (s *lossNotifier) add(cancel *context.CancelCauseFunc) {
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

func (s *lossNotifier) remove(cancel *context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.cancels {
		if c == cancel {
			s.cancels = append(s.cancels[:i], s.cancels[i+1:]...)
			return
		}
	}
}

// alreadyLost is the result of Lost for a caller without a hold.
var alreadyLost = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

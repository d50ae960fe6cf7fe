package reentrant

import (
	"context"
	"sync"
)

// A signal tells those who want to know that a hold is lost. One exists only for holds that somebody asked about.
type signal struct {
	mu      sync.Mutex // a leaf
	lost    chan struct{}
	fired   bool // lost is closed
	cancels []*context.CancelCauseFunc
}

func newSignal() *signal { return &signal{lost: make(chan struct{})} }

// shut closes the channel of Lost. It may be called with other mutexes held: it runs no code that is not ours.
func (s *signal) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fired {
		s.fired = true
		close(s.lost)
	}
}

// fire is called by whoever finds the hold lost, with no other mutex held: cancelling a context runs code
// that is not ours.
func (s *signal) fire() {
	s.shut()
	s.mu.Lock()
	cancels := s.cancels
	s.cancels = nil
	s.mu.Unlock()
	for _, cancel := range cancels {
		(*cancel)(ErrLost)
	}
}

// add has cancel called with ErrLost when the hold is lost, until remove.
func (s *signal) add(cancel *context.CancelCauseFunc) {
	s.mu.Lock()
	fired := s.fired
	if !fired {
		s.cancels = append(s.cancels, cancel)
	}
	s.mu.Unlock()
	if fired {
		(*cancel)(ErrLost)
	}
}

func (s *signal) remove(cancel *context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.cancels {
		if c == cancel {
			s.cancels = append(s.cancels[:i], s.cancels[i+1:]...)
			return
		}
	}
}

// alreadyLost is what Lost answers to a caller that has nothing to lose.
var alreadyLost = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

package core

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
)

// NoteOutage has the session log that the server cannot be reached, or does not serve the lock at present. The waiting
// caller would learn of it only when its context ends. It reports whether the outage counts a waiter.
func (s *Session) NoteOutage(name string, err error, newWaiter bool) (counted bool) {
	switch {
	case backend.Refused(err):
	case backend.OutcomeUnknown(err):
		s.Outages.Add(name)
	default:
		s.Outages.Begin(name, err, newWaiter)
		return true
	}
	return false
}

// Command is Ask for calls that are refused when the session is closed or closing.
func (s *Session) Command(ctx context.Context, n uint64, command func(ctx context.Context) error) error {
	select {
	case <-s.Closing:
		if ctx != nil && ctx.Err() == nil {
			return ErrClosed
		}
	default:
	}
	return s.Ask(ctx, n, command)
}

// Ask sends n commands at once.
func (s *Session) Ask(ctx context.Context, n uint64, command func(ctx context.Context) error) error {
	switch {
	case ctx == nil:
		return errors.New("nil context")
	case ctx.Err() != nil:
		return InterruptedBy(ctx, "before the call", nil)
	}
	now := time.Now()
	call := s.Deadlines.Context(ctx, now, now.Add(s.Config.CommandTimeout))
	s.Counts.Commands.Add(n)
	return WrapUnavailable(ctx, command(call))
}

// Repeat sends a command until the server has carried it out or refused it, or ctx has ended. limit is the time limit
// of one copy.
func (s *Session) Repeat(ctx context.Context, send func(ctx context.Context, limit time.Time) error) error {
	var last error
	for try := 0; ; try++ {
		if ctx.Err() != nil || DeadlinePassed(ctx) || try > 0 && !Pause(ctx, RetryPause(try-1, s.Config.Heartbeat), nil) {
			return InterruptedBy(ctx, "while Redis was asked", last)
		}
		now := time.Now()
		limit := now.Add(s.Config.CommandTimeout)
		s.Counts.Commands.Add(1)
		err := WrapUnavailable(ctx, send(s.Deadlines.Context(ctx, now, limit), limit))
		if err == nil {
			return nil
		}
		if last = MergeOutcome(last, err); backend.Refused(err) {
			return last
		}
	}
}

// RetryPause returns how long to wait before a command is sent again after an error. It grows with each try, up to
// most.
func RetryPause(try int, most time.Duration) time.Duration {
	return min(time.Millisecond<<min(try, 10), most)
}

// Later returns the later of two moments.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two moments.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Pause waits for d, or until closing is closed. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration, closing <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closing:
	case <-ctx.Done():
		return false
	}
	return true
}

// A Waiter says for whom a command about a shared name was sent, as the log of an outage counts them.
type Waiter int8

// For whom a command was sent.
const (
	NoWaiter  Waiter = iota // it gives back
	OldWaiter               // its users wait, and an earlier copy has failed
	NewWaiter               // its users wait
)

// NoteServed has the log report that the server does not serve a shared name for which callers wait, or serves it again.
func (s *Session) NoteServed(name string, err error, waiter Waiter) {
	switch {
	case err == nil:
		s.Outages.Answered(name)
	case waiter == NoWaiter:
		s.Outages.Add(name)
	default:
		s.NoteOutage(name, err, waiter == NewWaiter)
	}
}

// Package deadline bounds the commands of a session without a timer for each.
package deadline

import (
	"context"
	"sync/atomic"
	"time"
)

// A Shared bounds the commands of one session. If the caller's context cannot end, or must not end the command, the
// command uses a shared context that ends some time after the deadline. One shared context serves many commands, so
// bounding a command needs no timer of its own.
type Shared struct {
	current atomic.Pointer[sharedContext]
}

// A commandContext bounds one command by a deadline without a timer of its own. A client reads the deadline and sets it
// on its connection, which costs a small part of what context.WithDeadline costs. A client that waits for Done instead
// waits for the caller's context or, if that cannot end, for a shared one that ends soon after the deadline. Each
// command has its own commandContext, because a client that dials may leave it to goroutines that outlive the call.
// Every command has a deadline for another reason too: rueidis switches a connection to its slower, concurrent mode for
// good at the first command whose context can be cancelled but has no deadline.
type commandContext struct {
	context.Context                 // the caller's, for its values
	end             context.Context // the caller's too, or a shared one
	deadline        time.Time
}

func (c *commandContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *commandContext) Done() <-chan struct{} { return c.end.Done() }

func (c *commandContext) Err() error { return c.end.Err() }

// Context returns the context of a command that is sent now.
func (s *Shared) Context(ctx context.Context, now, deadline time.Time) context.Context {
	c := &commandContext{Context: ctx, end: ctx, deadline: deadline}
	if ctx.Done() == nil {
		c.end = s.after(now, deadline)
	}
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		c.deadline = d
	}
	return c
}

// Outliving returns the context of a command that goes on when the caller's context ends.
func (s *Shared) Outliving(ctx context.Context, now, deadline time.Time) context.Context {
	return &commandContext{Context: ctx, end: s.after(now, deadline), deadline: deadline}
}

// A sharedContext is a context that ends at a fixed time.
type sharedContext struct {
	context.Context
	end    time.Time
	cancel context.CancelFunc
}

// after returns a shared context that ends no earlier than deadline: the current one or, if that ends too early, a new
// one that ends as long after deadline as deadline is after now.
func (s *Shared) after(now, deadline time.Time) context.Context {
	for {
		current := s.current.Load()
		if current != nil && !current.end.Before(deadline) {
			return current
		}
		next := &sharedContext{end: deadline.Add(deadline.Sub(now))}
		next.Context, next.cancel = context.WithDeadline(context.Background(), next.end)
		if s.current.CompareAndSwap(current, next) { // current ends by itself, and ends the commands that still use it
			return next
		}
		next.cancel()
	}
}

// Close ends the current shared context.
func (s *Shared) Close() {
	if c := s.current.Swap(nil); c != nil {
		c.cancel()
	}
}

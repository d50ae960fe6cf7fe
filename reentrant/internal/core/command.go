package core

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/background"
)

// NoteOutage has the session log that the server cannot be reached, or does not serve the lock at present. The waiting caller
// would learn of it only when its context ends. NoteOutage reports whether the call now counts as a waiter of the outage: its
// later failures are not those of a new waiter.
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

// Command does what [Session.Ask] does, but returns ErrClosed if the session is closed or closing.
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

// Ask counts n commands, and calls command, which sends them, within the time limit of one.
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

// Apart begins a command that no caller's context ends. It counts the command, and returns the command's context, whose
// deadline is limit from now, and the present time.
func (s *Session) Apart(limit time.Duration) (ctx context.Context, sent time.Time) {
	s.Counts.Commands.Add(1)
	sent = time.Now()
	return s.Deadlines.Context(context.Background(), sent, sent.Add(limit)), sent
}

// A Policy says how often, for how long and for whom a command is repeated. The zero Policy repeats it until the caller's
// context ends.
type Policy struct {
	Stop    func(last error) error            // called before each copy: its error ends the Repeat; nil: only the end of ctx does
	Insists func(refusal error) bool          // whether the command is repeated although the server refused it; nil: never
	Limit   func(sent time.Time) time.Time    // the time limit of a copy; nil: that of every command
	Shorten func(time.Duration) time.Duration // returns what is left of a pause; nil: all of it
	Until   time.Time                         // a pause that would last to this moment ends the Repeat; zero: no limit
	Room    time.Duration                     // how long before Until a pause must end
	Tries   int                               // the most copies; 0: any number
	Closing <-chan struct{}                   // when it is closed, a pause ends at once; nil: no such end
	Tried   int                               // copies that were sent before: the first pause is longer
	// Outlives says that the end of the context does not end the Repeat: the context provides only values.
	Outlives bool
	// Plain says that send itself counts and bounds its commands.
	Plain bool
}

// pause waits before the next copy. It returns false if there is to be no next copy.
func (p *Policy) pause(ctx context.Context, try int, most time.Duration) bool {
	if p.Outlives {
		ctx = context.Background()
	}
	wait := RetryPause(try, most)
	if p.Shorten != nil {
		wait = p.Shorten(wait)
	}
	over := !p.Until.IsZero() && !time.Now().Add(wait+p.Room).Before(p.Until)
	if over && ctx.Err() == nil || p.Tries > 0 && try+1 == p.Tried+p.Tries {
		return false
	}
	Pause(ctx, wait, p.Closing)
	return true
}

// A Copy is one of the copies of a command that is repeated.
type Copy struct{ Sent, Limit time.Time }

// ErrUnsettled is returned by the send function of a Repeat for a reply that decides nothing: Repeat sends another copy after
// a pause.
var ErrUnsettled = errors.New("not settled")

// Final wraps err for the send function of a Repeat to return: Repeat ends and returns err.
func Final(err error) error { return final{err} }

type final struct{ error }

// AtOnce is returned by the send function of a Repeat for a reply after which another copy is sent without a pause. Err is
// what is wrong with that reply, nil if nothing is.
type AtOnce struct{ Err error }

func (AtOnce) Error() string { return "again at once" }

// Repeat sends a command until send returns nil, or the server refuses it, or the policy ends it. It is the one loop that
// repeats a caller's command. If it fails, it returns the latest error. The outcome of that error is unknown if the outcome
// of an earlier one is.
func (s *Session) Repeat(ctx context.Context, p Policy, send func(ctx context.Context, c Copy) error) error {
	var last error
	for try := p.Tried; ; try++ {
		if p.Stop != nil {
			if err := p.Stop(last); err != nil {
				return err
			}
		} else if !p.Outlives && (ctx.Err() != nil || DeadlinePassed(ctx)) {
			return InterruptedBy(ctx, "while Redis was asked", last)
		}
		c := Copy{Sent: time.Now()}
		c.Limit = c.Sent.Add(s.Config.CommandTimeout)
		if p.Limit != nil {
			c.Limit = p.Limit(c.Sent)
		}
		call := ctx
		switch {
		case p.Plain:
		case p.Outlives:
			call = s.Deadlines.Outliving(ctx, c.Sent, c.Limit)
		default:
			call = s.Deadlines.Context(ctx, c.Sent, c.Limit)
		}
		if !p.Plain {
			s.Counts.Commands.Add(1)
		}
		err := send(call, c)
		if err == nil {
			return nil
		}
		if again, ok := errors.AsType[AtOnce](err); ok {
			if again.Err != nil {
				last = MergeOutcome(last, again.Err)
			}
			continue
		}
		if end, ok := errors.AsType[final](err); ok {
			return end.error
		}
		last = MergeOutcome(last, err)
		if backend.Refused(err) && (p.Insists == nil || !p.Insists(err)) || !p.pause(ctx, try, s.Config.Heartbeat) {
			return last
		}
	}
}

// RepeatLater has a worker run job, which sends a command once more, after a pause. No worker is kept busy meanwhile.
func RepeatLater(workers *background.Workers, pause time.Duration, job func()) {
	time.AfterFunc(pause, func() { workers.Do(job) })
}

// DeadlinePassed reports whether the deadline of ctx has passed by the clock. The timer that ends ctx may fire later.
func DeadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
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

// A Waiter says for whom a command about a shared name was sent. The log of an outage counts the calls that wait.
type Waiter int8

// For whom a command was sent.
const (
	NoWaiter  Waiter = iota // the command only gives units back
	OldWaiter               // users of the name wait, and an earlier copy has failed
	NewWaiter               // users of the name wait
)

// NoteServed has the log report that the server does not serve a shared name for which callers wait, or serves it again.
func (s *Session) NoteServed(name string, err error, waiter Waiter) {
	switch {
	case err == nil:
		if s.Outages.Open.Load() > 0 {
			s.Outages.Answered(name)
		}
	case waiter == NoWaiter:
		s.Outages.Add(name)
	default:
		s.NoteOutage(name, err, waiter == NewWaiter)
	}
}

package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
)

// The errors that several packages return. Package reentrant exports them, and documents what they mean.
var (
	ErrNotHeld      = errors.New("not held by this owner")
	ErrLost         = errors.New("lost while it was held")
	ErrClosed       = errors.New("session closed")
	ErrTooManyHolds = errors.New("maximum hold count exceeded")
	ErrQueueFull    = errors.New("queue full")
	ErrNoOwner      = errors.New("no owner in the context, and the session takes only explicit owners (WithOwner)")
)

// QueueFull returns the error of a call that does not wait behind n others.
func QueueFull(n int) error {
	if n == 1 {
		return fmt.Errorf("%w: 1 waits already", ErrQueueFull)
	}
	return fmt.Errorf("%w: %d wait already", ErrQueueFull, n)
}

// MergeOutcome returns err, the latest error of several tries, or last if there is none. If the outcome of the earlier error
// last is unknown, so is that of the result.
func MergeOutcome(last, err error) error {
	if err == nil {
		return last
	}
	if backend.OutcomeUnknown(last) && !backend.OutcomeUnknown(err) {
		return backend.WithOutcomeUnknown(err)
	}
	return err
}

// An unavailableError makes an error of a backend, which is no refusal, an ErrUnavailable. errors.Is finds in it the end of the
// caller's context, but of no other context, since commands, attempts and clients have limits of their own, which are not the
// caller's.
type unavailableError struct {
	err   error
	ended error // why the caller's context had ended, if it had
}

// WrapUnavailable returns err, the error of a command with ctx, as an ErrUnavailable, unless err is nil or a refusal.
func WrapUnavailable(ctx context.Context, err error) error {
	if err == nil || backend.Refused(err) {
		return err
	}
	return unavailableError{err, reasonOf(ctx)}
}

func (e unavailableError) Error() string {
	if errors.Is(e.err, backend.ErrUnavailable) {
		return e.err.Error()
	}
	return fmt.Sprintf("%v: %v", backend.ErrUnavailable, e.err)
}

func (e unavailableError) Is(target error) bool {
	switch target {
	case backend.ErrUnavailable:
		return true
	case context.Canceled, context.DeadlineExceeded:
		return errors.Is(e.ended, target)
	}
	return errors.Is(e.err, target)
}

func (e unavailableError) As(target any) bool { return errors.As(e.err, target) }

// reasonOf returns why ctx has ended, nil if it has not. If the deadline of ctx has passed, reasonOf first waits until ctx
// has ended, so that an error never blames a context whose Err is still nil.
func reasonOf(ctx context.Context) error {
	passed := DeadlinePassed(ctx)
	if passed {
		awaitEnd(ctx)
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrOverdue) {
		return cause
	}
	if err := ctx.Err(); err != nil || !passed {
		return err
	}
	return context.DeadlineExceeded
}

// endWithin is how long awaitEnd waits: longer than a timer is late on any machine that works.
const endWithin = 5 * time.Second

// awaitEnd waits for the end of a context whose deadline has passed. It does not wait for ever, since a context of the
// caller's own making may have a deadline and not end at it.
func awaitEnd(ctx context.Context) {
	done := ctx.Done()
	if done == nil {
		return
	}
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// An outwaited is the end of a caller's context in a wait behind other owners.
type outwaited struct {
	behind string
	err    error
}

func (o *outwaited) Error() string { return o.behind + ": " + o.err.Error() }
func (o *outwaited) Unwrap() error { return o.err }

// Outwaited describes the end of ctx in a wait for what others had all the time. behind is the first part of the error's
// text.
func Outwaited(ctx context.Context, behind string) error { return &outwaited{behind, endOf(ctx)} }

// BehindWhom returns who had what a call waited for, and why the call's context ended, if err is an error of Outwaited. It
// returns no holders and err if err is another error, or no holder is known. near returns the holders of this session. If there
// are none, far asks the server, unless a look of the last second has the answer. far is not called for a call that was
// cancelled, since its caller has left.
func (s *Session) BehindWhom(err error, name string, shared bool, near func() []Holder, far func(limit time.Duration) Sighting) ([]Holder, error) {
	o, ok := err.(*outwaited) //nolint:errorlint // within another error it is not all that happened
	if !ok {
		return nil, err
	}
	holders := near()
	if len(holders) == 0 && errors.Is(o.err, context.DeadlineExceeded) && !s.IsClosing() {
		holders = s.longWaits.see(waitedFor{name, shared}, lookLimit, far).Holders
	}
	if len(holders) == 0 {
		return nil, err
	}
	return holders, o.err
}

// lookLimit bounds by how much a call whose time is up returns later because it asks who has the lock.
const lookLimit = 20 * time.Millisecond

// InterruptedBy describes the end of ctx during a phase of a call, so that the text says whose limit it was. last is the
// latest error from the backend, nil if there was none.
func InterruptedBy(ctx context.Context, phase string, last error) error {
	err := endOf(ctx)
	if errors.Is(err, ErrOverdue) { // the session's own limit, which is no end of a context to the caller
		return errors.Join(err, last)
	}
	if last != nil {
		return fmt.Errorf("the caller's context ended %s: %w; the last try: %w", phase, err, last)
	}
	return fmt.Errorf("the caller's context ended %s: %w", phase, err)
}

// endOf returns why ctx has ended, with its cause.
func endOf(ctx context.Context) error {
	err, cause := reasonOf(ctx), context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrOverdue):
		return cause
	case cause != nil && !errors.Is(cause, err):
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// ErrOverdue is the cause with which the session ends the context of an owner that comes back from a wait for a condition,
// when that takes too long.
var ErrOverdue = errors.New("the lock could not be taken again within a lease of the end of the wait")

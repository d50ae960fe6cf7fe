package reentrant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
)

var (
	// ErrNotHeld is returned when the caller's owner does not hold the lock: Unlock by another owner or once
	// too often, Token or a condition without the lock. Nothing was changed.
	ErrNotHeld = errors.New("not held by this owner")
	// ErrLost is returned when the caller held the lock and its lease can no longer be trusted: it was not
	// renewed in time, Redis lost it, or a caller of ForceUnlock took it. Another owner may have it. It is also the
	// cause of the context that Do passes on.
	ErrLost = errors.New("lost while it was held")
	// ErrClosed is returned when the session is closed or closing, also to waiting callers. Only an owner that holds a
	// lock can take it once more while the session is closing.
	ErrClosed = errors.New("session closed")
	// ErrUnavailable is returned when the backend was not reached, did not answer in time, or cannot do anything at
	// present (it is starting, for instance). It says nothing about the lock's holder.
	ErrUnavailable = backend.ErrUnavailable
	// ErrWrongKind is returned when a name is in use as another kind of lock: a Lock, an RWLock and a Semaphore cannot
	// share one. It is also returned when the keys of the name have other data, or some that cannot be read: they have to
	// be deleted by hand. Nothing was changed. If the session can find out as what the name is in use, the error's text says so.
	ErrWrongKind = backend.ErrWrongKind
	// ErrTooManyHolds is returned when an owner holds the lock 2³¹−1 times. The holds are unchanged.
	ErrTooManyHolds = errors.New("maximum hold count exceeded")
	// ErrNotReplicated is returned when a call got a lock, one of its sides or permits, but too few replicas had that in
	// time (redisbackend.WithReplicas). It comes at once, as soon as the time for the replicas is up, and is [Refused]: the
	// caller has nothing, and what the server gave is given back. From Resume it comes when the context has ended, with
	// OutcomeUnknown; with ErrLost, from Await, when the lock could not be had again within a lease.
	ErrNotReplicated = backend.ErrNotReplicated
	// ErrNoQuorum is returned when too few nodes of a quorum answered to decide (redisbackend.NewQuorum). It says
	// nothing about the lock's holder.
	ErrNoQuorum = backend.ErrNoQuorum
	// ErrNoOwner is returned in a session with WithExplicitOwners when the context carries no owner.
	ErrNoOwner = errors.New("no owner in the context, and the session takes only explicit owners (WithOwner)")
)

// An Error names the call that failed and its lock. errors.Is and errors.As reach what it wraps: a
// sentinel of this package, the context's error if that ended the call, and the server's words.
type Error struct {
	Op   string // "lock", "unlock", …
	Lock string
	Err  error
	_    struct{}
}

func (e *Error) Error() string { return fmt.Sprintf("reentrant: %s %q: %v", e.Op, e.Lock, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An unavailableError is a backend's error other than a refusal: ErrUnavailable. Its chain has the end of the caller's
// context, and no other's: commands, attempts and clients have limits of their own, which are not the caller's.
type unavailableError struct {
	err   error
	ended error // why the caller's context had ended, if it had
}

// wrapUnavailable returns the error of a command that was sent, or should have been sent, with ctx.
func wrapUnavailable(ctx context.Context, err error) error {
	if err == nil || Refused(err) {
		return err
	}
	return unavailableError{err, reasonOf(ctx)}
}

func (e unavailableError) Error() string {
	if errors.Is(e.err, ErrUnavailable) {
		return e.err.Error()
	}
	return fmt.Sprintf("%v: %v", ErrUnavailable, e.err)
}

func (e unavailableError) Is(target error) bool {
	switch target {
	case ErrUnavailable:
		return true
	case context.Canceled, context.DeadlineExceeded:
		return errors.Is(e.ended, target)
	}
	return errors.Is(e.err, target)
}

func (e unavailableError) As(target any) bool { return errors.As(e.err, target) }

// reasonOf returns why ctx has ended as its owner knows it, nil if it has not. If the deadline of ctx has passed,
// reasonOf first waits until ctx has ended, so that an error never blames a context whose Err is still nil.
func reasonOf(ctx context.Context) error {
	passed := deadlinePassed(ctx)
	if passed {
		awaitEnd(ctx)
	}
	if cause := context.Cause(ctx); errors.Is(cause, errOverdue) {
		return cause
	}
	if err := ctx.Err(); err != nil || !passed {
		return err
	}
	return context.DeadlineExceeded
}

// deadlinePassed reports whether the deadline of ctx has passed by the clock. The timer that ends ctx may fire later.
func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
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

// interruptedBy describes the end of ctx during a phase of a call, so that the text says whose limit it was. last is the
// latest error from the backend, nil if there was none.
func interruptedBy(ctx context.Context, phase string, last error) error {
	err, cause := reasonOf(ctx), context.Cause(ctx)
	switch {
	case errors.Is(cause, errOverdue): // the session's own limit, which is no end of a context to the caller
		return errors.Join(cause, last)
	case cause != nil && !errors.Is(cause, err):
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	if last != nil {
		return fmt.Errorf("the caller's context ended %s: %w; the last try: %w", phase, err, last)
	}
	return fmt.Errorf("the caller's context ended %s: %w", phase, err)
}

// counted returns a number of things in words, such as "2 holds".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// OutcomeUnknown reports whether the server may have done what was asked although err was returned. In both cases what
// the call has in the server ends with the lease at the latest.
func OutcomeUnknown(err error) bool { return backend.OutcomeUnknown(err) }

// Refused reports whether err is the server's own refusal, such as a wrong password or a missing right. It does not
// mean that another owner has the lock, and trying again does not help. Redis may refuse in the middle of a command:
// then [OutcomeUnknown] holds too.
func Refused(err error) bool { return backend.Refused(err) }

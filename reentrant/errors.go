package reentrant

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

var (
	// ErrNotHeld is returned when the caller's owner does not hold the lock that it unlocks, asks about, or uses a condition
	// of. Nothing was changed.
	ErrNotHeld = core.ErrNotHeld
	// ErrLost is returned when the caller held the lock and its lease can no longer be trusted: it was not
	// renewed in time, Redis lost it, or a caller of ForceUnlock took it. Another owner may have it. It is also the cause
	// with which the context of Do ends then.
	ErrLost = core.ErrLost
	// ErrClosed is returned when the session is closed or closing, also to waiting callers. Only an owner that holds a
	// lock can take it once more while the session is closing.
	ErrClosed = core.ErrClosed
	// ErrUnavailable is returned when the backend was not reached, did not answer in time, or cannot do anything at
	// present (it is starting, for instance). It says nothing about the lock's holder.
	ErrUnavailable = backend.ErrUnavailable
	// ErrWrongKind is returned when a name is in use as another kind of lock: a Lock, an RWLock and a Semaphore cannot
	// share a name. It is also returned when the keys of the name have other data, or data that cannot be read: such keys have
	// to be deleted by hand. Nothing was changed. The error's text says what the name is in use as, if the session can find out.
	ErrWrongKind = backend.ErrWrongKind
	// ErrTooManyHolds is returned when an owner holds the lock 2³¹−1 times. The holds are unchanged.
	ErrTooManyHolds = core.ErrTooManyHolds
	// ErrNotReplicated is returned when a call got a lock, one of its sides or permits, but too few replicas had that in
	// time (redisbackend.WithReplicas). A call returns it as soon as the time for the replicas is up. It is [Refused]: the
	// caller has nothing, and what the server gave is given back. Resume returns it when the context has ended, with
	// OutcomeUnknown; Await returns it together with ErrLost, when the lock could not be taken again within a lease.
	ErrNotReplicated = backend.ErrNotReplicated
	// ErrNoQuorum is returned when too few nodes of a quorum answered to decide (redisbackend.NewQuorum). It says
	// nothing about the lock's holder.
	ErrNoQuorum = backend.ErrNoQuorum
	// ErrQueueFull is returned immediately, with WithMaxWaiting, when as many callers of this process already wait as that
	// option allows. The caller has nothing, and nothing was sent.
	ErrQueueFull = core.ErrQueueFull
	// ErrNoOwner is returned in a session with WithExplicitOwners when the context carries no owner.
	ErrNoOwner = core.ErrNoOwner
)

// An Error names the call that failed and its lock. errors.Is and errors.As reach what it wraps: a
// sentinel of this package, the context's error if that ended the call, and the server's words.
type Error struct {
	Op   string // "lock", "unlock", …
	Lock string
	Err  error
	// Holders are those who had the lock when the deadline of a call ended its wait behind others, as far as the session
	// knew or could learn within 20 ms.
	Holders []Holder
	_       struct{}
}

func (e *Error) Error() string {
	held := ""
	if n := len(e.Holders); n > 0 {
		held = fmt.Sprintf("held by %v", e.Holders[0])
		if n > 1 {
			held += fmt.Sprintf(" and %d more", n-1)
		}
		held += ": "
	}
	return fmt.Sprintf("reentrant: %s %q: %s%v", e.Op, e.Lock, held, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// afterDo returns the error of a Do: err, its function's error, joined with ended, the error of giving up its hold. If the
// hold was lost, and the function failed because of the loss, the two are one error. within is the function's context, and ctx
// the caller's.
func afterDo(ctx, within context.Context, err, ended error) error {
	lost := only(ended)
	of, named := errors.AsType[*Error](err)
	switch {
	case err == nil, err == ErrLost && errors.Is(ended, ErrLost): //nolint:errorlint // ErrLost itself says less than ended
		return ended
	case lost == nil, !errors.Is(ended, ErrLost):
		return errors.Join(err, ended)
	case errors.Is(err, context.Canceled) && ctx.Err() == nil && errors.Is(context.Cause(within), ErrLost):
		return &Error{Op: lost.Op, Lock: lost.Lock, Err: fmt.Errorf("%w: %w", ErrLost, err)}
	case !errors.Is(err, ErrLost), named && of.Lock != lost.Lock: // the function failed for another reason, too
		return errors.Join(err, ended)
	case named:
		return err
	}
	return &Error{Op: lost.Op, Lock: lost.Lock, Err: err}
}

// only returns err if it is an *Error, alone or as the only one of joined errors, and otherwise nil.
func only(err error) *Error {
	for {
		switch e := err.(type) { //nolint:errorlint // an Error within another error is not all of it
		case *Error:
			return e
		case interface{ Unwrap() []error }:
			if len(e.Unwrap()) != 1 {
				return nil
			}
			err = e.Unwrap()[0]
		default:
			return nil
		}
	}
}

// counted returns a number of things in words, such as "2 holds".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// OutcomeUnknown reports whether the server may have done what was asked although err was returned. Whether it did or not,
// what the call has at the server ends with the lease at the latest.
func OutcomeUnknown(err error) bool { return backend.OutcomeUnknown(err) }

// Refused reports whether err is the server's own refusal, such as a wrong password or a missing right. It does not
// mean that another owner has the lock, and trying again does not help. Redis may refuse in the middle of a command:
// then [OutcomeUnknown] is true too.
func Refused(err error) bool { return backend.Refused(err) }

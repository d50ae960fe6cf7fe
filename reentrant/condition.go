package reentrant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// ErrForeignCondition is returned when a lock is asked about a condition of another lock.
var ErrForeignCondition = errors.New("the condition belongs to another lock")

// A Condition lets owners who hold a lock wait until another owner, in any process, signals that something has
// changed. It is java.util.concurrent.locks.Condition for the whole deployment: equal names of one lock are one condition, in
// whatever process it was made.
//
// Await first gives up all holds of the caller and takes a place among the waiters, in one step. It waits, takes the lock again
// with as many holds as before, and only then returns, also when it timed out or its context ended. The one exception
// is an error for which errors.Is(err, ErrLost): the lock could not be taken again (the session was closed, Redis
// refused, a lease has passed since the end of the context or of the time limit, or with what the same owner has taken
// meanwhile there would be too many holds), was lost before the wait began, or may have been given up by a command
// whose outcome is unknown. The holds that it gave up are then gone, and each Unlock for them returns ErrLost. (With an
// owner that goroutines share, such an Unlock would give up what another goroutine holds by now: do not call it after
// ErrLost.)
//
// There are no spurious wake-ups, with two exceptions: a process that was paused for longer than three heartbeats is
// assumed to be dead, and its waiters wake when it goes on; and all waiters wake if Redis has lost its data. Like all
// code that waits for a condition, test it in a loop.
//
// The write side of an RWLock has conditions too: "the lock" is then the write side, and "all holds" are those of both sides. See
// [RWLock.NewCondition].
//
// Waiting costs Redis one command per heartbeat for all waiters of a session on one condition, or one for each 500 if
// they are more.
type Condition struct {
	_       noCopy
	name    string
	session *Session
	lock    string // the name of its lock
	remote  backend.Remote
	invalid error // of the lock
	waits   waiting
}

// waiting is what a condition needs of its lock. An [exclusive.Handle] has it, and so has a [tier.RWLock], for its write side.
type waiting interface {
	AwaitAs(ctx context.Context, owner Owner, condition string, limit time.Time) (signalled bool, err error)
	SignalAs(ctx context.Context, owner Owner, condition string, all bool) error
}

var errNilCondition = errors.New("nil condition")

// NewCondition returns the lock's condition with the given name. It sends nothing. If the name has more than 4096
// bytes, every wait and signal returns an error. If the backend has no conditions, as a quorum has none, every wait and
// signal returns [errors.ErrUnsupported].
func (l *Lock) NewCondition(name string) *Condition {
	return &Condition{name: name, session: l.session, lock: l.handle.Name, remote: l.handle.Remote, invalid: l.invalid, waits: &l.handle}
}

// Name returns the condition's name.
func (c *Condition) Name() string { return c.name }

// Await waits until it is signalled or ctx ends. It returns nil if it was signalled, even if ctx ended afterwards, and ctx's
// error if ctx ended first. If ctx has ended before the call, Await returns ctx's error at once and keeps the holds. It returns
// [ErrNotHeld] if the caller does not hold the lock, and [ErrLost] in the cases that [Condition] lists. After any other error
// (one of Redis, or [ErrUnavailable]) Await could not begin to wait, and the caller still has its holds.
//
// It returns at most a lease ([WithLease]) after the end of ctx. If the lock cannot be taken again by then, because Redis
// cannot be reached or others have the lock, the error wraps ErrLost, ctx's error and Redis's error, if there was one.
func (c *Condition) Await(ctx context.Context) error {
	_, err := c.await(ctx, "await", time.Time{}, false)
	return err
}

// AwaitFor is Await with a time limit: it returns false and no error if the time is up before a signal and before the end of
// ctx. With a limit of zero or less it still gives up the lock and takes it again. It returns at most a lease after the limit:
// with ErrLost if the lock could not be taken again by then.
func (c *Condition) AwaitFor(ctx context.Context, wait time.Duration) (bool, error) {
	return c.await(ctx, "await", time.Now().Add(max(wait, 0)), false)
}

// AwaitUninterruptibly is Await that ctx cannot end: ctx provides only the owner. While Redis cannot be reached only
// [Session.Close] ends it.
func (c *Condition) AwaitUninterruptibly(ctx context.Context) error {
	_, err := c.await(ctx, "await", time.Time{}, true)
	return err
}

// Signal moves the waiter that has waited longest, in the whole deployment, to the queue of the lock. That waiter goes on when
// it gets the lock, after the caller's Unlock at the earliest. Without a waiter Signal does nothing.
//
// Waiters that are signalled one after the other come back in that order, with one exception: those of one process that
// use an unfair lock ([WithFairness]) compete, and may come back in any order.
//
// A waiter that has left is passed over, and so is one whose process Redis knows to be dead: its connections are gone
// (except in a Redis Cluster), or it has been silent for three heartbeats. If a process dies before its owner is back
// with the lock, another waiter gets the signal, after three heartbeats and the next beat of any session that waits.
//
// Signal works under a ctx that has ended, as Unlock does: ctx only provides the owner. While Redis does not answer, Signal
// keeps trying until the hold is lost, and for a write side at most for a lease. It returns [ErrNotHeld] if the caller
// does not hold the lock, ErrLost if the hold is lost, and Redis's error if Redis refused. If [OutcomeUnknown] is true of the
// error, a waiter may have been signalled.
func (c *Condition) Signal(ctx context.Context) error { return c.signal(ctx, "signal", false) }

// SignalAll is Signal for all waiters, in the order of their arrival; those of one process that use an unfair lock come
// back in any order.
func (c *Condition) SignalAll(ctx context.Context) error { return c.signal(ctx, "signal all", true) }

func (c *Condition) signal(ctx context.Context, op string, all bool) error {
	owner, err := c.admit(ctx, nil)
	if err == nil {
		err = c.waits.SignalAs(ctx, owner, c.name, all)
	}
	return c.error(op, err)
}

// await is the common part of all exported Awaits. If uninterruptible is true, the end of ctx does not end the wait.
func (c *Condition) await(ctx context.Context, op string, limit time.Time, uninterruptible bool) (signalled bool, err error) {
	interrupt := ctx
	if uninterruptible {
		interrupt = nil
	}
	owner, err := c.admit(ctx, interrupt)
	if err == nil {
		if uninterruptible {
			ctx = context.WithoutCancel(ctx)
		}
		signalled, err = c.waits.AwaitAs(ctx, owner, c.name, limit)
	}
	return signalled, c.error(op, err)
}

// admit returns the calling owner, or the error of an invalid call. If cancel is not nil, its end prevents the call.
func (c *Condition) admit(ctx, cancel context.Context) (Owner, error) {
	owner, err := c.session.core.Caller(ctx, c.invalid)
	if err == nil {
		err = c.check()
	}
	if err == nil && cancel != nil && cancel.Err() != nil {
		err = core.InterruptedBy(cancel, "before the call", nil)
	}
	return owner, err
}

// check returns the error of every wait and signal, if there is one.
func (c *Condition) check() error {
	if len(c.name) > core.MaxName {
		return fmt.Errorf("the name of the condition is %d bytes long, at most %d are allowed", len(c.name), core.MaxName)
	}
	if _, ok := c.remote.(backend.Conditions); !ok {
		return fmt.Errorf("the backend has no conditions: %w", errors.ErrUnsupported)
	}
	return nil
}

// error adds the operation and the name of the lock to err. It returns nil if err is nil.
func (c *Condition) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: c.lock, Err: err}
}

// belongsTo returns nil if c is a condition of the lock with this name in session s, and W is the type of c's waits.
// Otherwise it returns the error.
func belongsTo[W waiting](c *Condition, s *Session, name string) error {
	if c == nil {
		return errNilCondition
	}
	if _, ok := c.waits.(W); !ok || c.session != s || c.lock != name {
		return ErrForeignCondition
	}
	return nil
}

// HasWaiters reports whether owners of this process wait for the condition. As in Java the lock must be held, but by
// any owner of this process, since the call names no owner. It returns an error if c is nil, ErrForeignCondition if c is a
// condition of another lock, and ErrNotHeld if no owner of this session holds the lock. It checks in this order, as Java does.
func (l *Lock) HasWaiters(c *Condition) (bool, error) {
	owners, err := l.waiters("has waiters", c)
	return len(owners) > 0, err
}

// WaitQueueLength returns how many owners of this process wait for the condition. Errors are those of HasWaiters.
func (l *Lock) WaitQueueLength(c *Condition) (int, error) {
	owners, err := l.waiters("wait queue length", c)
	return len(owners), err
}

// WaitingOwners returns the owners of this process that wait for the condition, longest first. Errors are those of
// HasWaiters.
func (l *Lock) WaitingOwners(c *Condition) ([]Owner, error) { return l.waiters("waiting owners", c) }

func (l *Lock) waiters(op string, c *Condition) ([]Owner, error) {
	if err := belongsTo[*exclusive.Handle](c, l.session, l.handle.Name); err != nil {
		return nil, l.error(op, err)
	}
	owners, held := l.handle.WaitersFor(c.name)
	if !held {
		return nil, l.error(op, ErrNotHeld)
	}
	return owners, nil
}

// String returns the names of the condition and of its lock.
func (c *Condition) String() string {
	return fmt.Sprintf("reentrant.Condition(%q of %q)", c.name, c.lock)
}

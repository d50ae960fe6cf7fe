package reentrant

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// NewCondition returns the condition of the write side with the given name. It works as a [Condition] of a Lock, with
// the write side in place of the lock: an owner without the write side gets [ErrNotHeld], even if it has the read side.
// NewCondition sends nothing.
//
// Await gives up all holds of its owner, also those of the read side, and takes all of them again before it returns:
// other readers and writers can come in between. If the wait cannot begin (an error other than [ErrLost]), Await gives
// up nothing. After the wait the write hold has a new token.
//
// Signalled waiters of one process come back in the order of their signals. Waiters of several processes ask for the
// write side as soon as the signal reaches them, so after SignalAll they may come back in another order.
//
// If goroutines that share an owner ([WithOwner]) take the read side while it waits, or wait for that, it cannot come back:
// Await then returns ErrLost and [ErrUpgrade].
//
// A wait costs three commands besides those for the lock itself, and a signal costs three. [Condition] says what a wait
// costs meanwhile.
func (l *RWLock) NewCondition(name string) *Condition { return &Condition{rw: l, name: name} }

// HasWaiters reports whether owners of this process wait for a condition of the write side. The errors are those of
// [Lock.HasWaiters]; an owner of this process must have the write side.
func (l *RWLock) HasWaiters(c *Condition) (bool, error) {
	owners, err := l.waiters("has waiters", c)
	return len(owners) > 0, err
}

// WaitQueueLength returns how many owners of this process wait for the condition. Errors are those of HasWaiters.
func (l *RWLock) WaitQueueLength(c *Condition) (int, error) {
	owners, err := l.waiters("wait queue length", c)
	return len(owners), err
}

// WaitingOwners returns the owners of this process that wait for the condition, longest first. Errors are those of
// HasWaiters.
func (l *RWLock) WaitingOwners(c *Condition) ([]Owner, error) { return l.waiters("waiting owners", c) }

func (l *RWLock) waiters(op string, c *Condition) ([]Owner, error) {
	switch {
	case c == nil:
		return nil, l.error(op, errNilCondition)
	case c.rw == nil || c.rw.session != l.session || c.rw.handle.Name != l.handle.Name:
		return nil, l.error(op, ErrForeignCondition)
	case l.invalid != nil:
		return nil, l.error(op, l.invalid)
	case !l.writing():
		return nil, l.error(op, ErrNotHeld)
	}
	return l.session.conditions.Waiting(l.handle.Name, c.name), nil
}

// await waits for a condition of the write side, for every exported method. If uninterruptible is true, the end of ctx
// does not end the wait.
func (l *RWLock) await(ctx context.Context, op string, c *Condition, limit time.Time, uninterruptible bool) (signalled bool, err error) {
	interrupt := ctx
	if uninterruptible {
		interrupt = nil
	}
	owner, err := l.callingWriter(ctx, c, interrupt)
	if err == nil {
		if uninterruptible {
			ctx = context.WithoutCancel(ctx)
		}
		signalled, err = l.tier().Await(ctx, owner, c.name, limit)
	}
	return signalled, l.error(op, err)
}

// callingWriter returns the calling owner, or the error of an invalid call. If cancel is not nil, the call is invalid
// once that has ended.
func (l *RWLock) callingWriter(ctx context.Context, c *Condition, cancel context.Context) (Owner, error) {
	owner, err := l.session.core.Caller(ctx, l.invalid)
	if err == nil {
		err = c.check()
	}
	if err == nil && cancel != nil && cancel.Err() != nil {
		err = core.InterruptedBy(cancel, "before the call", nil)
	}
	if err == nil {
		err = l.tier().CheckWrites(owner)
	}
	return owner, err
}

// signalCondition wakes waiters for a condition of the write side.
func (l *RWLock) signalCondition(ctx context.Context, op string, c *Condition, all bool) error {
	owner, err := l.callingWriter(ctx, c, nil)
	if err == nil {
		err = l.tier().Signal(context.WithoutCancel(ctx), owner, c.name, all)
	}
	return l.error(op, err)
}

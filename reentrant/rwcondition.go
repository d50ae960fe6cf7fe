package reentrant

import "github.com/relock-go/relock/reentrant/internal/tier"

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
// If goroutines that share an owner ([WithOwner]) take the read side while the owner is in Await, or wait for it, the owner
// cannot get the write side back: Await then returns ErrLost and [ErrUpgrade].
//
// A wait costs three commands besides those for the lock itself, and a signal costs three. [Condition] says what a wait
// costs meanwhile.
func (l *RWLock) NewCondition(name string) *Condition {
	return &Condition{name: name, session: l.session, lock: l.handle.Name, remote: l.handle.Remote, invalid: l.invalid, waits: l.tier()}
}

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
	err := belongsTo[tier.RWLock](c, l.session, l.handle.Name)
	switch {
	case err != nil:
		return nil, l.error(op, err)
	case l.invalid != nil:
		return nil, l.error(op, l.invalid)
	case !l.writing():
		return nil, l.error(op, ErrNotHeld)
	}
	return l.session.conditions.Waiting(l.handle.Name, c.name), nil
}

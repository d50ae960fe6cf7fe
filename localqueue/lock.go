package localqueue

import (
	"cmp"
	"context"
	"errors"
)

// ErrNotHeld is returned by Release when the owner does not hold the lock. Nothing was changed.
var ErrNotHeld = errors.New("localqueue: not held by this owner")

// ErrTooManyHolds is returned by Acquire when the owner has MaxHolds holds. It keeps them.
var ErrTooManyHolds = errors.New("localqueue: maximum hold count exceeded")

// ErrExpelled is returned by Acquire to those who waited when Expel was called.
var ErrExpelled = errors.New("localqueue: expelled from the line")

// Reenter adds a hold to a settled hold of owner, in one critical section. ok is false, and nothing is changed, if
// owner is not the holder or is at work with the baton (holds is 0 then), and if it has [MaxHolds] holds already
// (holds says so).
func (q *Queue[K]) Reenter(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if q.settledLocked(owner) {
		if ok = q.holds < MaxHolds; ok {
			q.holds++
		}
		holds = q.holds
	}
	q.unlock()
	return holds, ok
}

// Exit takes one hold from a settled hold of owner, but never the last, in one critical section. ok is false, and
// nothing is changed, if owner is not the holder, is at work with the baton, or has a single hold.
func (q *Queue[K]) Exit(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if q.settledLocked(owner) && q.holds > 1 {
		q.holds--
		holds, ok = q.holds, true
	}
	q.unlock()
	return holds, ok
}

// ExitOrBegin is [Queue.Exit] and, if owner has a single hold, [Queue.Begin], in one critical section: with ok, holds
// tells how many are left; with none left the last hold is still there, and the baton is busy on the caller's behalf.
// ok is false, and nothing is changed, if owner is not the holder or is at work with the baton.
func (q *Queue[K]) ExitOrBegin(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if ok = q.settledLocked(owner); ok {
		if q.holds > 1 {
			q.holds--
			holds = q.holds
		} else {
			q.state = busy
		}
	}
	q.unlock()
	return holds, ok
}

// Acquire locks the queue, used as a plain re-entrant lock, for owner: it waits its turn, unless owner has the lock
// already. One goroutine at a time may act for an owner. The error is ctx's when ctx ended first, else
// [ErrTooManyHolds] or [ErrExpelled]. A ctx that has ended already wins over a lock that could be had; a lock that
// was granted in the instant ctx ended is had.
func (q *Queue[K]) Acquire(ctx context.Context, owner K) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	switch entered, full := q.enterLocked(owner); {
	case entered:
		q.unlock()
		return nil
	case full:
		q.unlock()
		return ErrTooManyHolds
	case q.shut:
		q.unlock()
		return ErrExpelled
	}
	w := q.enqueueLocked(owner, false)
	q.unlock()
	return q.acquireSlow(ctx, w)
}

// acquireSlow waits in line and then settles with one more hold than the turn came with.
func (q *Queue[K]) acquireSlow(ctx context.Context, w *waiter[K]) error {
	if q.await(w, ctx.Done(), nil) == Cancelled {
		return cmp.Or(ctx.Err(), ErrExpelled)
	}
	holds := int(w.holds)
	if holds == MaxHolds {
		q.Settle(holds)
		return ErrTooManyHolds
	}
	q.Settle(holds + 1)
	return nil
}

// TryAcquire locks the queue for owner if that needs no wait, and tells whether it did. It is false also when owner
// has [MaxHolds] holds.
func (q *Queue[K]) TryAcquire(owner K) bool {
	q.mu.Lock()
	entered, _ := q.enterLocked(owner)
	q.unlock()
	return entered
}

// Release takes one hold from owner; after the last one the lock is the longest waiter's. If owner does not hold
// the lock, nothing is changed and the error is [ErrNotHeld].
func (q *Queue[K]) Release(owner K) error {
	q.mu.Lock()
	if !q.settledLocked(owner) {
		q.unlock()
		return q.releaseSlow(owner)
	}
	if q.holds > 1 {
		q.holds--
	} else {
		q.handOverLocked()
	}
	q.unlock()
	return nil
}

// releaseSlow waits for the operation that another goroutine of owner may have under way.
func (q *Queue[K]) releaseSlow(owner K) error {
	switch holds, ok := q.Begin(owner); {
	case !ok:
		return ErrNotHeld
	case holds > 1:
		q.Settle(holds - 1)
	default:
		q.Leave()
	}
	return nil
}

// settledLocked: owner is the holder, and nothing is under way. q.mu is held.
func (q *Queue[K]) settledLocked(owner K) bool {
	return q.state == settled && q.owner == owner
}

// enterLocked takes a hold for owner if that needs no wait; full says that owner has all it can have. q.mu is held.
func (q *Queue[K]) enterLocked(owner K) (entered, full bool) {
	switch {
	case q.state == free:
		q.state, q.owner, q.holds = settled, owner, 1
		return true, false
	case !q.settledLocked(owner):
		return false, false
	case q.holds == MaxHolds:
		return false, true
	}
	q.holds++
	return true, false
}

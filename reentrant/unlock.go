package reentrant

import (
	"context"
	"errors"
	"time"
)

// Unlock gives up one hold of the caller's owner; the last one frees the lock for the next in the queue. It works
// under a ctx that has ended: giving back is bounded by its own timeout, and ctx only provides the owner.
//
// It returns [ErrNotHeld] if the owner does not hold the lock, and changes nothing; [ErrLost] if it held it and
// the lease could not be trusted to the end: what was done since may not have been done alone. Any other error
// means that the hold has ended here, and that Redis did not confirm it: it refused ([Refused]), may have done it
// ([OutcomeUnknown]), could not be reached, or did not serve the lock (a failover, a slot that moves). If it did not
// refuse, Unlock has asked again for the length of the lease, at most 6 seconds. After the last Unlock the session then
// goes on asking in the background, for a minute; the lock is free for others when Redis has answered, and within the
// lease at the latest. The count of an outer hold is set right by the next call.
func (l *Lock) Unlock(ctx context.Context) error {
	owner, err := l.caller(ctx)
	if err != nil {
		return l.error("unlock", err)
	}
	if e := l.ownState(owner); e != nil {
		// The hold has a reference, until it is given up.
		if holds, ok := e.queue.ExitOrBegin(owner); ok && holds > 0 {
			return nil
		} else if ok {
			return l.error("unlock", e.unlock(ctx))
		}
	}
	e := l.session.findState(l.name)
	if e == nil {
		return l.error("unlock", l.notHeld(owner))
	}
	defer l.session.putState(e, 1)
	holds, ok := e.queue.Begin(owner)
	switch {
	case !ok:
		e.mu.Lock() // a loss is on record before the mutex is free
		defer e.mu.Unlock()
		err = l.notHeld(owner)
	case holds > 1:
		err = e.exit(ctx, owner, holds-1)
	default:
		err = e.unlock(ctx)
	}
	return l.error("unlock", err)
}

// notHeld is why an owner without a hold cannot unlock.
func (l *Lock) notHeld(owner Owner) error {
	if l.session.lostHolds.TakeOwed(l.name, owner) {
		return ErrLost
	}
	return ErrNotHeld
}

// exit gives up one of several holds. It ends here whatever Redis says; the next operation sets the count right.
// It is called with the baton, which goes back to the owner, or on if the hold is lost.
func (e *lockState) exit(ctx context.Context, owner Owner, holds int) error {
	err := e.setRemoteHolds(context.WithoutCancel(ctx), owner, holds, time.Now().Add(e.s.config.releaseTime()))
	if !e.finishOperation(holds, holds) {
		e.passOn()
		return ErrLost
	}
	return err
}

// unlock gives up the last hold. While the turn of this process lasts the lock stays in the house: the next owner
// takes it over in Redis with its own first command. It is called with the baton and ends with it given on.
func (e *lockState) unlock(ctx context.Context) error {
	h := e.handOver()
	now := e.s.clock()
	lost := h.phase == phaseLost
	if !lost && !h.lease.Trusted(now) {
		lost = true
		e.endHold()
		e.s.notifyLost(e.name, h, "the lease ended before Unlock")
	}
	if lost {
		e.passOn()
		return ErrLost
	}
	if e.handToNext(ctx, &h) || h.cohort && e.linger(ctx, &h, now) {
		return nil
	}
	e.endHold()
	err := e.release(ctx)
	e.reportRelease(ctx, &h, false, err)
	if errors.Is(err, ErrLost) {
		e.s.notifyLost(e.name, h, "Redis no longer had it at Unlock")
	}
	e.leaveQueue()
	return err
}

// handToNext gives the baton to the next owner in line, with what its last one left, and drops the reference of the hold. It is
// false, and changes nothing, if nobody waits. The next owner becomes the holder under the same mutex, so nobody is told
// of that before the end of this hold.
func (e *lockState) handToNext(ctx context.Context, h *hold) bool {
	e.mu.Lock()
	passed := e.queue.Pass()
	if passed {
		e.reportRelease(ctx, h, true, nil)
	}
	e.mu.Unlock()
	if passed {
		e.s.stats.handoffs.Add(1)
		e.s.putState(e, 1)
	}
	return passed
}

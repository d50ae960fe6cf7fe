package reentrant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// await is called with the baton of the owner's hold. On return the owner holds the lock again, or the error is
// ErrLost. over is the wait's overtime.
func (e *lockState) await(ctx, over context.Context, c *Condition, owner Owner, holds int, limit time.Time) (bool, error) {
	select {
	case <-e.s.core.Closing: // no owner could come back, so none may leave
		if !e.finishOperation(holds, holds) {
			e.passOn()
			return false, ErrLost
		}
		return false, ErrClosed
	default:
	}
	t := &ticket{epoch: e.s.core.Epochs.Add(1), name: c.name, owner: owner, remote: e.remote.(backend.Conditions), woken: make(chan bool, 1), fair: !c.lock.unfair, ahead: e.s.core.Ahead()}
	e.addTicket(t)
	if err := e.releaseForWait(ctx, over, t, holds, limit); err != nil {
		e.removeTicket(t)
		if !e.finishOperation(holds, holds) {
			e.passOn()
			return false, errors.Join(ErrLost, err)
		}
		return false, err
	}
	t.hold = e.leaveHold(t)
	h := t.hold
	e.unreleased, e.prior = false, backend.Prior{}
	e.reportRelease(ctx, &h, false, nil)
	e.s.heartbeat.add(t)
	e.queue.Leave() // the hold's reference is now the ticket's

	placed, waitErr := e.s.waitSignalled(ctx, over, t, limit)
	signalled := waitErr == nil
	if errors.Is(waitErr, errTimeUp) {
		waitErr = nil
	}
	e.endWaits([]uint64{t.epoch})
	if err := e.reacquire(over, c.lock, t, holds, placed); err != nil {
		if waitErr == nil && ctx.Err() != nil {
			waitErr = core.InterruptedBy(ctx, "after the signal", nil)
		}
		e.s.heartbeat.remove(t) // its signal, if there was one, goes to another waiter
		if signalled {
			e.s.core.Cleaner.Do(func() { e.s.releaseOrphan(c.lock.remote, c.lock.name, t.epoch) })
		}
		e.s.core.Debts.Add(core.DebtOf(ModeLock, e.name, owner), holds)
		e.s.notifyLost(e.name, t.hold, "it could not be had again after a wait")
		return false, errors.Join(ErrLost, err, waitErr)
	}
	if signalled {
		e.s.heartbeat.acknowledge(t)
	}
	return signalled, waitErr
}

// overtime returns a context that ends a lease after ctx, or a lease after the time limit if there is one: an owner
// then no longer tries to come back from its wait. stop frees what it uses.
func (s *session) overtime(ctx context.Context, limit time.Time) (over context.Context, stop func()) {
	over, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	overdue := func() { cancel(core.ErrOverdue) }
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(s.core.Config.Lease, overdue) })
	if limit.IsZero() {
		return over, func() { forget(); cancel(nil) }
	}
	timer := time.AfterFunc(time.Until(limit.Add(s.core.Config.Lease)), overdue) // without an overflow
	return over, func() { forget(); timer.Stop(); cancel(nil) }
}

// releaseForWait gives up the hold and takes the ticket in Redis, in one step. After an error the hold is unchanged, or
// lost. Baton.
func (e *lockState) releaseForWait(ctx, over context.Context, t *ticket, holds int, limit time.Time) error {
	cfg := &e.s.core.Config
	e.mu.Lock()
	cohort := e.hold.cohort
	e.mu.Unlock()
	req := backend.AwaitRequest{
		Condition: t.name, Ticket: t.epoch, Owner: e.ownerField(t.owner), Holds: holds,
		Seen: Token(e.s.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: cfg.GrantTTL,
	}
	if cohort {
		req.Owner, req.Holds = cfg.CohortOwner(), 1
	}
	req.Until = e.pendingUntil()
	e.startReleasing() // until it is known whether the hold is gone
	unknown := false
	send := func(ctx context.Context, h hold) (gone bool, err error) {
		req.Epoch = h.epoch
		status, err := t.remote.Await(ctx, req)
		if err == nil {
			err = check.Ticket(status)
		}
		unknown = unknown || OutcomeUnknown(err)
		if status == backend.Signalled {
			t.wake(false)
		}
		return status == backend.Gone, err
	}
	if !limit.IsZero() {
		limit = limit.Add(cfg.Lease - cfg.CommandTimeout/8) // the last try has at least an eighth of its time
	}
	err := e.operate(ctx, limit, send)
	if err != nil && unknown && ctx.Err() != nil { // the caller leaves, and must know whether it still has the hold
		if again := e.operate(over, limit, send); again != nil {
			err = fmt.Errorf("%w; and since then: %w", err, again)
		} else {
			err = nil
		}
	}
	if err != nil {
		e.stopReleasing()
	}
	if err != nil && unknown {
		// Redis may have done it: then the hold is gone, and another owner may have the lock; and no signal must be
		// spent on the ticket.
		e.mu.Lock()
		epoch := e.hold.epoch
		e.mu.Unlock()
		e.lose(epoch, "it is not known whether Await gave it up")
		e.s.core.Cleaner.Do(func() { e.s.withdraw(context.Background(), t) })
	}
	return err
}

// errTimeUp is the end of AwaitFor's time; it is never returned to callers.
var errTimeUp = errors.New("the time is up")

// waitSignalled parks until the ticket is signalled, or the wait of its owner ends. Redis decides the result in the
// second case, in one step: nil if the signal came first.
func (s *session) waitSignalled(ctx, over context.Context, t *ticket, limit time.Time) (placed bool, err error) {
	var timeout <-chan time.Time
	if !limit.IsZero() {
		timer := time.NewTimer(time.Until(limit))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case placed = <-t.woken:
		return placed, nil
	case <-ctx.Done():
		err = core.InterruptedBy(ctx, "waiting for a signal", nil)
	case <-timeout:
		if err = errTimeUp; ctx.Err() != nil { // both ended while Redis was asked: it is not known which was first
			err = core.InterruptedBy(ctx, "waiting for a signal", nil)
		}
	case <-s.core.Closing:
		err = ErrClosed
	}
	if s.withdraw(over, t) == backend.Signalled {
		select {
		case placed = <-t.woken:
		default:
		}
		return placed, nil
	}
	s.heartbeat.remove(t)
	return false, err
}

// withdraw withdraws a ticket, and reports whether it was signalled before. If Redis cannot be reached, it drops the
// ticket when the session no longer beats for it.
func (s *session) withdraw(ctx context.Context, t *ticket) backend.TicketStatus {
	result := backend.Gone
	_ = s.core.Repeat(ctx, core.Policy{Tries: releaseTries, Stop: func(last error) error {
		if last != nil && ctx.Err() != nil {
			return last
		}
		return nil
	}}, func(call context.Context, _ core.Copy) error {
		status, err := t.remote.Withdraw(call, t.name, t.epoch)
		if err == nil {
			err = check.Ticket(status)
		}
		if err == nil {
			result = status
		}
		return err
	})
	return result
}

// reacquire takes the lock again with the holds that the wait gave up. ctx is the wait's overtime.
func (e *lockState) reacquire(ctx context.Context, l *Lock, t *ticket, holds int, placed bool) error {
	defer e.removeTicket(t)
	back := try{op: "await", waits: true, barges: l.unfair, begun: e.s.core.Now(), fixed: t.hold.fixed(), holds: holds, notifier: t.hold.notifier, note: t.hold.note.String()}
	if placed {
		back.ticket, back.ahead = t.epoch, t.ahead
	}
	switch e.requeue(ctx, l, t, &back) {
	case localqueue.Claimed:
		_, err := e.acquireRemote(ctx, l, t.owner, &back)
		return err
	case localqueue.Reentered: // another goroutine of the same owner took the lock meanwhile
		defer e.s.putState(e)
		return e.restoreHolds(ctx, t.owner, &back)
	}
	e.s.putState(e)
	if ctx.Err() != nil {
		return core.InterruptedBy(ctx, "in this process's queue", nil)
	}
	return ErrClosed
}

// restoreHolds adds the holds that a wait gave up to those that the owner has now. Baton of the owner's operation.
func (e *lockState) restoreHolds(ctx context.Context, owner Owner, t *try) error {
	had := e.queue.HoldCount(owner)
	has, err := had, ErrTooManyHolds
	if has <= maxHolds-t.holds {
		err = e.setRemoteHolds(ctx, owner, has+t.holds, time.Time{})
	}
	if err == nil {
		has += t.holds
		e.shareNotifier(t.notifier)
	}
	if !e.finishAcquire(ctx, EventReentered, t, has, had, err) {
		e.passOn()
		return ErrLost
	}
	return err
}

// shareNotifier makes callers that asked about the loss of the earlier hold learn of the loss of this one. Baton.
func (e *lockState) shareNotifier(notifier *core.LossNotifier) {
	if notifier == nil {
		return
	}
	e.mu.Lock()
	own := e.hold.notifier
	if own == nil {
		e.hold.notifier = notifier
	}
	e.mu.Unlock()
	if own != nil {
		fire := context.CancelCauseFunc(func(error) { notifier.Notify() })
		own.Add(&fire)
	}
}

// requeue goes through the local queue: from the place in line that the owner got with the signal, or directly if no
// owner waits.
func (e *lockState) requeue(ctx context.Context, l *Lock, t *ticket, back *try) localqueue.Outcome {
	if l.unfair {
		return e.enter(ctx, t.owner, back)
	}
	return e.wait(ctx, t.owner, e.reserve(t), back)
}

package exclusive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// SignalAs wakes waiters of a condition, for its holder.
func (l *Handle) SignalAs(ctx context.Context, owner core.Owner, condition string, all bool) error {
	return l.holding(owner, func(e *State, holds int) error {
		remote := e.remote.(backend.Conditions)
		unknown, more := false, false
		signal := func(ctx context.Context, h operation) (gone bool, err error) {
			req := backend.SignalRequest{Condition: condition, Epoch: h.epoch, Op: h.number, All: all}
			reply, err := remote.Signal(ctx, req)
			unknown = unknown || backend.OutcomeUnknown(err) || err == nil && !reply.Gone
			for _, ticket := range reply.Tickets {
				e.signalled(ticket, false)
			}
			e.noteWanted(h.epoch) // by the signalled owner
			more = reply.More
			return reply.Gone, err
		}
		err := e.operate(context.WithoutCancel(ctx), time.Time{}, signal)
		for err == nil && more {
			err = e.operate(context.WithoutCancel(ctx), time.Time{}, signal)
		}
		if !e.finishOperation(holds, holds) {
			e.passOn()
			err = core.ErrLost
		}
		if err != nil && unknown { // an earlier copy may have been executed, whatever the result of the last one
			err = backend.WithOutcomeUnknown(err)
		}
		return err
	})
}

// holding calls f with the baton of an owner's hold.
func (l *Handle) holding(owner core.Owner, f func(e *State, holds int) error) error {
	e := l.Room.FindState(l.Name)
	if e == nil {
		return l.noHold(owner)
	}
	defer l.Room.PutState(e)
	holds, ok := e.Queue.Begin(owner)
	if !ok {
		e.mu.Lock() // a loss is on record before the mutex is free
		defer e.mu.Unlock()
		return l.noHold(owner)
	}
	return f(e, holds)
}

// noHold returns the error of a call that needs a hold, for an owner that has none.
func (l *Handle) noHold(owner core.Owner) error {
	if l.lost(owner) {
		return core.ErrLost
	}
	return core.ErrNotHeld
}

// AwaitAs waits for a condition, for its holder.
func (l *Handle) AwaitAs(ctx context.Context, owner core.Owner, name string, limit time.Time) (signalled bool, err error) {
	err = l.holding(owner, func(e *State, holds int) (err error) {
		if e.s.core.IsClosing() { // no owner could come back, so none may leave
			if !e.finishOperation(holds, holds) {
				e.passOn()
				return core.ErrLost
			}
			return core.ErrClosed
		}
		w := &conditionWait{
			Ticket: condition.NewTicket(e.s.core.Epochs.Add(1), name, owner, e.remote.(backend.Conditions)),
			e:      e, l: l, holds: holds, ahead: e.s.core.Ahead(),
		}
		if !l.Unfair {
			w.LineUp = func() { w.reserveLocked() }
		}
		signalled, err = e.s.conditions.Await(ctx, limit, w.Ticket, w)
		return err
	})
	return signalled, err
}

// WaitersFor returns the owners of this process that wait for a condition, and whether the lock is held here.
func (l *Handle) WaitersFor(condition string) (owners []core.Owner, held bool) {
	l.WithState(func(e *State) {
		e.mu.Lock()
		defer e.mu.Unlock()
		held = e.m.Owned()
		owners = e.tickets.Waiting(condition)
	})
	return owners, held
}

// wait waits for the turn of a place in the local queue.
func (e *State) wait(ctx context.Context, owner core.Owner, place localqueue.Place[core.Owner], t *Try) localqueue.Outcome {
	if !place.Waits() {
		return e.Queue.Wait(place, nil, nil)
	}
	s, name, remote := e.s, e.name, e.remote
	if w := s.core.WatchWait(ctx, core.Event{Lock: name, Owner: owner}, func() core.Sighting { return s.holderOf(name, remote) }); w != nil {
		t.waitBegun = w.Begun
		defer func() { t.reportedWait = w.Stop() }()
	}
	return e.Queue.Wait(place, ctx.Done(), t.Timeout)
}

// Leave gives up the hold and takes the ticket, in one step. Baton.
func (w *conditionWait) Leave(ctx, over context.Context, limit time.Time) error {
	e := w.e
	e.addTicket(w.Ticket)
	if err := e.releaseForWait(ctx, over, w.Ticket, w.holds, limit); err != nil {
		e.removeTicket(w.Ticket)
		if !e.finishOperation(w.holds, w.holds) {
			e.passOn()
			return errors.Join(core.ErrLost, err)
		}
		return err
	}
	w.leaveHold()
	e.reportRelease(ctx, &w.hold, false, nil)
	e.Queue.Leave() // the hold's reference is now the ticket's
	return nil
}

// releaseForWait gives up the hold and takes the ticket in Redis, in one step. After an error the hold is unchanged, or
// lost. Baton.
func (e *State) releaseForWait(ctx, over context.Context, t *condition.Ticket, holds int, limit time.Time) error {
	cfg := &e.s.core.Config
	req := backend.AwaitRequest{
		Condition: t.Name, Ticket: t.Epoch, Owner: e.ownerField(t.Owner), Holds: holds,
		Seen: backend.Token(e.s.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: cfg.GrantTTL,
	}
	e.mu.Lock()
	at := e.moment(e.s.core.Age())
	req.Until = e.m.PendingUntil(&at)
	if e.m.Cohort() {
		req.Owner, req.Holds = cfg.CohortOwner(), 1
	}
	e.m.StartLeaving() // until it is known whether the hold is gone
	e.mu.Unlock()
	unknown := false
	send := func(ctx context.Context, h operation) (gone bool, err error) {
		req.Epoch = h.epoch
		status, err := t.Remote.Await(ctx, req)
		if err == nil {
			err = check.Ticket(status)
		}
		unknown = unknown || backend.OutcomeUnknown(err)
		if status == backend.Signalled {
			t.Wake(false)
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
	if err == nil {
		return nil
	}
	e.mu.Lock()
	e.m.Stay()
	if !unknown {
		e.mu.Unlock()
	} else {
		// Redis may have done it: then the hold is gone, and another owner may have the lock; and no signal must be
		// spent on the ticket.
		e.carryOutLoss(e.m.Lose(e.m.Epoch(), "it is not known whether Await gave it up"))
		e.s.core.Cleaner.Do(func() { e.s.conditions.Withdraw(context.Background(), t) })
	}
	return err
}

// leaveHold ends the hold of an owner that waits for a condition, and keeps it with the ticket. From here on a signal may
// put the owner in the queue. Baton.
func (w *conditionWait) leaveHold() {
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	w.hold = e.holdLocked()
	w.Ticket.Leave()
	e.m.Left()
	e.disownLocked()
}

// Return takes the lock again with the holds that the wait gave up.
func (w *conditionWait) Return(over context.Context, _, placed bool) error {
	e, l := w.e, w.l
	e.endWait(w.Ticket)
	defer e.removeTicket(w.Ticket)
	back := Try{Op: "await", Waits: true, Barges: l.Unfair, Begun: e.s.core.Now(), Fixed: w.hold.fixed(), holds: w.holds, notifier: w.hold.notifier, note: w.hold.note.String()}
	if placed {
		back.ticket, back.ahead = w.Epoch, w.ahead
	}
	switch w.requeue(over, &back) {
	case localqueue.Claimed:
		_, err := e.acquireRemote(over, l, w.Owner, &back)
		return err
	case localqueue.Reentered: // another goroutine of the same owner took the lock meanwhile
		defer e.s.PutState(e)
		return e.restoreHolds(over, w.Owner, &back)
	}
	e.s.PutState(e)
	if over.Err() != nil {
		return core.InterruptedBy(over, "in this process's queue", nil)
	}
	return core.ErrClosed
}

// Forfeit records the loss of the holds. The place that Redis gave the session with the signal goes back.
func (w *conditionWait) Forfeit(signalled bool, _ error) {
	s, l := w.l.Room, w.l
	if signalled {
		s.core.Cleaner.Do(func() { s.ReleaseOrphan(l.Remote, l.Name, w.Epoch) })
	}
	s.core.Debts.Add(core.DebtOf(core.ModeLock, l.Name, w.Owner), w.holds)
	s.notifyLost(l.Name, &w.hold, "it could not be had again after a wait")
}

// restoreHolds adds the holds that a wait gave up to those that the owner has now. Baton of the owner's operation.
func (e *State) restoreHolds(ctx context.Context, owner core.Owner, t *Try) error {
	had := e.Queue.HoldCount(owner)
	has, err := had, core.ErrTooManyHolds
	if has <= maxHolds-t.holds {
		err = e.setRemoteHolds(ctx, owner, has+t.holds, time.Time{})
	}
	if err == nil {
		has += t.holds
		e.shareNotifier(t.notifier)
	}
	if !e.finishAcquire(ctx, core.EventReentered, t, has, had, err) {
		e.passOn()
		return core.ErrLost
	}
	return err
}

// shareNotifier makes callers that asked about the loss of the earlier hold learn of the loss of this one. Baton.
func (e *State) shareNotifier(notifier *core.LossNotifier) {
	if notifier == nil {
		return
	}
	e.mu.Lock()
	own := e.info.notifier
	if own == nil {
		e.info.notifier = notifier
	}
	e.mu.Unlock()
	if own != nil {
		fire := context.CancelCauseFunc(func(error) { notifier.Notify() })
		own.Add(&fire)
	}
}

// requeue goes through the local queue: from the place in line that the owner got with the signal, or directly if no
// owner waits.
func (w *conditionWait) requeue(ctx context.Context, back *Try) localqueue.Outcome {
	if w.l.Unfair {
		return w.e.enter(ctx, w.Owner, back)
	}
	return w.e.wait(ctx, w.Owner, w.reserve(), back)
}

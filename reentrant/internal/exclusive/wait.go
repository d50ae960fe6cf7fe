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
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// SignalAs wakes waiters of a condition, for the owner that holds the lock.
func (h *Handle) SignalAs(ctx context.Context, owner core.Owner, condition string, all bool) error {
	return h.holding(owner, h.lost, func(st *State, holds int) error {
		remote := st.remote.(backend.Conditions)
		unknown, more := false, false
		signal := func(ctx context.Context, h machine.Hold[core.Owner]) (gone bool, err error) {
			req := backend.SignalRequest{Condition: condition, Epoch: h.Epoch, Op: h.Op, All: all}
			reply, err := remote.Signal(ctx, req)
			unknown = unknown || backend.OutcomeUnknown(err) || err == nil && !reply.Gone
			for _, ticket := range reply.Tickets {
				st.signalled(ticket, false)
			}
			st.noteWanted(h.Epoch) // the signalled owner waits for the lock now
			more = reply.More
			return reply.Gone, err
		}
		err := st.operate(context.WithoutCancel(ctx), time.Time{}, signal)
		for err == nil && more {
			err = st.operate(context.WithoutCancel(ctx), time.Time{}, signal)
		}
		if lost := st.finish(holds, holds, nil); lost != nil {
			err = lost
		}
		if err != nil && unknown { // an earlier copy may have been executed, whatever the result of the last one
			err = backend.WithOutcomeUnknown(err)
		}
		return err
	})
}

// AwaitAs waits for a condition, for the owner that holds the lock.
func (h *Handle) AwaitAs(ctx context.Context, owner core.Owner, name string, limit time.Time) (signalled bool, err error) {
	err = h.holding(owner, h.lost, func(st *State, holds int) (err error) {
		if st.s.core.IsClosing() { // no owner could come back, so none may leave
			if lost := st.finish(holds, holds, nil); lost != nil {
				return lost
			}
			return core.ErrClosed
		}
		w := &conditionWait{
			Ticket: condition.NewTicket(st.s.core.Epochs.Add(1), name, owner, st.remote.(backend.Conditions)),
			st:     st, l: h, holds: holds, ahead: st.s.core.Ahead(),
		}
		if !h.Unfair {
			w.LineUp = func() { w.reserveLocked() }
		}
		signalled, err = st.s.conditions.Await(ctx, limit, w.Ticket, w)
		return err
	})
	return signalled, err
}

// WaitersFor returns the owners of this process that wait for a condition, and whether the lock is held here.
func (h *Handle) WaitersFor(condition string) (owners []core.Owner, held bool) {
	h.WithState(func(st *State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		held = st.m.Owned()
		owners = st.tickets.Waiting(condition)
	})
	return owners, held
}

// wait waits for the turn of a place in the local queue.
func (st *State) wait(ctx context.Context, place localqueue.Place[core.Owner], t *Try) localqueue.Outcome {
	if got := place.Outcome(); got != localqueue.Busy {
		return got
	}
	s, name, remote := st.s, st.name, st.remote
	if w := s.core.WatchWait(ctx, core.Event{Lock: name, Owner: t.Owner}, func(limit time.Duration) core.Sighting { return s.holderOf(name, remote, limit) }); w != nil {
		t.waitBegun = w.Begun
		defer func() { t.reportedWait = w.Stop() }()
	}
	return st.Queue.Wait(place, ctx.Done(), t.Timeout)
}

// Leave gives up the hold and takes the ticket, in one step. Leave is called with the baton. After nil or ErrLost the baton has
// been passed on, and after another error the owner has it again.
func (w *conditionWait) Leave(ctx, over context.Context, limit time.Time) error {
	st := w.st
	st.mu.Lock()
	st.tickets.Add(w.Ticket)
	st.mu.Unlock()
	err := st.releaseForWait(ctx, over, w.Ticket, w.holds, limit)
	if err != nil || !w.leaveHold() {
		st.removeTicket(w.Ticket)
		if lost := st.finish(w.holds, w.holds, nil); lost != nil {
			return errors.Join(lost, err)
		}
		return err
	}
	st.reportRelease(ctx, &w.hold, false, nil)
	st.Queue.Leave() // the hold's reference is now the ticket's
	return nil
}

// releaseForWait gives up the hold and takes the ticket in Redis, in one step. After an error the hold is unchanged, or
// lost. The caller has the baton.
func (st *State) releaseForWait(ctx, over context.Context, t *condition.Ticket, holds int, limit time.Time) error {
	cfg := &st.s.core.Config
	req := backend.AwaitRequest{
		Condition: t.Name, Ticket: t.Epoch, Owner: st.ownerField(t.Owner), Holds: holds,
		Seen: backend.Token(st.s.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: cfg.GrantTTL,
	}
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	req.Until = st.m.PendingUntil(&at)
	if cfg.Cohort && st.m.Hold().Cohort { // if not, the owner comes back to a hold of its own
		req.Owner, req.Holds = cfg.CohortOwner(), 1
	}
	st.m.StartLeaving() // Stay or Left follows, once it is known whether the hold is gone
	st.mu.Unlock()
	unknown := false
	send := func(ctx context.Context, h machine.Hold[core.Owner]) (gone bool, err error) {
		req.Epoch = h.Epoch
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
		limit = limit.Add(cfg.Lease - cfg.CommandTimeout/8) // the last try has at least an eighth of a command's time
	}
	err := st.operate(ctx, limit, send)
	if err != nil && unknown && ctx.Err() != nil { // the caller leaves, and must know whether it still has the hold
		if again := st.operate(over, limit, send); again != nil {
			err = fmt.Errorf("%w; and since then: %w", err, again)
		} else {
			err = nil
		}
	}
	if err == nil {
		return nil
	}
	st.mu.Lock()
	st.m.Stay()
	if !unknown {
		st.mu.Unlock()
	} else {
		// Redis may have exchanged the hold for the ticket: then another owner may have the lock. And no signal must be spent
		// on the ticket.
		st.carryOutLoss(st.m.Lose(st.m.Epoch(), "it is not known whether Await gave it up"))
		st.withdraw(t)
	}
	return err
}

// withdraw withdraws the ticket of an owner that does not wait, so that no signal is spent on it. The place or the grant that
// Redis gave the session with a signal goes back.
func (st *State) withdraw(t *condition.Ticket) {
	s, name, remote := st.s, st.name, st.remote
	s.core.Cleaner.Do(func() {
		if s.conditions.Withdraw(context.Background(), t) == backend.Signalled {
			s.ReleaseOrphan(remote, name, t.Epoch, time.Time{})
		}
	})
}

// leaveHold ends the hold of an owner that waits for a condition, and keeps what is known of it in w. From here on a signal
// may put the owner in the queue. leaveHold returns false if the hold was lost before Redis's reply came: then the owner does
// not wait. The caller has the baton.
func (w *conditionWait) leaveHold() bool {
	st := w.st
	st.mu.Lock()
	defer st.mu.Unlock()
	w.hold = st.holdLocked()
	w.atLeast = st.m.AtLeast(&st.s.options, w.hold.since)
	if st.m.Left().Lost {
		st.withdraw(w.Ticket)
		return false
	}
	w.Ticket.Leave()
	st.disownLocked()
	return true
}

// Return takes the lock again with the holds that the wait gave up.
func (w *conditionWait) Return(over context.Context, _, placed bool) error {
	st, l := w.st, w.l
	st.mu.Lock()
	w.End() // the owner does not wait for the condition any more
	st.mu.Unlock()
	defer st.removeTicket(w.Ticket)
	back := Try{Op: "await", Begun: st.s.core.Now(), notifier: w.hold.notifier, note: w.hold.note.String()}
	back.Head = Head{Owner: w.Owner, Portable: core.IsPortable(w.Owner), Waits: true, Barges: l.Unfair, Fixed: w.hold.Fixed(), AtLeast: w.atLeast, Holds: w.holds}
	back.Cohort = st.s.core.Config.Cohort && st.s.core.Common(w.Owner, back.Fixed > 0 || back.AtLeast > 0)
	if placed {
		back.Ticket, back.Ahead = w.Epoch, w.ahead
	}
	switch w.requeue(over, &back) {
	case localqueue.Claimed:
		_, err := st.acquireRemote(over, l, &back)
		return err
	case localqueue.Reentered: // another goroutine of the same owner took the lock meanwhile
		defer st.s.putState(st)
		_, err := st.reenter(over, &back)
		return err
	}
	st.s.putState(st)
	if over.Err() != nil {
		return core.InterruptedBy(over, "in this process's queue", nil)
	}
	return core.ErrClosed
}

// Forfeit records the loss of the holds. If there was a signal, the place that Redis gave the session with it goes back.
func (w *conditionWait) Forfeit(signalled bool, _ error) {
	s, l := w.l.Room, w.l
	if signalled {
		s.core.Cleaner.Do(func() { s.ReleaseOrphan(l.Remote, l.Name, w.Epoch, time.Time{}) })
	}
	s.core.Debts.Add(core.DebtOf(core.ModeLock, l.Name, w.Owner), w.holds)
	s.notifyLost(l.Name, &w.hold, "it could not be had again after a wait")
}

// shareNotifier makes callers that asked about the loss of the earlier hold learn of the loss of this hold too. The caller has
// the baton.
func (st *State) shareNotifier(notifier *core.LossNotifier) {
	if notifier == nil {
		return
	}
	st.mu.Lock()
	own := st.info.notifier
	if own == nil {
		st.info.notifier = notifier
	}
	st.mu.Unlock()
	if own != nil {
		fire := context.CancelCauseFunc(func(error) { notifier.Notify() })
		own.Add(&fire)
	}
}

// requeue takes an owner that comes back from its wait through the local queue: from the place in line that the owner got
// with the signal or gets now, or as a new try if the lock is unfair.
func (w *conditionWait) requeue(ctx context.Context, back *Try) localqueue.Outcome {
	if w.l.Unfair {
		return w.st.enter(ctx, back, 0)
	}
	w.st.mu.Lock()
	place := w.reserveLocked()
	w.st.mu.Unlock()
	return w.st.wait(ctx, place, back)
}

// A conditionWait is an owner that waits for a condition of the lock.
type conditionWait struct {
	*condition.Ticket
	st      *State
	l       *Handle
	holds   int                           // how many holds the wait gives up
	ahead   time.Duration                 // how far the wall clock was ahead before the ticket was sent
	hold    Hold                          // the hold that the wait gave up
	atLeast time.Duration                 // the AtLeast of that hold
	place   *localqueue.Place[core.Owner] // the owner's place in this process's queue, since the signal. Guarded by State.mu
}

// reserveLocked puts the owner of a wait in this process's queue, unless it is there already. st.mu is held.
func (w *conditionWait) reserveLocked() localqueue.Place[core.Owner] {
	st := w.st
	if w.place == nil {
		place := st.Queue.Reserve(w.Owner, queueMode(w.Owner))
		w.place = &place
		st.noteWaiterLocked(w.Owner)
	}
	return *w.place
}

// removeTicket removes a ticket.
func (st *State) removeTicket(t *condition.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tickets.Remove(t)
}

// signalled wakes the owner of a ticket.
func (st *State) signalled(epoch uint64, placed bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tickets.Signalled(epoch, placed)
}

package tier

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// A writerWait is a writer that waits for a condition.
type writerWait struct {
	*condition.Ticket
	l    RWLock
	m    *condition.Monitor
	call *sharedCall

	// What the writer gave up. Written with the mutex of the monitor.
	reads, writes int
	token         backend.Token
	notifier      *core.LossNotifier
	note          *noted // nil if the writer had no note

	place *writerTry // in the local queue, since the signal or the end of the wait. Written with the mutex of the monitor
}

// A writerTry is a writer's place in the local queue, or the outcome if it did not have to wait.
type writerTry struct {
	name    *share.Name // with a reference
	outcome sharedqueue.Outcome
	waiter  *sharedqueue.Waiter[core.Owner] // if the outcome is Waiting
	begun   time.Time
	err     error // why there is no name, nil if there is one
}

// checkWrites returns nil if the owner has the write side, else ErrLost or ErrNotHeld.
func (l RWLock) checkWrites(owner core.Owner) error {
	_, writes, _, _ := l.HoldsOf(owner)
	switch {
	case writes > 0:
		return nil
	case l.lost(core.ModeWrite, owner):
		return core.ErrLost
	}
	return core.ErrNotHeld
}

// orNotHeld returns err if the owner still has the write side, and otherwise ErrLost or ErrNotHeld. If ctx has ended, err is
// joined to ErrLost or ErrNotHeld.
func (l RWLock) orNotHeld(ctx context.Context, owner core.Owner, err error) error {
	held := l.checkWrites(owner)
	switch {
	case held == nil:
		return err
	case err == nil || ctx.Err() == nil:
		return held
	}
	return errors.Join(held, err)
}

// AwaitAs gives up the owner's holds, waits, and takes them again. After ErrLost the owner does not have them. If the
// wait cannot begin, the holds are unchanged.
func (l RWLock) AwaitAs(ctx context.Context, owner core.Owner, name string, limit time.Time) (signalled bool, err error) {
	if err := l.checkWrites(owner); err != nil {
		return false, err
	}
	if l.Session.IsClosing() {
		return false, core.ErrClosed // no owner could come back, so none may leave
	}
	m, err := l.Conditions.Monitor(l.Name)
	if err != nil {
		return false, err
	}
	defer m.Leave()
	w := &writerWait{Ticket: m.Ticket(name, owner), l: l, m: m, call: l.callOf(ctx, time.Time{})}
	w.LineUp = func() {
		if w.place == nil {
			w.place = l.lineUp(w.call, owner)
		}
	}
	return l.Conditions.Await(ctx, limit, w.Ticket, w)
}

// Leave takes the ticket, and then gives up the holds.
func (w *writerWait) Leave(ctx, over context.Context, limit time.Time) error {
	err := w.m.TakeTicket(ctx, over, w.l.LossNotifier(w.Owner), limit, w.Ticket, w.leave)
	if err != nil {
		err = w.l.orNotHeld(ctx, w.Owner, err)
	}
	return err
}

// leave gives up all holds of the owner. It reports whether the owner had the write side.
func (w *writerWait) leave() bool {
	n := w.l.Find()
	if n == nil {
		return false
	}
	n.Check()
	return w.m.Left(w.Ticket, func() bool {
		if n.Tier().(*rwTier).exitForWait(w) {
			n.Wake()
		}
		if w.note != nil {
			n.NoteChanged()
		}
		return w.writes > 0
	})
}

// exitForWait takes all holds of a writer, and their loss notifier. No other owner was inside, so none uses the
// notifier.
func (t *rwTier) exitForWait(w *writerWait) (look bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _, token := t.Holds(w.Owner)
	t.leaveLocked(w.call, func() { w.reads, w.writes, look = t.ExitAll(w.Owner) })
	if w.writes > 0 {
		w.token = backend.Token(token)
		w.notifier, t.notifier = t.notifier, nil
		w.note = t.dropNoteLocked(w.Owner)
	}
	return look
}

// lineUp puts an owner in the queue for the write side.
func (l RWLock) lineUp(call *sharedCall, owner core.Owner) *writerTry {
	p := &writerTry{begun: time.Now()}
	if p.name, p.err = l.join(l.newTier); p.err != nil {
		return p
	}
	var look bool
	if p.outcome, p.waiter, _, look = p.name.Tier().(*rwTier).EnterFor(call.from(p.begun), owner, claimOf(core.ModeWrite, owner), 0); look {
		p.name.Wake()
	}
	return p
}

// Return waits until the owner has the write side, and restores the holds that the owner gave up for the wait. After an error
// the owner has none of them. Return tries again if replicas lag: the owner had the holds before, and must not lose them for
// that reason.
func (w *writerWait) Return(over context.Context, signalled, _ bool) error {
	l := w.l
	w.m.End(w.Ticket, signalled)
	for try, p := 0, w.place; ; try++ {
		err := w.returnBy(over, p)
		if !errors.Is(err, backend.ErrNotReplicated) || !core.Pause(over, core.RetryPause(try, l.Session.Config.Heartbeat), l.Session.Closing) {
			return err
		}
		p = l.lineUp(w.call, w.Owner)
	}
}

// returnBy is one try of Return, from a place in the queue for the write side.
func (w *writerWait) returnBy(over context.Context, p *writerTry) error {
	if p.err != nil {
		return p.err
	}
	defer p.name.Leave()
	q, o := p.name.Tier().(*rwTier), p.outcome
	if o == sharedqueue.Waiting {
		var look bool
		watch := w.l.watchWait(over, wish{mode: core.ModeWrite})
		if o, _, look = q.Wait(p.waiter, over.Done(), nil); look {
			p.name.Wake()
		}
		watch.Stop()
	}
	ok, err := w.l.outcome(over, p.name, o, p.begun)
	if !ok {
		return err
	}
	if err := q.restore(w); err != nil {
		p.name.Wake()
		return err
	}
	if w.note != nil {
		p.name.NoteChanged()
	}
	return nil
}

// restore gives a writer, which has one hold by now, the other holds that it gave up for its wait, with their loss notifier and
// their note. If another goroutine of the same owner is inside and has a notifier, both notifiers notify. After an error the
// one hold is gone too.
func (t *rwTier) restore(w *writerWait) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.AddHolds(w.Owner, w.reads, w.writes-1) {
		held := false
		t.leaveLocked(w.call, func() { _, held, _ = t.ExitWrite(w.Owner) })
		if held {
			return core.ErrTooManyHolds
		}
		w.writes-- // the loss of the one hold is on record already
		return core.ErrLost
	}
	if w.note != nil {
		t.notes.add(w.note)
	}
	switch own := t.notifier; {
	case w.notifier == nil:
	case own != nil:
		cancel := context.CancelCauseFunc(func(error) { w.notifier.Notify() })
		own.Add(&cancel)
	default:
		t.notifier = w.notifier
	}
	return nil
}

// Forfeit records the holds that an owner has lost in a wait, for which the owner still owes Unlocks. If err is ErrLost, the
// owner had come back before the loss, and the loss has been reported already.
func (w *writerWait) Forfeit(_ bool, err error) {
	l, s := w.l, w.l.Session
	if w.notifier != nil {
		w.notifier.CloseLost()
	}
	if w.reads > 0 {
		s.Debts.Add(core.DebtOf(core.ModeRead, l.Name, w.Owner), w.reads)
	}
	if w.writes > 0 {
		s.Debts.Add(core.DebtOf(core.ModeWrite, l.Name, w.Owner), w.writes)
	}
	if !errors.Is(err, core.ErrLost) {
		a := alarm{session: s, name: l.Name}
		a.report(core.Event{Mode: core.ModeWrite, Owner: w.Owner, Token: w.token}, "it could not be had again after a wait")
	}
	if w.notifier != nil {
		w.notifier.Notify()
	}
}

// SignalAs wakes waiters. It tries for the length of a lease, or until the caller's hold is lost.
func (l RWLock) SignalAs(ctx context.Context, owner core.Owner, name string, all bool) error {
	if err := l.checkWrites(owner); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	m, err := l.Conditions.Monitor(l.Name)
	if err != nil {
		return err
	}
	defer m.Leave()
	unknown, err := m.Signal(ctx, owner, l.LossNotifier(owner), name, all)
	err = l.orNotHeld(ctx, owner, err)
	if err != nil && unknown { // an earlier copy may have been executed, whatever the result of the last one
		err = backend.WithOutcomeUnknown(err)
	}
	return err
}

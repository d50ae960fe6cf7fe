package reentrant

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
	case c.rw == nil || c.rw.session != l.session || c.rw.name != l.name:
		return nil, l.error(op, ErrForeignCondition)
	case l.invalid != nil:
		return nil, l.error(op, l.invalid)
	case !l.writing():
		return nil, l.error(op, ErrNotHeld)
	}
	return l.session.conditions.Waiting(l.name, c.name), nil
}

// A writerWait is a writer that waits for a condition.
type writerWait struct {
	*condition.Ticket
	call *sharedCall

	// What the writer gave up. Written with the mutex of the monitor.
	reads, writes int
	token         Token
	notifier      *core.LossNotifier

	place *writerTry // in the local queue, since the signal or the end of the wait. Written with the mutex of the monitor
}

// A writerTry is a writer's place in the local queue, or the outcome if it did not have to wait.
type writerTry struct {
	name    *share.Name // with a reference
	outcome sharedqueue.Outcome
	waiter  *sharedqueue.Waiter[Owner] // if the outcome is Waiting
	begun   time.Time
	err     error // if there is no name
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
		signalled, err = l.awaitAs(ctx, owner, c.name, limit)
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
		err = l.checkWrites(owner)
	}
	return owner, err
}

// checkWrites returns nil if the owner has the write side, else ErrLost or ErrNotHeld.
func (l *RWLock) checkWrites(owner Owner) error {
	_, writes, _, _ := l.holdsOf(owner)
	switch {
	case writes > 0:
		return nil
	case l.lost(writeSide, owner):
		return ErrLost
	}
	return ErrNotHeld
}

// orNotHeld returns err if the owner still has the write side, else ErrLost or ErrNotHeld. The end of ctx stays in the
// error.
func (l *RWLock) orNotHeld(ctx context.Context, owner Owner, err error) error {
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
func (l *RWLock) awaitAs(ctx context.Context, owner Owner, name string, limit time.Time) (signalled bool, err error) {
	s := l.session
	select {
	case <-s.core.Closing:
		return false, ErrClosed // no owner could come back, so none may leave
	default:
	}
	m, err := s.conditions.Monitor(l.name)
	if err != nil {
		return false, err
	}
	defer m.Leave()
	over, stop := s.conditions.Overtime(ctx, limit)
	defer stop()
	w := &writerWait{call: s.callOf(ctx, time.Time{}), Ticket: m.Ticket(name, owner)}
	w.LineUp = func() {
		if w.place == nil {
			w.place = l.lineUp(w.call, w.Owner)
		}
	}
	err = m.TakeTicket(ctx, over, l.lossNotifier(owner), limit, w.Ticket, func() bool { return l.leaveForWait(m, w) })
	if err != nil {
		return false, l.orNotHeld(ctx, owner, err)
	}
	_, waitErr := s.conditions.WaitSignalled(ctx, over, w.Ticket, limit)
	signalled = waitErr == nil
	if errors.Is(waitErr, condition.ErrTimeUp) {
		waitErr = nil
	}
	m.End(w.Ticket, signalled)
	if err := l.comeBack(ctx, over, w, w.place); err != nil {
		s.conditions.Remove(w.Ticket) // its signal, if there was one, goes to another
		if waitErr == nil && ctx.Err() != nil {
			waitErr = core.InterruptedBy(ctx, "after the signal", nil)
		}
		l.forfeit(w, errors.Is(err, ErrLost))
		return false, errors.Join(ErrLost, err, waitErr)
	}
	if signalled {
		s.conditions.Acknowledge(w.Ticket)
	}
	return signalled, waitErr
}

// leaveForWait gives up all holds of the owner of a wait. It reports whether the owner had the write side.
func (l *RWLock) leaveForWait(m *condition.Monitor, w *writerWait) bool {
	n := l.find()
	if n == nil {
		return false
	}
	n.Check()
	return m.Left(w.Ticket, func() bool {
		if n.Tier().(*rwTier).exitForWait(w) {
			n.Wake()
		}
		return w.writes > 0
	})
}

// exitForWait takes all holds of a writer, and their loss notifier. No other owner was inside, so none uses the
// notifier.
func (q *rwTier) exitForWait(w *writerWait) (look bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, _, token := q.Holds(w.Owner)
	q.leaveLocked(w.call, func() { w.reads, w.writes, look = q.ExitAll(w.Owner) })
	if w.writes > 0 {
		w.token = Token(token)
		w.notifier, q.notifier = q.notifier, nil
	}
	return look
}

// lineUp puts an owner in the queue for the write side.
func (l *RWLock) lineUp(call *sharedCall, owner Owner) *writerTry {
	p := &writerTry{begun: time.Now()}
	if p.name, p.err = l.join(l.newTier); p.err != nil {
		return p
	}
	side := sharedqueue.Write
	if core.IsShared(owner) {
		side |= sharedqueue.Shared
	}
	var look bool
	if p.outcome, p.waiter, _, look = p.name.Tier().(*rwTier).EnterFor(call.from(p.begun), owner, side); look {
		p.name.Wake()
	}
	return p
}

// comeBack waits until the owner of a wait has the write side, and restores the holds that it gave up. After an error
// it has none of them. The owner had them before, so replicas that lag are no reason to lose them.
func (l *RWLock) comeBack(ctx, over context.Context, w *writerWait, p *writerTry) error {
	for try := 0; ; try++ {
		err := l.comeBackBy(ctx, over, w, p)
		if !errors.Is(err, ErrNotReplicated) || !core.Pause(over, core.RetryPause(try, l.session.core.Config.Heartbeat), l.session.core.Closing) {
			return err
		}
		p = l.lineUp(w.call, w.Owner)
	}
}

// comeBackBy is one try of comeBack, from a place in the queue for the write side.
func (l *RWLock) comeBackBy(ctx, over context.Context, w *writerWait, p *writerTry) error {
	if p.err != nil {
		return p.err
	}
	defer p.name.Leave()
	q, o := p.name.Tier().(*rwTier), p.outcome
	if o == sharedqueue.Waiting {
		var look bool
		watch := l.watchWait(over, wish{mode: ModeWrite})
		if o, _, look = q.Wait(p.waiter, over.Done(), nil); look {
			p.name.Wake()
		}
		watch.Stop()
	}
	ok, err := l.outcome(over, p.name, o, true, p.begun)
	if !ok {
		return err
	}
	if err := q.restore(w); err != nil {
		p.name.Wake()
		return err
	}
	return nil
}

// restore gives a writer with one hold the holds of its wait, and their loss notifier. If another goroutine of the same
// owner is inside and has a notifier, both notify. After an error the one hold is gone too.
func (q *rwTier) restore(w *writerWait) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.AddHolds(w.Owner, w.reads, w.writes-1) {
		held := false
		q.leaveLocked(w.call, func() { _, held, _ = q.ExitWrite(w.Owner) })
		if held {
			return ErrTooManyHolds
		}
		w.writes-- // the loss of that one is on record
		return ErrLost
	}
	switch own := q.notifier; {
	case w.notifier == nil:
	case own != nil:
		cancel := context.CancelCauseFunc(func(error) { w.notifier.Notify() })
		own.Add(&cancel)
	default:
		q.notifier = w.notifier
	}
	return nil
}

// forfeit records the holds that an owner has lost in a wait: it still owes their Unlocks. reported says that the owner
// had come back, and that the loss was reported then.
func (l *RWLock) forfeit(w *writerWait, reported bool) {
	s := l.session
	if w.notifier != nil {
		w.notifier.CloseLost()
	}
	if w.reads > 0 {
		s.core.Debts.Add(core.DebtOf(ModeRead, l.name, w.Owner), w.reads)
	}
	if w.writes > 0 {
		s.core.Debts.Add(core.DebtOf(ModeWrite, l.name, w.Owner), w.writes)
	}
	if !reported {
		a := alarm{s: s.session, name: l.name}
		a.report(Event{Mode: ModeWrite, Owner: w.Owner, Token: w.token}, "it could not be had again after a wait")
	}
	if w.notifier != nil {
		w.notifier.Notify()
	}
}

// signalCondition wakes waiters for a condition of the write side.
func (l *RWLock) signalCondition(ctx context.Context, op string, c *Condition, all bool) error {
	owner, err := l.callingWriter(ctx, c, nil)
	if err == nil {
		err = l.signalAs(context.WithoutCancel(ctx), owner, c.name, all)
	}
	return l.error(op, err)
}

// signalAs wakes waiters. It tries for the length of a lease, or until the caller's hold is lost.
func (l *RWLock) signalAs(ctx context.Context, owner Owner, name string, all bool) error {
	m, err := l.session.conditions.Monitor(l.name)
	if err != nil {
		return err
	}
	defer m.Leave()
	unknown, err := m.Signal(ctx, owner, l.lossNotifier(owner), name, all)
	err = l.orNotHeld(ctx, owner, err)
	if err != nil && unknown { // an earlier copy may have been executed, whatever the result of the last one
		err = backend.WithOutcomeUnknown(err)
	}
	return err
}

package reentrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
)

// ErrForeignCondition is returned when a lock is asked about a condition of another lock.
var ErrForeignCondition = errors.New("the condition belongs to another lock")

// A Condition lets owners who hold a lock wait until another owner, in any process, signals that something has
// changed. It is java.util.concurrent.locks.Condition for the whole deployment: equal names of one lock are one
// condition, wherever it was made.
//
// Every Await, in this order: gives up all holds in one step with taking its place among the waiters; waits; takes
// the lock again with as many holds as before; and only then returns, also when it timed out or its context ended.
// The one exception is an error for which errors.Is(err, ErrLost): the lock could not be had again (the session was
// closed, Redis refused, a lease has passed since the end of the context or of the time limit, or with what the same owner
// has taken meanwhile there would be too many holds), or was lost before the wait began. The holds that it gave up are then gone, and each Unlock that they owe answers ErrLost. (With an
// owner that goroutines share, an Unlock gives up what another of them holds meanwhile: after ErrLost leave it out.)
//
// There are no spurious wake-ups, with one exception: a process that was paused for longer than three heartbeats is
// taken for dead, and its waiters wake when it goes on. Like all code that waits for a condition, test it in a loop.
//
// Waiting costs Redis one command per heartbeat for all waiters of a session on one condition, or one for each 500 if
// they are more.
type Condition struct {
	_    noCopy
	lock *Lock
	name string
}

// NewCondition returns the lock's condition with a name. It sends nothing; a name of more than 4096 bytes is the error of
// every wait and signal.
func (l *Lock) NewCondition(name string) *Condition { return &Condition{lock: l, name: name} }

// Name is the condition's name.
func (c *Condition) Name() string { return c.name }

// A ticket is an owner's place among the waiters of a condition.
type ticket struct {
	epoch    uint64 // numbers it, from the counter of attempts
	name     string // of the condition
	owner    Owner
	remote   backend.Remote
	woken    chan bool                // 1-buffered: signalled; true if Redis has also queued the session for the lock
	over     bool                     // lockState.mu: it is known to be signalled, or has enough, so it waits no more
	hold     hold                     // what the wait gave up
	fair     bool                     // its owner comes back in line
	ahead    time.Duration            // how far the wall clock was ahead before it was sent
	holdGone bool                     // lockState.mu: the hold is given up
	place    *localqueue.Place[Owner] // lockState.mu: in this process's queue, since the signal
}

// wake tells the waiter that it was signalled.
func (t *ticket) wake(placed bool) {
	select {
	case t.woken <- placed:
	default:
	}
}

// Await waits until it is signalled or ctx ends. It returns nil if it was signalled, also if ctx ended after that;
// ctx's error if ctx ended first, and at once, keeping the holds, if it had ended before; [ErrNotHeld] if the
// caller does not hold the lock; [ErrLost] as described at [Condition]; any other error (what Redis answered, or
// [ErrUnavailable]) if it could not begin to wait, keeping the holds.
//
// It returns a lease ([WithLease]) after the end of ctx at the latest. If the lock cannot be taken again by then, because
// Redis cannot be reached or others have it, the error is ErrLost, ctx's error, and Redis's if there was one.
func (c *Condition) Await(ctx context.Context) error {
	_, err := c.await(ctx, "await", time.Time{}, false)
	return err
}

// AwaitFor is Await with a time limit: it answers false, with no error, when the time was up first. With a limit of
// zero or less it still gives up the lock and takes it again. It returns a lease after the limit at the latest, with
// ErrLost as described at [Condition.Await].
func (c *Condition) AwaitFor(ctx context.Context, wait time.Duration) (bool, error) {
	return c.await(ctx, "await", time.Now().Add(max(wait, 0)), false)
}

// AwaitUninterruptibly is Await that ctx cannot end: ctx provides only the owner. While Redis cannot be reached only
// [Session.Close] ends it.
func (c *Condition) AwaitUninterruptibly(ctx context.Context) error {
	_, err := c.await(ctx, "await", time.Time{}, true)
	return err
}

// Signal moves the longest waiter of the whole deployment to the queue of the lock; it runs when it gets the lock,
// after the caller's Unlock at the earliest. With nobody waiting it does nothing.
//
// Waiters that are signalled one after the other come back in that order, with one exception: those of one process that
// use an unfair lock ([WithFairness]) compete, and may come back in any order.
//
// A waiter that has left is passed over, and so is one whose process Redis knows to be dead: its connections are gone
// (except in a Redis Cluster), or it has been silent for three heartbeats. If a process dies before its owner is back
// with the lock, another waiter gets the signal, after three heartbeats and the next beat of any session that waits.
//
// It works under a ctx that has ended, as Unlock does: ctx only provides the owner. While Redis does not answer it goes on
// trying until the hold is lost. It returns [ErrNotHeld] if the caller does not hold the lock, ErrLost if the hold is
// lost, and Redis's words if it refused; with [OutcomeUnknown] somebody may have been signalled.
func (c *Condition) Signal(ctx context.Context) error { return c.signal(ctx, "signal", false) }

// SignalAll is Signal for all waiters, in the order of their arrival; those of one process that use an unfair lock come
// back in any order.
func (c *Condition) SignalAll(ctx context.Context) error { return c.signal(ctx, "signal all", true) }

func (c *Condition) signal(ctx context.Context, op string, all bool) error {
	return c.holding(ctx, op, nil, func(e *lockState, owner Owner, holds int) error {
		unknown, more := false, false
		signal := func(ctx context.Context, h hold) (gone bool, err error) {
			req := backend.SignalRequest{Condition: c.name, Epoch: h.epoch, Op: h.op, All: all}
			reply, err := e.remote.Signal(ctx, req)
			unknown = unknown || OutcomeUnknown(err) || err == nil && !reply.Gone
			for _, ticket := range reply.Tickets {
				e.signalled(ticket, false)
			}
			e.noteWanted(h.epoch) // by whoever was signalled
			more = reply.More
			return reply.Gone, err
		}
		err := e.operate(context.WithoutCancel(ctx), time.Time{}, signal)
		for err == nil && more {
			err = e.operate(context.WithoutCancel(ctx), time.Time{}, signal)
		}
		if !e.finishOperation(holds, holds) {
			e.passOn()
			err = ErrLost
		}
		if err != nil && unknown { // a copy may have been executed, whatever became of the last and of the hold
			err = backend.WithOutcomeUnknown(err)
		}
		return err
	})
}

// holding calls f with the baton of the caller's hold. cancel is the context whose end forbids the call, if there is one.
func (c *Condition) holding(ctx context.Context, op string, cancel context.Context, f func(e *lockState, owner Owner, holds int) error) error {
	l := c.lock
	owner, err := l.caller(ctx)
	if err == nil && len(c.name) > maxName {
		err = fmt.Errorf("the name of the condition is %d bytes long, at most %d are allowed", len(c.name), maxName)
	}
	if err == nil && cancel != nil && cancel.Err() != nil {
		err = interruptedBy(cancel, "before the call", nil)
	}
	if err != nil {
		return l.error(op, err)
	}
	e := l.session.findState(l.name)
	if e == nil {
		return l.error(op, l.noHold(owner))
	}
	defer l.session.putState(e, 1)
	holds, ok := e.queue.Begin(owner)
	if !ok {
		e.mu.Lock() // a loss is on record before the mutex is free
		defer e.mu.Unlock()
		return l.error(op, l.noHold(owner))
	}
	return l.error(op, f(e, owner, holds))
}

// noHold is why an owner that has no hold cannot do what needs one.
func (l *Lock) noHold(owner Owner) error {
	if l.session.lostHolds.IsOwed(l.name, owner) {
		return ErrLost
	}
	return ErrNotHeld
}

func (c *Condition) await(ctx context.Context, op string, limit time.Time, deaf bool) (signalled bool, err error) {
	interrupt := ctx
	if deaf {
		interrupt = nil
	}
	err = c.holding(ctx, op, interrupt, func(e *lockState, owner Owner, holds int) (err error) {
		if deaf {
			ctx = context.WithoutCancel(ctx)
		}
		over, stop := e.s.overtime(ctx, limit)
		defer stop()
		signalled, err = e.await(ctx, over, c, owner, holds, limit)
		return err
	})
	return signalled, err
}

// await is entered with the baton of the owner's hold. It ends with the owner holding again, or with ErrLost. over is the
// wait's overtime.
func (e *lockState) await(ctx, over context.Context, c *Condition, owner Owner, holds int, limit time.Time) (bool, error) {
	select {
	case <-e.s.closing: // nobody comes back any more, so nobody leaves
		if !e.finishOperation(holds, holds) {
			e.passOn()
			return false, ErrLost
		}
		return false, ErrClosed
	default:
	}
	t := &ticket{epoch: e.s.nextEpoch(), name: c.name, owner: owner, remote: e.remote, woken: make(chan bool, 1), fair: !c.lock.unfair, ahead: e.s.ahead()}
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
	e.mayOwe = false
	e.reportRelease(ctx, &h, false, nil)
	e.s.heartbeat.add(t)
	e.queue.Leave() // the hold's reference is now the ticket's

	placed, waitErr := e.waitSignalled(ctx, over, t, limit)
	signalled := waitErr == nil
	if errors.Is(waitErr, errTimeUp) {
		waitErr = nil
	}
	e.endWaits([]uint64{t.epoch})
	if err := e.reacquire(over, c.lock, t, holds, placed); err != nil {
		if waitErr == nil && ctx.Err() != nil {
			waitErr = interruptedBy(ctx, "after the signal", nil)
		}
		e.s.heartbeat.remove(t) // its signal, if there was one, goes to another
		if signalled {
			e.s.cleaner.Do(func() { e.s.releaseOrphan(t.remote, c.lock.name, t.epoch) })
		}
		e.s.lostHolds.Add(e.name, owner, holds)
		e.s.notifyLost(e.name, t.hold, "it could not be had again after a wait")
		return false, errors.Join(ErrLost, err, waitErr)
	}
	if signalled {
		e.s.heartbeat.acknowledge(t)
	}
	return signalled, waitErr
}

// errOverdue is the cause of the end of a wait's overtime.
var errOverdue = errors.New("the lock could not be taken again within a lease of the end of the wait")

// overtime is a context that ends a lease after ctx, or a lease after the time limit if there is one: an owner then no
// longer tries to come back from its wait. stop frees what it uses.
func (s *session) overtime(ctx context.Context, limit time.Time) (over context.Context, stop func()) {
	over, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	overdue := func() { cancel(errOverdue) }
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(s.config.lease, overdue) })
	if limit.IsZero() {
		return over, func() { forget(); cancel(nil) }
	}
	timer := time.AfterFunc(time.Until(limit.Add(s.config.lease)), overdue) // without an overflow
	return over, func() { forget(); timer.Stop(); cancel(nil) }
}

// reserveLocked puts the owner of a ticket in this process's queue, once. e.mu is held.
func (e *lockState) reserveLocked(t *ticket) localqueue.Place[Owner] {
	if t.place == nil {
		place := e.queue.Reserve(t.owner, t.owner.queueMode())
		t.place = &place
		e.noteWaiterLocked(t.owner)
	}
	return *t.place
}

// reserve is reserveLocked.
func (e *lockState) reserve(t *ticket) localqueue.Place[Owner] {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reserveLocked(t)
}

// addTicket makes a ticket known before Redis knows it, so that no message for it can come too early.
func (e *lockState) addTicket(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets = append(e.tickets, t)
}

// removeTicket takes a ticket off again.
func (e *lockState) removeTicket(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets = slices.DeleteFunc(e.tickets, func(x *ticket) bool { return x == t })
}

// endWaits takes tickets off the list of those who wait.
func (e *lockState) endWaits(epochs []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, epoch := range epochs {
		if t := e.ticketLocked(epoch); t != nil {
			t.over = true
		}
	}
}

// ticketLocked is the ticket with an epoch, nil if there is none. e.mu is held.
func (e *lockState) ticketLocked(epoch uint64) *ticket {
	for _, t := range e.tickets {
		if t.epoch == epoch {
			return t
		}
	}
	return nil
}

// signalled wakes the owner of a ticket.
func (e *lockState) signalled(epoch uint64, placed bool) {
	e.mu.Lock()
	t := e.ticketLocked(epoch)
	if t != nil {
		t.over = true
		if t.holdGone && t.fair {
			e.reserveLocked(t) // in the order of the signals, whichever goroutine runs first
		}
	}
	e.mu.Unlock()
	if t != nil {
		t.wake(placed)
	}
}

// releaseForWait has Redis give up the hold and take the ticket, in one step. An error means that the hold is as it was,
// or lost. Baton.
func (e *lockState) releaseForWait(ctx, over context.Context, t *ticket, holds int, limit time.Time) error {
	cfg := &e.s.config
	e.mu.Lock()
	cohort := e.hold.cohort
	e.mu.Unlock()
	if cohort {
		holds = 1 // in Redis
	}
	req := backend.AwaitRequest{
		Condition: t.name, Ticket: t.epoch, Owner: e.attemptField(t.owner, cohort), Holds: holds,
		Seen: Token(e.s.seenToken.Load()), Patience: cfg.patience(), GrantTTL: cfg.grantTTL(),
	}
	if e.unknownUntil.After(time.Now()) {
		req.Until = e.unknownUntil
	}
	e.startReleasing() // until the hold has gone, or stays
	unknown := false
	send := func(ctx context.Context, h hold) (gone bool, err error) {
		req.Epoch = h.epoch
		status, err := e.remote.Await(ctx, req)
		if err == nil {
			err = checkTicket(status)
		}
		unknown = unknown || OutcomeUnknown(err)
		if status == backend.Signalled {
			t.wake(false)
		}
		return status == backend.Gone, err
	}
	if !limit.IsZero() {
		limit = limit.Add(cfg.lease - cfg.commandTimeout()/8) // the last try has an eighth of its time at least
	}
	err := e.operate(ctx, limit, send)
	if err != nil && unknown && ctx.Err() != nil { // the caller leaves, and must know what it leaves with
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
		// Redis may have done it: then the hold is gone, and somebody else may have the lock; and no signal is to be
		// spent on the ticket.
		e.mu.Lock()
		epoch := e.hold.epoch
		e.mu.Unlock()
		e.lose(epoch, "it is not known whether Await gave it up")
		e.s.cleaner.Do(func() { e.s.withdraw(context.Background(), t) })
	}
	return err
}

// errTimeUp is the end of AwaitFor's time; it is never returned to callers.
var errTimeUp = errors.New("the time is up")

// waitSignalled parks until the ticket is signalled, or its owner has enough. What it answers in the second case is
// decided in Redis, in one step: nil if the signal came first.
func (e *lockState) waitSignalled(ctx, over context.Context, t *ticket, limit time.Time) (placed bool, err error) {
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
		err = interruptedBy(ctx, "waiting for a signal", nil)
	case <-timeout:
		if err = errTimeUp; ctx.Err() != nil { // both, while Redis was asked: nothing says which was first
			err = interruptedBy(ctx, "waiting for a signal", nil)
		}
	case <-e.s.closing:
		err = ErrClosed
	}
	if e.s.withdraw(over, t) == backend.Signalled {
		select {
		case placed = <-t.woken:
		default:
		}
		return placed, nil
	}
	e.s.heartbeat.remove(t)
	return false, err
}

// withdraw takes a ticket back, and tells whether it was signalled before. A Redis that cannot be asked says nothing:
// the ticket is then dropped when its session does not beat for it any more.
func (s *session) withdraw(ctx context.Context, t *ticket) backend.TicketStatus {
	for try := range releaseTries {
		if try > 0 && !pause(ctx, retryPause(try, s.config.heartbeat), nil) {
			break
		}
		now := time.Now()
		call := s.commandContext(ctx, now, now.Add(s.config.commandTimeout()))
		s.stats.commands.Add(1)
		result, err := t.remote.Withdraw(call, t.name, t.epoch)
		if err == nil {
			err = checkTicket(result)
		}
		if err == nil {
			return result
		}
		if Refused(err) {
			break
		}
	}
	return backend.Gone
}

// reacquire takes the lock again with the holds that the wait gave up. ctx is the wait's overtime.
func (e *lockState) reacquire(ctx context.Context, l *Lock, t *ticket, holds int, placed bool) error {
	defer e.removeTicket(t)
	back := try{op: "await", waits: true, barges: l.unfair, begun: e.s.now(), fixed: t.hold.fixed(), holds: holds, notifier: t.hold.notifier}
	if placed {
		back.ticket, back.ahead = t.epoch, t.ahead
	}
	switch e.requeue(ctx, l, t, back) {
	case localqueue.Claimed:
		_, err := e.acquireRemote(ctx, l, t.owner, back)
		return err
	case localqueue.Reentered: // another goroutine of the same owner took the lock meanwhile
		defer e.s.putState(e, 1)
		return e.restoreHolds(ctx, t.owner, back)
	}
	e.s.putState(e, 1)
	if ctx.Err() != nil {
		return interruptedBy(ctx, "in this process's queue", nil)
	}
	return ErrClosed
}

// restoreHolds adds the holds that a wait gave up to those that the owner has meanwhile. Baton of the owner's operation.
func (e *lockState) restoreHolds(ctx context.Context, owner Owner, t try) error {
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

// shareNotifier has those who asked for the loss of an earlier hold told of the loss of this one. Baton.
func (e *lockState) shareNotifier(sig *lossNotifier) {
	if sig == nil {
		return
	}
	e.mu.Lock()
	own := e.hold.notifier
	if own == nil {
		e.hold.notifier = sig
	}
	e.mu.Unlock()
	if own != nil {
		fire := context.CancelCauseFunc(func(error) { sig.notify() })
		own.add(&fire)
	}
}

// requeue goes through the local queue: from where the signal put the owner in line, or anywhere if nobody queues.
func (e *lockState) requeue(ctx context.Context, l *Lock, t *ticket, back try) localqueue.Outcome {
	if l.unfair {
		return e.enter(ctx, t.owner, back)
	}
	return e.queue.Wait(e.reserve(t), ctx.Done(), nil)
}

// HasWaiters tells whether owners of this process wait for the condition. As in Java the lock must be held, which
// is here: by any owner of this process, since the call carries none. It returns ErrForeignCondition for a
// condition of another lock, ErrNotHeld if the lock is not held here, and an error for nil, in Java's order.
func (l *Lock) HasWaiters(c *Condition) (bool, error) {
	owners, err := l.waiters("has waiters", c)
	return len(owners) > 0, err
}

// WaitQueueLength is how many owners of this process wait for the condition. Errors are those of HasWaiters.
func (l *Lock) WaitQueueLength(c *Condition) (int, error) {
	owners, err := l.waiters("wait queue length", c)
	return len(owners), err
}

// WaitingOwners are the owners of this process that wait for the condition, longest first. Errors are those of
// HasWaiters.
func (l *Lock) WaitingOwners(c *Condition) ([]Owner, error) { return l.waiters("waiting owners", c) }

func (l *Lock) waiters(op string, c *Condition) ([]Owner, error) {
	switch {
	case c == nil:
		return nil, l.error(op, errors.New("nil condition"))
	case c.lock.session != l.session || c.lock.name != l.name:
		return nil, l.error(op, ErrForeignCondition)
	}
	var owners []Owner
	held := false
	l.withState(func(e *lockState) {
		e.mu.Lock()
		defer e.mu.Unlock()
		held = e.hold.owned()
		for _, t := range e.tickets {
			if t.name == c.name && !t.over {
				owners = append(owners, t.owner)
			}
		}
	})
	if !held {
		return nil, l.error(op, ErrNotHeld)
	}
	return owners, nil
}

// String names the condition and its lock.
func (c *Condition) String() string {
	return fmt.Sprintf("reentrant.Condition(%q of %q)", c.name, c.lock.name)
}

package exclusive

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// A Try describes a call that takes the lock, and how long it may wait. It is passed by reference, since each copy of a Try
// would touch three cache lines of the stack, and the stack of a goroutine that has waited long is no longer in the processor's
// caches.
type Try struct {
	Head    // the owner, and how it wants the lock
	Op      string
	Timeout <-chan time.Time
	Fresh   bool      // fails if the owner has the lock already
	Begun   time.Time // when the call began; zero if the session reports no events
	note    string    // the note of a new hold

	waitBegun    time.Time          // when the call began to wait in the local queue; zero if the wait is not watched
	reportedWait bool               // the long wait has been reported
	notifier     *core.LossNotifier // the notifier of the hold that the owner had before it waited for a condition
}

// A Head is what the machine needs to know of a call.
type Head = machine.Head[core.Owner]

// Expired reports whether the time of a timed try is up.
func (t *Try) Expired() bool { return !t.Deadline.IsZero() && !time.Now().Before(t.Deadline) }

// outlasts reports whether the call tries again after an error that ends other calls: an owner that comes back from a
// condition had the lock before, and replicas that lag are no reason to lose it.
func (t *Try) outlasts(err error) bool {
	return t.Holds > 0 && errors.Is(err, backend.ErrNotReplicated)
}

// within shortens d to the time that a timed try has left, but not below least.
func (t *Try) within(d, least time.Duration) time.Duration {
	if t.Deadline.IsZero() {
		return d
	}
	return min(d, max(time.Until(t.Deadline), least))
}

// TakeAs takes the lock for an owner: it goes through the local queue, and then asks Redis or re-enters. In a session that
// is being closed only an owner that has the lock can take it again.
func (h *Handle) TakeAs(ctx context.Context, owner core.Owner, t *Try) (bool, error) {
	t.Owner, t.Portable, t.Fixed, t.AtLeast = owner, core.IsPortable(owner), h.Fixed, h.AtLeast
	st, err := h.Room.getState(h)
	if err != nil {
		return h.reenterClosed(ctx, t)
	}
	common := h.Room.core.Common(owner, t.Fixed > 0 || t.AtLeast > 0)
	if t.Cohort = common && h.Room.core.Config.Cohort; !t.Cohort { // a cohort's hold goes from owner to owner, and has no note
		t.note = core.NoteOf(ctx)
		t.Alone = common && t.note == ""
	}
	got := st.enter(ctx, t, h.MaxWaiting)
	if got == localqueue.Claimed {
		return st.acquireRemote(ctx, h, t) // keeps this reference for the hold, or passes it to a clean-up
	}
	defer h.Room.putState(st)
	switch {
	case got == localqueue.Reentered:
		return st.reenter(ctx, t)
	case got == localqueue.Full:
		return false, core.QueueFull(h.MaxWaiting)
	case got == localqueue.TimedOut:
		return false, st.checkCleanUp(st.s.core.Config.CommandTimeout / 8) // tryEnter has waited for at least this time
	case got != localqueue.Cancelled:
		return false, nil
	case ctx.Err() != nil:
		if err := st.checkCleanUp(st.s.core.Config.Stall()); err != nil {
			return false, core.InterruptedBy(ctx, "waiting for Redis", err)
		}
		return false, core.Outwaited(ctx, "others come first")
	}
	return h.reenterClosed(ctx, t) // Close has shut the queue
}

// reenterClosed takes the lock once more, for an owner that has it in a session that is being closed.
func (h *Handle) reenterClosed(ctx context.Context, t *Try) (bool, error) {
	st := h.Room.findState(h.Name)
	if st == nil {
		return false, core.ErrClosed
	}
	defer h.Room.putState(st)
	if _, holds := st.Queue.Begin(t.Owner); !holds {
		return false, core.ErrClosed
	}
	return st.reenter(ctx, t)
}

// enter enters the local queue, and waits in it if the try waits. most is how many may wait there: if so many wait already,
// enter does not wait. If most is 0, there is no limit.
func (st *State) enter(ctx context.Context, t *Try, most int) localqueue.Outcome {
	mode := queueMode(t.Owner)
	if t.Barges {
		mode |= localqueue.Barging
	}
	if !t.Waits {
		return st.tryEnter(ctx, mode, t)
	}
	if ctx.Err() != nil {
		return localqueue.Cancelled
	}
	place := st.Queue.ReserveWithin(t.Owner, mode, most)
	if st.watched.Load() {
		st.mu.Lock()
		st.noteWaiterLocked(t.Owner)
		st.mu.Unlock()
	}
	if got := place.Outcome(); got != localqueue.Busy {
		return got
	}
	got := st.wait(ctx, place, t)
	if got == localqueue.TimedOut && st.isCleaning() { // no owner has the lock, so the try asks Redis once
		got = st.tryEnter(ctx, mode, t)
	}
	return got
}

// queueMode returns how an owner waits in the local queue.
func queueMode(o core.Owner) localqueue.Mode {
	if core.IsShared(o) {
		return localqueue.Shared
	}
	return localqueue.Fair
}

// tryEnter enters the local queue without waiting behind another owner. It does wait for a clean-up, for as long as one
// command of the try may take: the clean-up may be about to release the very lock that the caller asks for. If the time of
// the try is up, the server has an eighth of a command's time limit for the clean-up.
func (st *State) tryEnter(ctx context.Context, mode localqueue.Mode, t *Try) localqueue.Outcome {
	var limit <-chan time.Time
	for {
		st.mu.Lock() // a clean-up gets the baton, and passes it on, under st.mu
		got, cleaning, silent := st.Queue.TryClaim(t.Owner, mode), st.cleaning, st.s.core.Age()-st.cleaningSince
		st.mu.Unlock()
		if got != localqueue.Busy || cleaning == nil {
			return got
		}
		if limit == nil {
			most := st.s.core.Config.CommandTimeout
			timer := time.NewTimer(t.within(most, most/8-silent))
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-cleaning:
		case <-limit:
			return localqueue.TimedOut
		case <-ctx.Done():
			return localqueue.Cancelled
		}
	}
}

// acquireRemote gets the lock for the head of the queue, which inherits its session's hold or asks Redis. The caller
// has the baton and one reference to the lock state. When acquireRemote returns true, the owner holds the lock, and the
// hold has a reference. When it returns false, the baton has been passed on, and the reference dropped or passed to a
// clean-up.
func (st *State) acquireRemote(ctx context.Context, l *Handle, t *Try) (bool, error) {
	if (t.Cohort || t.Alone) && st.inherit(ctx, l, t) {
		return true, nil
	}
	now := time.Now()
	a := attempt{st: st, l: l, begun: t.waitBegun}
	if a.begun.IsZero() {
		a.begun = now
	}
	sends := st.interrupted(ctx, nil) == nil // if false, mayAsk ends the call
	st.mu.Lock()
	at := st.momentOfCommand(now, t.Owner)
	s := st.m.Begin(&at, &t.Head)
	if s.Do == machine.AskAnew && sends { // the first copy begins in the same critical section as the attempt
		a.nextCopyLocked(&at, true)
	}
	st.mu.Unlock()
	if s.Dropped {
		st.s.putState(st) // the reference of the idle hold
	}
	return a.drive(ctx, t, s)
}

// inherit gives the head the hold that its session has already, without a command. It returns false if the session has no such
// hold, or if the head must ask Redis. The stack frames of inherit and of the functions that it calls are small, since the
// stack of a goroutine that has waited long is no longer in the processor's caches. The caller has the baton.
func (st *State) inherit(ctx context.Context, l *Handle, t *Try) bool {
	if ctx.Err() != nil {
		return false
	}
	st.mu.Lock()
	if st.s.core.Abandoned.Load() {
		st.mu.Unlock()
		return false
	}
	age := st.s.core.Age()
	do, dropped := st.m.Inherit(&st.s.options, age, st.Queue.Len(), &t.Owner)
	if do == machine.Settle {
		st.settleLocked(ctx, l, t, st.s.core.Opened.Add(age), max(t.Holds, 1))
	}
	st.mu.Unlock()
	if dropped {
		st.s.putState(st) // the reference of the idle hold
	}
	return do == machine.Settle
}

// An attempt is what the driver knows of the head's attempt. It has no pointer to the Try, which is on the caller's stack: with
// such a pointer, the Try would be allocated on the heap, even for a call that only waits in the local queue.
type attempt struct {
	st *State
	l  *Handle

	begun    time.Time
	inOutage bool // the attempt is counted among the waiters of an outage
	asked    bool // a copy was begun
	tried    int  // the Tried of the next Policy: the larger it is, the longer the first pause between copies
	next     bool // req is the next copy, which has begun already
	req      backend.AcquireRequest
	last     error        // the error of the latest copy; nil at first, and after the reply Waiting
	heard    bool         // a timed try has had a reply since its time was up
	step     machine.Step // the step that followed the latest copy

	// ended says that the call has ended without a further copy, with the result in got and err, and no longer has the baton.
	ended bool
	got   bool
	err   error
}

// drive carries out what the machine decides, until the head holds the lock or the call has ended. The caller has the baton.
func (a *attempt) drive(ctx context.Context, t *Try, s machine.Step) (bool, error) {
	st := a.st
	for {
		switch s.Do {
		case machine.Settle:
			return true, nil
		case machine.Ask, machine.AskAnew:
			err := a.ask(ctx, t)
			if a.ended {
				return a.got, a.err
			}
			if s = a.step; err != nil {
				st.leave(s)
				return false, err
			}
			continue
		case machine.Park:
			if !s.Woken {
				st.park(ctx, t, s.TTL)
			}
		case machine.Pause:
			core.Pause(ctx, s.Wait, st.s.core.Closing)
		default: // Leave, PassOn
			st.leave(s)
			return false, st.abandoned()
		}
		s = a.woken(ctx, t)
	}
}

// abandoned returns ErrClosed if the session has given up its holds, so that no owner gets a hold.
func (st *State) abandoned() error {
	if st.s.core.Abandoned.Load() {
		return core.ErrClosed
	}
	return nil
}

// ask sends copies of the attempt until Redis has replied to one, or the call has ended. For a call that does not wait, it
// sends one copy only.
func (a *attempt) ask(ctx context.Context, t *Try) error {
	earlier := a.last
	p := core.Policy{
		Stop: func(last error) error {
			if a.next { // acquireRemote has called interrupted, and begun this copy
				return nil
			}
			if earlier != nil {
				last = core.MergeOutcome(earlier, last)
			}
			return a.mayAsk(ctx, t, last)
		},
		Insists: t.outlasts,
		Closing: a.st.s.core.Closing,
		Tried:   a.tried,
	}
	if !t.Waits {
		p.Tries = 1
	}
	if !t.Deadline.IsZero() {
		limit := a.st.s.core.Config.CommandTimeout
		p.Limit = func(sent time.Time) time.Time {
			if a.last != nil { // the server has had its time already, and did not reply
				return sent.Add(t.within(limit, 0))
			}
			return sent.Add(t.within(limit, limit/8))
		}
		p.Shorten = func(pause time.Duration) time.Duration { return t.within(pause, 0) }
	}
	err := a.st.s.core.Repeat(ctx, p, func(call context.Context, c core.Copy) error { return a.send(ctx, call, t, c) })
	if err != nil {
		err = core.MergeOutcome(earlier, err)
	}
	return err
}

// mayAsk is called before each copy of an attempt, except a first copy that acquireRemote has begun. It returns an error if the
// copy is not to be sent: the call has then ended, and the baton has been passed on. last is the latest error, nil if the
// latest reply was that another owner has the lock.
func (a *attempt) mayAsk(ctx context.Context, t *Try, last error) error {
	st := a.st
	a.last = last
	if a.asked {
		a.reportLongWait(ctx, t, last)
		switch st.Queue.GiveWay(t.Owner, queueMode(t.Owner), ctx.Done(), t.Timeout) {
		case localqueue.Busy:
		case localqueue.Claimed: // the Resume that went first may have taken the lock
			a.overtaken(t)
		case localqueue.Reentered: // the Resume was of this very owner
			defer st.s.putState(st)
			return a.end(st.reenter(ctx, t))
		default: // another owner has the baton, and this one has left the queue
			st.s.putState(st)
			if err := st.interrupted(ctx, last); err != nil {
				return a.end(false, err)
			}
			return a.end(false, last) // the time was up
		}
	}
	err := st.interrupted(ctx, last)
	if last == nil {
		err = st.outwaited(ctx)
	}
	if err != nil {
		st.giveUp()
		return a.end(false, err)
	}
	if a.asked && t.Expired() && !a.asksOnceMore(t) {
		st.giveUp()
		return a.end(false, last) // nil if the last reply was that another owner has the lock
	}
	return nil
}

// asksOnceMore reports whether a timed try whose time is up sends one more copy: the try had a place in Redis, and the message
// with its grant can have been lost.
func (a *attempt) asksOnceMore(t *Try) bool { return t.Waits && a.last == nil && !a.heard }

// end ends the call of an attempt with the call's result. It always returns an error, which ends the repetition of copies.
func (a *attempt) end(got bool, err error) error {
	a.ended, a.got, a.err = true, got, err
	return core.ErrUnsettled
}

// overtaken begins anew the attempt of a head that let a Resume go first, and that has the baton again.
func (a *attempt) overtaken(t *Try) {
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	at := st.moment(st.s.core.Age())
	st.m.Overtaken(&at, &t.Head)
}

// interrupted returns the reason why the head must stop, nil if it need not. After the deadline of ctx the head must stop even
// if ctx has not ended yet, since no command could be sent.
func (st *State) interrupted(ctx context.Context, last error) error {
	select {
	case <-st.s.core.Closing:
		return core.MergeOutcome(last, core.ErrClosed)
	default:
	}
	if ctx.Err() != nil || core.DeadlinePassed(ctx) {
		return core.InterruptedBy(ctx, "waiting for Redis", last)
	}
	return nil
}

// outwaited is like interrupted, for a head that has sent no copy yet, or whose latest reply was that others come first. If ctx
// has ended, the error says that others come first.
func (st *State) outwaited(ctx context.Context) error {
	err := st.interrupted(ctx, nil)
	if err == nil || errors.Is(err, core.ErrClosed) {
		return err
	}
	return core.Outwaited(ctx, "others come first")
}

// reportLongWait reports, once, that the head has waited long. If last is nil, the event has the lock's state, with the holder,
// unless the head no longer waits: no call may last longer because of its report.
func (a *attempt) reportLongWait(ctx context.Context, t *Try, last error) {
	st := a.st
	if t.reportedWait || time.Since(a.begun) < st.s.core.Config.Lease {
		return
	}
	t.reportedWait = true
	event := core.Event{Kind: core.EventWaitingLong, Lock: st.name, Owner: t.Owner}
	if last == nil && st.s.core.TakesWarnings() && !t.Expired() && st.interrupted(ctx, nil) == nil {
		seen := st.s.core.AskForHolder(ctx, st.remote, t.within(st.s.core.Config.CommandTimeout, 0))
		seen.Err = nil
		seen.Into(&event)
	}
	event.Err = last
	st.s.core.ReportLongWait(core.RunningIn(ctx), event, a.begun)
}

// send sends one copy of the attempt.
func (a *attempt) send(ctx, call context.Context, t *Try, c core.Copy) error {
	st := a.st
	if !a.next {
		st.mu.Lock()
		at := st.momentOfCommand(c.Sent, t.Owner)
		a.nextCopyLocked(&at, st.m.Phase() == machine.Begun)
		st.mu.Unlock()
	}
	a.next = false
	reply, err := st.remote.Acquire(call, a.req)
	if err == nil {
		err = check.Acquire(&reply)
	} else {
		err = core.WrapUnavailable(ctx, err)
	}
	if err != nil {
		a.unanswered(t, err)
		return err
	}
	a.replied(ctx, t, &reply)
	return nil
}

// nextCopyLocked begins a copy of the attempt, under a new epoch if anew, and otherwise under the epoch of the last copy. The
// caller has the baton, and st.mu is held.
func (a *attempt) nextCopyLocked(at *machine.Moment, anew bool) {
	st, next := a.st, uint64(0)
	if anew {
		next = st.newEpoch()
	}
	st.m.Send(at, next)
	a.req, a.next, a.asked = st.m.AcquireRequest(at), true, true
}

// replied handles Redis's reply to a copy.
func (a *attempt) replied(ctx context.Context, t *Try, reply *backend.AcquireReply) {
	st := a.st
	a.inOutage = false
	if st.s.core.Outages.Open.Load() > 0 {
		st.s.core.Outages.Answered(st.name)
	}
	st.mu.Lock()
	at := st.momentOfCommand(time.Now(), t.Owner)
	a.step = st.m.Replied(&at, reply)
	a.settleLocked(ctx, t, at.Now, &a.step)
	st.mu.Unlock()
	if reply.Status != backend.Granted {
		a.heard = t.Expired()
	}
	if reply.Status == backend.Waiting {
		a.last, a.tried = nil, 1
	}
	if a.step.Yielded {
		st.s.core.Counts.Yields.Add(1)
		st.s.core.Report(context.Background(), core.Event{Kind: core.EventYielded, Lock: st.name})
	}
}

// unanswered handles a copy without a reply. If that ends the attempt, the repetition ends too.
func (a *attempt) unanswered(t *Try, err error) {
	st := a.st
	if t.Waits {
		a.inOutage = st.s.core.NoteOutage(st.name, err, !a.inOutage) || a.inOutage
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	at := st.moment(st.s.core.Age())
	a.step = st.m.Unanswered(&at, machine.Failure{Unknown: backend.OutcomeUnknown(err), Refused: backend.Refused(err) && !t.outlasts(err)})
}

// woken handles the end of a pause, or of the time that the head was parked. The caller has the baton.
func (a *attempt) woken(ctx context.Context, t *Try) machine.Step {
	st := a.st
	st.mu.Lock()
	defer st.mu.Unlock()
	at := st.momentOfCommand(time.Now(), t.Owner)
	s := st.m.Woken(&at)
	a.settleLocked(ctx, t, at.Now, &s)
	return s
}

// settleLocked makes the head the holder if the step says so. st.mu is held.
func (a *attempt) settleLocked(ctx context.Context, t *Try, now time.Time, s *machine.Step) {
	if s.Do == machine.Settle {
		a.st.settleLocked(ctx, a.l, t, now, s.Holds)
		a.st.startUpkeepLocked(t.note, s.Check)
	}
}

// park waits until the head is woken, or until it must ask Redis again: at the next heartbeat, or when the holder's
// lease ends if that is sooner. The jitter keeps waiters from asking all at once. ttl is the rest of the holder's lease,
// negative if that is not known.
func (st *State) park(ctx context.Context, t *Try, ttl time.Duration) {
	cfg := &st.s.core.Config
	wait := cfg.Heartbeat - cfg.Jitter(cfg.Heartbeat/8)
	if ttl >= 0 && ttl < wait {
		wait = ttl + time.Millisecond + cfg.Jitter(time.Millisecond)
	}
	if !t.Deadline.IsZero() {
		wait = min(wait, time.Until(t.Deadline))
	}
	if st.timer == nil {
		st.timer = time.NewTimer(wait)
	} else {
		st.timer.Reset(wait)
	}
	defer st.timer.Stop()
	select {
	case <-st.wake:
	case <-st.timer.C:
	case <-ctx.Done():
	case <-st.s.core.Closing:
	}
}

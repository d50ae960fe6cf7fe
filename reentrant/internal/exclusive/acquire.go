package exclusive

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// acquireRemote gets the lock for the head of the queue, which inherits its session's hold or asks Redis. The caller
// has the baton and one reference to the lock state. When acquireRemote returns true, the owner holds the lock, and the
// hold has a reference. When it returns false, the baton has been passed on, and the reference dropped or passed to a
// clean-up.
//
// It is the only long function of the package. Each iteration of
// its loop sends the attempt until there is a reply, and handles that:
//
//	        ┌────────────────────────────────────────────────┐
//	        ▼                                                │
//	acquire(epoch) ── granted, and in time ──▶ settle        │
//	        ├──────── granted too late ──────▶ again, same epoch
//	        ├──────── stale ─────────────────▶ again, next epoch
//	        ├──────── no reply ──────────────▶ pause, same epoch
//	        ├──────── refused ───────────────▶ give up       │
//	        ├──────── waiting, for a try ────▶ give up, or once more if the lock may be idle
//	        └──────── waiting ───────────────▶ spin or park ─┤
//	                                             │ grant     │
//	                                             ▼           │
//	                                  trusted long enough? ──┘ no
//	                                             │ yes
//	                                             ▼
//	                                           settle
func (e *State) acquireRemote(ctx context.Context, l *Handle, owner core.Owner, t *Try) (bool, error) {
	if e.s.core.Cohort(owner, t.Fixed) && e.inherit(ctx, l, owner, t) {
		return true, nil
	}
	cfg := &e.s.core.Config
	a := e.begin(owner, t)
	if a.adopted && e.park(ctx, t, -1) {
		if h, ok := e.accept(&a, owner); ok {
			return e.settle(ctx, l, h, t)
		}
	}
	spins, idle := cfg.Spin, true
	for {
		reply, sent, err := e.sendAcquire(ctx, &a, owner, t)
		switch {
		case a.ended:
			return a.got, err
		case err != nil:
			e.giveUp()
			return false, err
		case reply.Status == backend.Granted:
			h := a.newHold(owner, reply, sent)
			if now := time.Now(); h.Lease.Trusted(now) && !lease.Napped(a.ahead, e.s.core.Ahead()) {
				if e.turn.limit == 0 || a.req.Yield {
					e.turn = e.newTurn(now.Sub(e.s.core.Opened))
				}
				return e.settle(ctx, l, h, t)
			}
			// The reply came too late to be trusted. The next copy confirms the hold and gives it a full lease. A fixed
			// lease starts only once, so it needs a new epoch.
			a.req.KeepTTL = false
			if a.req.Fixed {
				a.req.Epoch = e.newEpoch(a.req.Queue)
			}
			continue
		case reply.Status == backend.Stale:
			// The epoch is used up: for instance, its grant ended before it was accepted.
			a.req.Epoch = e.newEpoch(a.req.Queue)
			continue
		}
		a.last, a.tried = nil, 1
		switch {
		case t.Waits:
		case reply.Lingers && idle && time.Since(sent) < cfg.Heartbeat/4: // else both together could take long
			idle = false // its session was asked, and gives it up meanwhile if it does not use it
			core.Pause(ctx, max(time.Since(sent), minHandOver), e.s.core.Closing)
			continue
		default:
			e.giveUp()
			return false, nil
		}
		if spins > 0 {
			spins--
			continue
		}
		if e.park(ctx, t, reply.TTL) {
			if h, ok := e.accept(&a, owner); ok {
				return e.settle(ctx, l, h, t)
			}
		}
	}
}

// mayAsk is called before each copy of an attempt. It returns an error if none is to be sent: the call has then ended, and
// the baton has been passed on. last is the latest error, nil if the latest reply was that another owner has the lock.
func (e *State) mayAsk(ctx context.Context, a *attempt, owner core.Owner, t *Try, last error) error {
	again := a.asked
	a.asked, a.last = true, last
	if again {
		a.reportLongWait(ctx, e, t, last)
		switch e.giveWay(ctx, owner, t) {
		case localqueue.Busy:
		case localqueue.Claimed: // the Resume that went first may have taken the lock
			e.takeHanded(owner)
			a.req.KeepTTL = false
			a.req.Epoch = e.newEpoch(a.req.Queue)
		case localqueue.Reentered: // the Resume was of this very owner
			defer e.s.PutState(e)
			return a.end(e.addHolds(ctx, owner, t))
		default: // another owner has the baton, and this one has left the queue
			e.s.PutState(e)
			if err := e.interrupted(ctx, last); err != nil {
				return a.end(false, err)
			}
			return a.end(false, last) // the time was up
		}
	}
	if err := e.interrupted(ctx, last); err != nil {
		e.giveUp()
		return a.end(false, err)
	}
	if again && t.Expired() {
		e.giveUp()
		return a.end(false, last) // nil if the last reply was that another owner has the lock
	}
	return nil
}

// end ends the call of an attempt with its result. It returns an error in any case, which ends the repetition too.
func (a *attempt) end(got bool, err error) error {
	a.ended, a.got, a.err = true, got, err
	return core.ErrUnsettled
}

// minHandOver is how long a try leaves at least to the session of a lock that may be idle.
const minHandOver = time.Millisecond

// addHolds adds the head's holds to those that a Resume got for the same owner. Baton of the owner's operation.
func (e *State) addHolds(ctx context.Context, owner core.Owner, t *Try) (bool, error) {
	if t.holds == 0 {
		return e.reenter(ctx, owner, t)
	}
	err := e.restoreHolds(ctx, owner, t)
	return err == nil, err
}

// Expired reports whether the time of a timed try is up.
func (t *Try) Expired() bool { return !t.Deadline.IsZero() && !time.Now().Before(t.Deadline) }

// outlasts reports whether an owner that comes back from a condition tries again after an error. It had the lock before,
// and replicas that lag are no reason to lose it.
func (t *Try) outlasts(err error) bool {
	return t.holds > 0 && errors.Is(err, backend.ErrNotReplicated)
}

// within returns d, or the time left of a timed try if that is less, but not less than least.
func (t *Try) within(d, least time.Duration) time.Duration {
	if t.Deadline.IsZero() {
		return d
	}
	return min(d, max(time.Until(t.Deadline), least))
}

// interrupted returns the reason why the head must stop, nil if it need not. After the deadline of ctx it must stop
// even if ctx has not ended yet: no command could be sent.
func (e *State) interrupted(ctx context.Context, last error) error {
	select {
	case <-e.s.core.Closing:
		return core.MergeOutcome(last, core.ErrClosed)
	default:
	}
	if ctx.Err() != nil || core.DeadlinePassed(ctx) {
		return core.InterruptedBy(ctx, "waiting for Redis", last)
	}
	return nil
}

// An attempt is the head's request, and what is known of the copies that were sent.
type attempt struct {
	req      backend.AcquireRequest
	cohort   bool
	handed   bool // the last holder of this session handed the lock to the head
	adopted  bool // it uses the place in Redis that came with a signal
	begun    time.Time
	inOutage bool               // it is counted among the waiters of an outage
	refuted  time.Time          // when the latest copy was sent to which Redis replied "waiting": earlier grants are over
	kept     lease.Lease        // with KeepTTL: the lease that goes on
	ahead    time.Duration      // how far the wall clock was ahead of the monotonic one before the latest copy was sent
	notifier *core.LossNotifier // of the hold that a wait gave up

	asked bool  // a copy has been sent, or was about to be
	tried int   // where the pauses between copies begin
	last  error // the error of the latest copy; nil if there is none, or Redis has replied since that another owner has the lock

	// ended says that the call has ended before Redis replied, with the result that follows, and has passed the baton on.
	ended bool
	got   bool
	err   error
}

// ReportLongWait reports, once, that the head has waited long. If last is nil, the event has the lock's state, with the
// holder.
func (a *attempt) reportLongWait(ctx context.Context, e *State, t *Try, last error) {
	if t.reportedWait || time.Since(a.begun) < e.s.core.Config.Lease {
		return
	}
	t.reportedWait = true
	event := core.Event{Kind: core.EventWaitingLong, Lock: e.name, Owner: e.head}
	if last == nil && e.s.core.TakesWarnings() {
		limit := e.s.core.Config.CommandTimeout
		seen := e.s.core.AskForHolder(e.remote, t.within(limit, limit/8))
		seen.Err = nil
		seen.Into(&event)
	}
	event.Err = last
	e.s.core.ReportLongWait(core.RunningIn(ctx), event, a.begun)
}

// begin begins the head's attempt, with what the last owner of this session left. Baton.
func (e *State) begin(owner core.Owner, t *Try) attempt {
	e.mu.Lock()
	idle := e.Hold.phase == phaseIdle
	if idle {
		e.wakeIdleLocked()
	}
	a := e.newAttemptLocked(owner, t)
	if a.adopted = t.ticket > 0 && e.adoptLocked(&a, t); !a.adopted {
		a.req.Epoch = e.newEpochLocked(a.req.Queue)
	}
	e.mu.Unlock()
	if idle {
		e.s.PutState(e) // the reference of the idle hold
	}
	return a
}

// newAttemptLocked returns the head's attempt and its request. A hold that the last owner handed over ends here; the
// attempt keeps its lease if enough of that is left. e.mu is held.
func (e *State) newAttemptLocked(owner core.Owner, t *Try) attempt {
	cfg := &e.s.core.Config
	now := time.Now()
	a := attempt{notifier: t.notifier, begun: now, cohort: e.s.core.Cohort(owner, t.Fixed), req: backend.AcquireRequest{
		Holds: max(t.holds, 1), Lease: cfg.Lease, Queue: t.Waits, Barge: t.Barges, Tokens: 1,
		Seen: backend.Token(e.s.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: cfg.GrantTTL, Prior: e.prior,
	}}
	if a.cohort {
		a.req.Owner, a.req.Holds, a.req.Tokens = cfg.CohortOwner(), 1, cfg.Block()
	} else {
		a.req.Owner = e.ownerField(owner)
	}
	if t.Fixed > 0 {
		a.req.Lease, a.req.Fixed = t.Fixed, true
	}
	if !t.waitBegun.IsZero() {
		a.begun = t.waitBegun
	}
	e.head = owner
	if h := e.Hold; h.phase == phaseHanded {
		e.clearLocked()
		a.handed = true
		if !a.req.Fixed && h.passesLease(now, cfg.Lease) {
			a.req.KeepTTL, a.kept = true, h.Lease
		}
	}
	if e.turn.limit == 0 || !e.unreleased {
		e.turn = turn{}
	} else { // the turn goes on, also after a head that was handed the lock and left
		a.req.Yield = t.Waits && (e.spent(now.Sub(e.s.core.Opened)) || a.cohort && a.handed)
		a.req.KeepTTL = a.req.KeepTTL && !a.req.Yield // if no session waits, Redis gives a new lease instead of yielding
		e.turn.passes++
	}
	return a
}

// adoptLocked gives the attempt the place in Redis that came with a signal, so that it need not send anything before
// the grant comes. It returns false if a newer attempt of this session has taken over the place. e.mu is held.
func (e *State) adoptLocked(a *attempt, t *Try) bool {
	if e.sentEpoch > t.ticket || a.handed {
		return false
	}
	a.req.Epoch, e.sentEpoch, e.waiting = t.ticket, t.ticket, true
	a.req.Prior, e.prior = backend.Prior{}, backend.Prior{}
	a.ahead = t.ahead
	e.lastUsed = 0
	select {
	case <-e.wake:
	default:
	}
	if e.grant.Epoch == t.ticket { // the grant came before the baton
		e.nudge()
	}
	e.unreleased = true
	return true
}

// newEpoch gives the attempt a new epoch. Nothing that Redis has or grants under an earlier epoch is trusted from here
// on. waiting says that the attempt may wait for a grant. Baton.
func (e *State) newEpoch(waiting bool) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.newEpochLocked(waiting)
}

// newEpochLocked is newEpoch with e.mu held.
func (e *State) newEpochLocked(waiting bool) uint64 {
	e.lastUsed, e.prior = 0, backend.Prior{}
	e.sentEpoch, e.waiting, e.grant = e.s.core.Epochs.Add(1), waiting, backend.Grant{}
	select {
	case <-e.wake: // left by an earlier attempt
	default:
	}
	return e.sentEpoch
}

// sendAcquire sends the attempt until Redis has replied to it, or the call has ended. An attempt that does not wait is sent
// once. sent is when the copy was sent that has the reply.
func (e *State) sendAcquire(ctx context.Context, a *attempt, owner core.Owner, t *Try) (reply backend.AcquireReply, sent time.Time, err error) {
	earlier := a.last
	p := core.Policy{
		Stop: func(last error) error {
			if earlier != nil {
				last = core.MergeOutcome(earlier, last)
			}
			return e.mayAsk(ctx, a, owner, t, last)
		},
		Insists: t.outlasts,
		Closing: e.s.core.Closing,
		Tried:   a.tried,
	}
	if !t.Waits {
		p.Tries = 1
	}
	if !t.Deadline.IsZero() {
		limit := e.s.core.Config.CommandTimeout
		p.Limit = func(sent time.Time) time.Time { return sent.Add(t.within(limit, limit/8)) }
		p.Shorten = func(pause time.Duration) time.Duration { return t.within(pause, 0) }
	}
	err = e.s.core.Repeat(ctx, p, func(call context.Context, c core.Copy) (err error) {
		sent = c.Sent
		reply, err = e.sendCopy(ctx, call, a, t, c)
		return err
	})
	switch {
	case a.ended:
		err = a.err
	case err != nil:
		err = core.MergeOutcome(earlier, err)
	}
	return reply, sent, err
}

// sendCopy sends one copy of the attempt, and records what Redis may have of it.
func (e *State) sendCopy(ctx, call context.Context, a *attempt, t *Try, c core.Copy) (backend.AcquireReply, error) {
	a.ahead, a.req.NotAfter = e.s.core.Ahead(), c.Limit
	reply, err := e.remote.Acquire(call, a.req)
	if err != nil {
		err = core.WrapUnavailable(ctx, err)
	} else {
		err = check.Acquire(&reply)
	}
	a.req.Prior = backend.Prior{} // a second copy is sent when the state in Redis is not known
	if err == nil {
		a.inOutage = false
		e.s.core.Outages.Answered(e.name)
	} else if t.Waits {
		a.inOutage = e.s.core.NoteOutage(e.name, err, !a.inOutage) || a.inOutage
	}
	switch {
	case err == nil && reply.Status == backend.Granted:
		e.unreleased, e.prior = true, reply.Prior
	case err == nil:
		e.unreleased = e.unreleased || a.req.Queue
		if a.req.Yield && reply.Status == backend.Waiting {
			e.s.core.Counts.Yields.Add(1)
			e.s.core.Report(context.Background(), core.Event{Kind: core.EventYielded, Lock: e.name})
		}
		// Another session has the lock now. The next copy asks for a full lease, and its grant begins a new turn.
		a.req.KeepTTL, a.req.Yield, e.turn, a.refuted = false, false, turn{}, c.Sent
	case backend.OutcomeUnknown(err):
		e.unreleased = true
		a.req.KeepTTL = false
		e.unknownUntil = max(e.unknownUntil, a.req.NotAfter.Sub(e.s.core.Opened))
	}
	return reply, err
}

// newHold returns the hold of a granted attempt.
func (a *attempt) newHold(owner core.Owner, reply backend.AcquireReply, sent time.Time) Hold {
	h := Hold{cohort: a.cohort, Owner: owner, Epoch: a.req.Epoch, Token: reply.First, last: reply.Last, span: a.req.Lease, notifier: a.notifier}
	switch {
	case a.req.KeepTTL:
		h.Lease = a.kept
	case a.req.Fixed:
		// An earlier copy may have started the lease, so the time left of it counts.
		h.Lease = lease.New(sent, a.ahead, min(a.req.Lease, reply.TTL), true)
	default:
		h.Lease = lease.New(sent, a.ahead, a.req.Lease, false)
	}
	return h
}

// park waits until the head is woken, or until it must ask Redis again: at the next heartbeat, or when the holder's
// lease ends if that is sooner. The jitter keeps waiters from asking all at once. It reports whether the head was
// woken, as a rule by a grant. ttl is the rest of the holder's lease, negative if that is not known.
func (e *State) park(ctx context.Context, t *Try, ttl time.Duration) bool {
	cfg := &e.s.core.Config
	wait := cfg.Heartbeat - cfg.Jitter(cfg.Heartbeat/8)
	if ttl >= 0 && ttl < wait {
		wait = ttl + time.Millisecond + cfg.Jitter(time.Millisecond)
	}
	if !t.Deadline.IsZero() {
		wait = min(wait, time.Until(t.Deadline))
	}
	if e.timer == nil {
		e.timer = time.NewTimer(wait)
	} else {
		e.timer.Reset(wait)
	}
	defer e.timer.Stop()
	select {
	case <-e.wake:
		return true
	case <-e.timer.C:
	case <-ctx.Done():
	case <-e.s.core.Closing:
	}
	return false
}

// accept returns the hold of a pushed grant, without a command, if the grant can be trusted for long enough to be
// renewed. It cannot if the moment of the grant is not known, if Redis has replied since that another owner has the
// lock, if less than half of its TTL is left, if the machine slept since Redis was last asked, if the lease is fixed
// (it starts when it is accepted), or if it is more than the attempt asked for. The next copy of the attempt then
// confirms the grant.
func (e *State) accept(a *attempt, owner core.Owner) (Hold, bool) {
	e.mu.Lock()
	g := e.grant
	e.mu.Unlock()
	if g.Epoch != a.req.Epoch || g.NotBefore.IsZero() || g.NotBefore.Before(a.refuted) || a.req.Fixed || !check.Grant(&a.req, &g) {
		return Hold{}, false
	}
	now := time.Now()
	l := lease.Pushed(g.NotBefore, a.ahead, g.TTL)
	if l.Remaining(now) < g.TTL/2 || lease.Napped(a.ahead, e.s.core.Ahead()) {
		return Hold{}, false
	}
	e.turn = e.newTurn(now.Sub(e.s.core.Opened))
	if g.First == g.Last {
		e.prior = backend.Prior{Epoch: g.Epoch, Owner: a.req.Owner, Token: g.First, Pushed: true}
	}
	return Hold{cohort: a.cohort, Owner: owner, Epoch: g.Epoch, Token: g.First, last: g.Last, Lease: l, span: a.req.Lease, notifier: a.notifier}, true
}

// giveUp ends an attempt that got no hold. The next head takes over what Redis has for the session, such as its place
// among the waiters. If there is no next head, a clean-up releases it in the background, so that a caller whose context
// ended does not wait for Redis.
func (e *State) giveUp() {
	e.mu.Lock()
	e.waiting = false
	e.mu.Unlock()
	if !e.unreleased {
		e.Queue.Leave()
		e.s.PutState(e)
		return
	}
	e.passOn()
}

// passOn passes the baton to the next owner, which takes over what Redis has for the session. If there is none, it
// passes the baton and its reference to a clean-up in the background.
func (e *State) passOn() {
	e.mu.Lock()
	passed := e.Queue.Pass()
	if !passed {
		e.clearLocked()
		e.startCleaningLocked()
	}
	e.mu.Unlock()
	if passed {
		e.s.PutState(e)
		return
	}
	e.s.core.Cleaner.Do(e.cleanUp)
}

// startCleaningLocked gives the baton to a clean-up. e.mu is held.
func (e *State) startCleaningLocked() {
	e.cleaning, e.cleaningSince = make(chan struct{}), e.s.core.Age()
}

// cleanUp releases what given-up attempts have in Redis, then passes the baton on. It owns the baton and a reference.
// It waits no longer than ReleaseTime: the epoch of the next attempt is higher than that of anything left.
func (e *State) cleanUp() {
	if err := e.release(context.Background()); err != nil && !errors.Is(err, core.ErrLost) && !e.s.core.Outages.Add(e.name) {
		e.s.core.Log(slog.LevelWarn, "could not give back an attempt yet", slog.String("lock", e.name), slog.Any("error", err))
	}
	e.mu.Lock()
	done := e.cleaning
	e.cleaning = nil
	e.Queue.Leave()
	e.mu.Unlock()
	close(done)
	e.s.PutState(e)
}

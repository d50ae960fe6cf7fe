package exclusive

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// ResumeAs moves the hold of an owner to this session.
func (l *Handle) ResumeAs(ctx context.Context, owner core.Owner, remote backend.Resumer, t *Try) error {
	e, err := l.Room.getState(l)
	if err != nil {
		return err
	}
	if holder, held := e.Queue.Holder(); held && holder != owner {
		l.Room.PutState(e) // another owner of this session has the lock, so this one does not
		return core.ErrNotHeld
	}
	place := e.Queue.Reserve(owner, localqueue.First|localqueue.Shared)
	e.nudge() // the head, which may be waiting for this very hold
	switch e.wait(ctx, owner, place, t) {
	case localqueue.Claimed:
		return e.resume(ctx, l, owner, remote, t)
	case localqueue.Reentered:
		err = e.resumeOwn(ctx, l, owner, remote, t)
	default:
		if err = core.InterruptedBy(ctx, "in this process's queue", nil); ctx.Err() == nil {
			err = core.ErrClosed
		}
	}
	l.Room.PutState(e)
	return err
}

// giveWay lets a Resume go before the head. It returns Busy if no Resume waits, and the head still has the baton.
func (e *State) giveWay(ctx context.Context, owner core.Owner, t *Try) localqueue.Outcome {
	return e.Queue.GiveWay(owner, queueMode(owner), ctx.Done(), t.Timeout)
}

// resume takes up a hold of another session, or from before a restart. It is called with the baton and a reference, and
// ends as acquireRemote does.
func (e *State) resume(ctx context.Context, l *Handle, owner core.Owner, remote backend.Resumer, t *Try) error {
	if e.inherits(owner) { // this session has the lock, so the owner does not
		e.giveUp()
		return core.ErrNotHeld
	}
	h, holds, err := e.sendResume(ctx, l, owner, remote)
	if err != nil {
		e.giveUp()
		return err
	}
	e.unreleased, e.turn = true, e.newTurn(e.s.core.Age())
	t.holds = holds
	_, err = e.settle(ctx, l, h, t)
	return err
}

// inherits reports whether the last owner of this session left the lock to the next owner of the baton. A hold that
// lingered no longer does. Baton.
func (e *State) inherits(owner core.Owner) bool {
	e.mu.Lock()
	e.waiting, e.head = false, owner
	lingered := e.Hold.phase == phaseIdle
	if lingered {
		e.wakeIdleLocked()
	}
	left := e.Hold.phase == phaseHanded
	e.mu.Unlock()
	if lingered {
		e.s.PutState(e) // the reference of the idle hold
	}
	return left
}

// resumeOwn continues a hold of this session under a new epoch, and with the lease of l. It is called with the baton of
// the owner's operation.
func (e *State) resumeOwn(ctx context.Context, l *Handle, owner core.Owner, remote backend.Resumer, t *Try) error {
	holds := e.Queue.HoldCount(owner)
	e.mu.Lock()
	old := e.Hold
	e.mu.Unlock()
	e.startReleasing() // after its reply Redis no longer has the old epoch
	h, had, err := e.sendResume(ctx, l, owner, remote)
	switch {
	case err == nil && h.Token == old.Token: // with the hold count that calls have returned: the next operation corrects Redis's count
		e.replace(h)
	case err == nil: // a different hold than this session had
		e.Lose(old.Epoch, "the owner had got it anew, in another session")
		e.s.core.Debts.Add(core.DebtOf(core.ModeLock, e.name, owner), holds)
		holds = had
		e.replace(h)
	case errors.Is(err, core.ErrNotHeld), backend.OutcomeUnknown(err): // in the second case the old epoch may be over
		e.Lose(old.Epoch, "Redis no longer had it at Resume")
	}
	e.stopReleasing()
	if !e.finishAcquire(ctx, core.EventAcquired, t, holds, holds, err) {
		e.passOn()
		return errors.Join(core.ErrLost, err)
	}
	return err
}

// sendResume asks Redis for the owner's hold until there is a reply. Baton.
func (e *State) sendResume(ctx context.Context, l *Handle, owner core.Owner, remote backend.Resumer) (Hold, int, error) {
	cfg := &e.s.core.Config
	req := backend.ResumeRequest{Epoch: e.newEpoch(false), Owner: e.ownerField(owner), Lease: cfg.Lease, Seen: backend.Token(e.s.core.SeenToken.Load())}
	if l.Fixed > 0 {
		req.Lease, req.Fixed = l.Fixed, true
	}
	var h Hold
	holds, there := 0, false
	err := e.s.core.Repeat(ctx, core.Policy{
		Stop:    func(last error) error { return e.interrupted(ctx, last) },
		Closing: e.s.core.Closing,
	}, func(call context.Context, c core.Copy) error {
		ahead := e.s.core.Ahead()
		req.NotAfter, _ = call.Deadline() // so that nothing comes after ctx's deadline, when the caller has been told
		req.Until = e.pendingUntil()
		reply, err := remote.Resume(call, req)
		err = core.WrapUnavailable(ctx, err)
		if err == nil {
			err = check.Resume(&reply)
		}
		switch {
		case backend.OutcomeUnknown(err) && !backend.Refused(err):
			// A copy may be under way. It would take the owner's hold from wherever the owner has gone on since, so the
			// next one has it refused.
			e.unknownUntil = max(e.unknownUntil, req.NotAfter.Sub(e.s.core.Opened))
			req.Epoch = e.newEpoch(false)
			return err
		case err != nil:
			return err
		case reply.Status == backend.NotThere:
			there = false
			return nil
		case reply.Status == backend.Overtaken:
			req.Epoch = e.newEpoch(false)
			return core.AtOnce{}
		}
		h = Hold{Owner: owner, Epoch: req.Epoch, Token: reply.Token, last: reply.Token, span: req.Lease,
			note: newNote(cmp.Or(noteOf(ctx), reply.Note))}
		if h.Lease = lease.New(c.Sent, ahead, cfg.Lease, false); req.Fixed {
			h.Lease = lease.New(c.Sent, ahead, reply.TTL, true)
		}
		if holds, there = reply.Holds, true; !h.Lease.Trusted(time.Now()) || lease.Napped(ahead, e.s.core.Ahead()) {
			late := backend.WithOutcomeUnknown(errors.New("the answer came too late to be believed"))
			return core.AtOnce{Err: core.WrapUnavailable(ctx, late)}
		}
		return nil
	})
	if err == nil && !there {
		err = core.ErrNotHeld
	}
	return h, holds, err
}

// Another session can take up a hold of a portable owner. A message then says so, and the session asks Redis: any client
// that may publish can send it. A renewal finds out too, but a hold with a fixed lease would be trusted to its end, and no
// owner here could have the lock. So the message must not be lost: neither with the channel, nor because it overtakes the
// reply that granted the hold. In both cases the session asks Redis too, and again a heartbeat later if there is no reply.

// markTaken asks Redis about the hold with this epoch, if it can have been taken up, or notes the epoch for a hold that
// has not begun. The epoch is 0 if Redis had lost the record.
func (e *State) markTaken(epoch uint64) {
	if epoch == 0 {
		e.recheck()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.movedEpoch = max(e.movedEpoch, epoch)
	if e.Hold.Owned() && e.Hold.Epoch == epoch && core.IsPortable(e.Hold.Owner) {
		e.scheduleCheckLocked()
	}
}

// recheck asks Redis about a hold that may have been taken up while the channel was closed, even if the reply that
// grants it is still under way. It always asks about a hold with a fixed lease: the lease may end sooner, by the clock
// of another server. Other holds are renewed (watchdog.refreshLocked).
func (e *State) recheck() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.movedEpoch = max(e.movedEpoch, e.sentEpoch)
	if e.Hold.Owned() && e.Hold.Lease.Fixed() {
		e.scheduleCheckLocked()
	}
}

// scheduleCheckLocked asks Redis whether the hold is still this session's, and for how long: in the background, and by
// separate workers, so that an ownership check never blocks other waiters. A hold that is renewed and cannot have been
// taken up needs no check. e.mu is held.
func (e *State) scheduleCheckLocked() {
	_, moves := e.remote.(backend.Resumer)
	moves = moves && core.IsPortable(e.Hold.Owner)
	if e.Hold.checking || !moves && !e.Hold.Lease.Fixed() {
		return
	}
	e.Hold.checking = true
	q := ownershipCheck{e.s, e.remote, e.name, e.Hold.Epoch}
	e.s.core.Checks.Do(q.run)
}

// An ownershipCheck finds out whether a hold is still its session's.
type ownershipCheck struct {
	s      *Room
	remote backend.Remote
	name   string
	epoch  uint64
}

// run has no reference to the lock state while it waits for Redis, so that Close need not wait for a hold that has ended.
func (q ownershipCheck) run() {
	needed := q.s.withHold(q.name, q.epoch, func(h *Hold) bool {
		h.checking = false // the check begins now, so a later event needs another one
		return true
	})
	if !needed {
		return
	}
	now := time.Now()
	q.s.core.Counts.Commands.Add(1)
	st, err := q.remote.Inspect(q.s.core.Deadlines.Context(context.Background(), now, now.Add(q.s.core.Config.CommandTimeout)))
	if e := q.s.FindState(q.name); e != nil {
		// As in Verify: Redis had the hold with this epoch, so with another one it is over.
		ours := err == nil && st.Session == q.s.core.ID && st.Epoch == q.epoch
		e.finishCheck(q, ours, err)
		if ours {
			e.shorten(q.epoch, now, st.TTL)
		}
		q.s.PutState(e)
	}
}

// shorten shortens the trust in the hold with this epoch to the rest of its lease, which the reply to a command
// reported.
func (e *State) shorten(epoch uint64, sent time.Time, ttl time.Duration) {
	e.mu.Lock()
	h := &e.Hold
	if h.Owned() && h.Epoch == epoch {
		e.trustLocked(h.Lease.Left(sent, time.Now(), ttl))
	}
	wake := h.Lease.Wake()
	e.mu.Unlock()
	e.s.Watchdog.WakeBy(wake)
}

// finishCheck handles Redis's reply. While the owner is releasing the hold, or renewing it under another epoch, the reply
// proves nothing; another check is scheduled.
func (e *State) finishCheck(q ownershipCheck, ours bool, err error) {
	e.mu.Lock()
	h := &e.Hold
	current := h.Owned() && h.Epoch == q.epoch
	nothing := err != nil || h.phase == phaseReleasing
	again := current && nothing && !h.checking // otherwise another check is pending anyway
	if again {
		h.checking = true
	}
	e.mu.Unlock()
	switch {
	case again:
		core.RepeatLater(&q.s.core.Checks, q.s.core.Config.Heartbeat, q.run)
	case current && !nothing && !ours:
		e.Lose(q.epoch, "another session has it, or none")
		e.evict(q.epoch, false)
	}
}

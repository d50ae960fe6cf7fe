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
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// ResumeAs moves the hold of an owner from another session to this one, or gives this session's hold a new epoch.
func (h *Handle) ResumeAs(ctx context.Context, owner core.Owner, remote backend.Resumer, t *Try) error {
	t.Head = Head{Owner: owner, Portable: core.IsPortable(owner), Fixed: h.Fixed, AtLeast: h.AtLeast}
	st, err := h.Room.getState(h)
	if err != nil {
		return err
	}
	if err := st.mayResume(ctx, owner); err != nil {
		h.Room.putState(st)
		return err
	}
	place := st.Queue.Reserve(owner, localqueue.First|localqueue.Shared)
	st.nudge() // wakes the head, which may be waiting for this very hold
	switch st.wait(ctx, place, t) {
	case localqueue.Claimed:
		return st.resume(ctx, h, remote, t)
	case localqueue.Reentered:
		err = st.resumeOwn(ctx, h, remote, t)
	default:
		if err = core.InterruptedBy(ctx, "in this process's queue", nil); ctx.Err() == nil {
			err = core.ErrClosed
		}
	}
	h.Room.putState(st)
	return err
}

// mayResume returns ErrNotHeld if another owner of this session has the lock, so that the given owner does not. If that other
// owner is portable, another session may have its hold by now, and the message about that may still be under way. So mayResume
// asks Redis.
func (st *State) mayResume(ctx context.Context, owner core.Owner) error {
	holder, held := st.Queue.Holder()
	switch {
	case !held || holder == owner:
		return nil
	case !core.IsPortable(holder):
		return core.ErrNotHeld
	}
	return st.s.core.Repeat(ctx, core.Policy{
		Stop:    func(last error) error { return st.interrupted(ctx, last) },
		Closing: st.s.core.Closing,
	}, func(call context.Context, c core.Copy) error {
		found, err := st.ask(call, c.Sent)
		if err == nil && found.Owner != owner.String() {
			return core.Final(core.ErrNotHeld)
		}
		return core.WrapUnavailable(ctx, err)
	})
}

// resume takes up a hold of another session, or from before a restart. It is called with the baton and a reference. After nil,
// the owner holds the lock, and the hold has the reference. After an error, the baton has been passed on, and the reference
// dropped or passed to a clean-up.
func (st *State) resume(ctx context.Context, l *Handle, remote backend.Resumer, t *Try) error {
	r := resumption{st: st, l: l, remote: remote, t: t}
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	s := st.m.Resume(&at, &t.Head)
	st.mu.Unlock()
	if s.Dropped {
		st.s.putState(st) // the reference of the idle hold
	}
	err := core.ErrNotHeld // if the step is PassOn, this session has the lock, and the owner does not
	if s.Do == machine.AskAnew {
		s, err = r.run(ctx)
	}
	if s.Do == machine.Settle {
		return nil
	}
	if err != nil {
		st.leave(s)
		return err
	}
	st.passOnHold(t.Owner) // the hold was taken up, but the session has given up its holds
	return st.abandoned()
}

// resumeOwn continues a hold of this session under a new epoch, and with the lease of l. It is called with the baton of
// the owner's operation.
func (st *State) resumeOwn(ctx context.Context, l *Handle, remote backend.Resumer, t *Try) error {
	r := resumption{st: st, l: l, remote: remote, t: t, holds: st.Queue.HoldCount(t.Owner)}
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	st.m.ResumeOwn(&at, &t.Head)
	st.mu.Unlock()
	_, err := r.run(ctx)
	if lost := st.finishAcquire(ctx, core.EventAcquired, t, r.holds, r.holds, err); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}

// A resumption asks Redis for an owner's hold.
type resumption struct {
	st     *State
	l      *Handle
	remote backend.Resumer
	t      *Try
	holds  int          // the count of the owner's hold in this session; 0 if this session has no hold of the owner
	step   machine.Step // the step that followed the latest copy
	over   bool         // the machine has ended the Resume
	failed error        // the errors of all copies so far, merged
}

// run asks Redis until there is a reply, and carries out what the machine decides after the reply. The caller has the baton.
func (r *resumption) run(ctx context.Context) (machine.Step, error) {
	st := r.st
	r.step.Do = machine.AskAnew
	err := st.s.core.Repeat(ctx, core.Policy{
		Stop:    func(last error) error { return st.interrupted(ctx, last) },
		Closing: st.s.core.Closing,
	}, func(call context.Context, c core.Copy) error { return r.send(ctx, call, c) })
	if err != nil && !r.over {
		st.mu.Lock()
		r.step = st.m.NotResumed(machine.Failure{Unknown: backend.OutcomeUnknown(err)}, false)
		st.carryOutLoss(r.step)
	}
	return r.step, err
}

// send sends one copy.
func (r *resumption) send(ctx, call context.Context, c core.Copy) error {
	req := r.nextCopy(call, c.Sent)
	reply, err := r.remote.Resume(call, req)
	err = core.WrapUnavailable(ctx, err)
	if err == nil {
		err = check.Resume(&reply)
	}
	if err != nil {
		r.unanswered(err, req.NotAfter)
		return err
	}
	return r.replied(ctx, &reply)
}

// nextCopy begins a copy, and returns it. Redis refuses the copy after the deadline of call: by then the caller may have
// its result.
func (r *resumption) nextCopy(call context.Context, now time.Time) backend.ResumeRequest {
	st := r.st
	st.mu.Lock()
	defer st.mu.Unlock()
	at := st.momentOfCommand(now, r.t.Owner)
	next := uint64(0)
	if r.step.Do == machine.AskAnew {
		next = st.newEpoch()
	}
	st.m.SendResume(&at, next)
	notAfter, _ := call.Deadline()
	return st.m.ResumeRequest(&at, notAfter)
}

// unanswered handles a copy without a reply.
func (r *resumption) unanswered(err error, notAfter time.Time) {
	refused := backend.Refused(err)
	r.failed = core.MergeOutcome(r.failed, err)
	unknown := backend.OutcomeUnknown(err) || refused && backend.OutcomeUnknown(r.failed)
	r.over = refused
	r.st.mu.Lock()
	at := r.st.moment(r.st.s.core.Age())
	r.step = r.st.m.ResumeUnanswered(&at, machine.Failure{Unknown: unknown, Refused: refused}, notAfter)
	r.st.carryOutLoss(r.step)
}

// replied handles Redis's reply. It returns nil if the reply ends the Resume: with a hold, or in a session that has given
// up its holds.
func (r *resumption) replied(ctx context.Context, reply *backend.ResumeReply) error {
	st := r.st
	st.mu.Lock()
	old := st.holdLocked()
	at := st.momentOfCommand(time.Now(), r.t.Owner)
	s := st.m.Resumed(&at, reply)
	r.step = s
	switch s.Do {
	case machine.Ask:
		st.mu.Unlock()
		late := core.WrapUnavailable(ctx, backend.WithOutcomeUnknown(errors.New("the answer came too late to be believed")))
		r.failed = core.MergeOutcome(r.failed, late)
		return core.AtOnce{Err: late}
	case machine.AskAnew:
		st.mu.Unlock()
		return core.AtOnce{}
	case machine.Settle:
		st.settleLocked(ctx, r.l, r.t, at.Now, s.Holds)
		st.startUpkeepLocked(cmp.Or(core.NoteOf(ctx), reply.Note), s.Check)
		st.mu.Unlock()
		return nil
	case machine.Replace:
		r.replace(&old, cmp.Or(core.NoteOf(ctx), reply.Note), at.Abandoned)
		return nil
	}
	r.over = true
	st.carryOutLoss(s)
	if reply.Status == backend.NotThere {
		return core.Final(core.ErrNotHeld)
	}
	return nil // the hold was taken up, but the session has given up its holds
}

// replace carries out the step Replace: the owner's hold goes on under a new epoch. If Redis had another hold of the owner than
// this session, the old hold is lost, and the owner has the hold count that Redis has. st.mu is held, and free when replace
// returns.
func (r *resumption) replace(old *Hold, note string, abandoned bool) {
	st, s := r.st, r.step
	lost := s.Why != ""
	if lost {
		st.recordLossLocked(old, s.Why)
		old.Phase = machine.Lost
	}
	if !abandoned {
		st.replaceLocked(old, note, s.Check)
	}
	st.mu.Unlock()
	if s.Holds > 0 {
		st.s.core.Debts.Add(core.DebtOf(core.ModeLock, st.name, old.Owner), r.holds)
		r.holds = s.Holds
	}
	if lost {
		old.notifyLoss()
	}
}

// Another session can take up a hold of a portable owner. This session then gets a message, and asks Redis, since any client
// that may publish can send such a message. A renewal would find the loss too, but a fixed lease is not renewed: the hold
// would be trusted to its end, and no owner here could have the lock. So the session also asks Redis when the message may
// have been lost with the channel, or have overtaken the reply that granted the hold, and again a heartbeat later if there is
// no reply.

// markTaken asks Redis about the hold with this epoch, if another session can have taken it up. If the hold has not begun
// yet, markTaken notes the epoch. The epoch is 0 if Redis had lost the record.
func (st *State) markTaken(epoch uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if epoch == 0 && st.m.Reconnected().Check || epoch > 0 && st.m.Taken(epoch).Check {
		st.checkLocked()
	}
}

// reconnected wakes the parked head, and asks Redis what a message may have said while the channel was closed: that another
// session took up the hold, even if the reply that grants the hold is still under way, or that another session waits. There
// may be another server now, so the next renewal writes the note.
func (st *State) reconnected() {
	st.nudge()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.m.Reconnected().Check {
		st.checkLocked()
	}
	st.watchLocked()
	if n := st.info.note; n != nil {
		n.sent = 0
	}
}

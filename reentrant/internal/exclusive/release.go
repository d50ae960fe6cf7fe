package exclusive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// oweLocked records that the owner of a lost hold still owes an Unlock for each of its holds. st.mu is held, and so the owner's
// Unlock finds either the hold or the record.
func (st *State) oweLocked(h *machine.Hold[core.Owner], holds int) {
	of := core.DebtOf(core.ModeLock, st.name, h.Owner)
	if h.Lease.Fixed() {
		st.s.core.Debts.AddLapsed(of, holds)
	} else {
		st.s.core.Debts.Add(of, holds)
	}
}

// UnlockAs gives up one hold of an owner.
func (h *Handle) UnlockAs(ctx context.Context, owner core.Owner) error {
	if st, age := h.ownState(core.GoroutineOf(owner)); st != nil {
		// The hold has a reference until the last Unlock. In cohort mode an Unlock that is not the last needs no command. Every
		// other Unlock begins an operation, and this call has the baton until unlock or exit passes it on.
		cohort, left, ok := st.cohort.Load(), 0, false
		if cohort {
			left, ok = st.Queue.ExitOrBegin(owner)
		} else {
			left, ok = st.Queue.Begin(owner)
			left--
		}
		switch {
		case !ok:
		case left == 0:
			return st.unlock(ctx, age)
		case cohort:
			return nil
		default:
			return st.exit(ctx, owner, left)
		}
	}
	return h.holding(owner, h.takeOwed, func(st *State, holds int) error {
		if holds > 1 {
			return st.exit(ctx, owner, holds-1)
		}
		return st.unlock(ctx, st.s.core.Age())
	})
}

// holding calls f with the baton of an owner's hold. If the owner has no hold, holding returns ErrLost if the function lost
// reports that the owner has lost one, and otherwise ErrNotHeld.
func (h *Handle) holding(owner core.Owner, lost func(core.Owner) bool, f func(st *State, holds int) error) error {
	if st := h.Room.findState(h.Name); st != nil {
		defer h.Room.putState(st)
		if holds, ok := st.Queue.Begin(owner); ok {
			return f(st, holds)
		}
		st.mu.Lock() // once st.mu is free, a loss that ended the hold is on record
		defer st.mu.Unlock()
	}
	if lost(owner) {
		return core.ErrLost
	}
	return core.ErrNotHeld
}

// ForgoAs lets others have the lock as soon as an owner unlocks, without regard to AtLeast, if the owner holds the lock once.
// It is for a call that has taken this lock, and gives it back because the call did not get another lock. If the owner had this
// lock before that call, AtLeast stays in force.
func (h *Handle) ForgoAs(owner core.Owner) {
	if h.AtLeast == 0 {
		return
	}
	h.WithState(func(st *State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.m.OwnedBy(owner) && st.Queue.HoldCount(owner) == 1 {
			st.m.Forgo()
		}
	})
}

// takeOwed reports whether an owner has lost a hold that it has not unlocked since. If so, the Unlock that calls takeOwed (as
// the function lost of holding) counts as one of the Unlocks that the owner owes.
func (h *Handle) takeOwed(owner core.Owner) bool {
	return h.Room.core.Debts.TakeOwed(core.DebtOf(core.ModeLock, h.Name, owner), 1, 1) > 0
}

// exit gives up one of several holds, so that the given number is left. The one hold ends in this process even if Redis does
// not confirm that; the next operation corrects the count in Redis. exit is called with the baton, which goes back to the
// owner, or to the next owner if the hold is lost.
func (st *State) exit(ctx context.Context, owner core.Owner, holds int) error {
	err := st.setRemoteHolds(context.WithoutCancel(ctx), owner, holds, time.Now().Add(st.s.core.Config.ReleaseTime))
	if lost := st.finish(holds, holds, nil); lost != nil {
		return lost
	}
	return err
}

// unlock gives up the last hold. While the turn of this session lasts, unlock sends nothing, since the next owner in the queue
// takes the lock over in Redis with its own first command. The next owner becomes the holder under the same mutex, so its
// events come after those of this hold. unlock is called with the baton, and has passed it on when it returns. age is the
// session's age when Unlock began: the lease had to be trusted up to then. Like inherit, unlock has small stack frames.
func (st *State) unlock(ctx context.Context, age time.Duration) error {
	st.mu.Lock()
	switch {
	case st.Queue.Len() > 0 && st.m.CanHandOver(&st.s.options, age) && st.Queue.Pass():
		st.reportReleaseLocked(ctx, true)
		st.m.HandOver()
		st.disownLocked()
		st.mu.Unlock()
		st.s.core.Counts.Handoffs.Add(1)
		st.s.putState(st)
		return nil
	case st.cohort.Load() && st.keepLocked(ctx, age):
		return nil
	case st.s.core.Config.AsyncUnlock && st.m.CanHandOver(&st.s.options, age):
		st.leaveBehind(ctx)
		return nil
	}
	return st.endHold(ctx, age)
}

// endHold is the last part of unlock, for a lock that no other owner of this session waits for and that does not linger, or
// for a hold that cannot be trusted any more. st.mu is held, and free when endHold returns.
func (st *State) endHold(ctx context.Context, age time.Duration) error {
	at := st.moment(age)
	h := st.holdLocked()
	s := st.m.Exit(&at)
	st.disownLocked()
	if s.Do == machine.PassOn {
		st.mu.Unlock()
		if s.Why != "" {
			st.s.notifyLost(st.name, &h, s.Why)
		}
		st.passOn()
		return core.ErrLost
	}
	req := st.m.ReleaseRequest(&at)
	st.mu.Unlock()
	err := st.release(ctx, req)
	if st.s.core.Reporting {
		st.reportRelease(ctx, &h, false, err)
	}
	if errors.Is(err, core.ErrLost) {
		st.s.notifyLost(st.name, &h, "Redis no longer had it at Unlock")
	}
	st.Queue.Leave()
	st.s.putState(st)
	return err
}

// leaveBehind is the last part of unlock in a session that does not wait for Redis ([Config.AsyncUnlock]): a new goroutine gets
// the hold, the baton and the reference, as the next owner would. st.mu is held, and free when leaveBehind returns.
func (st *State) leaveBehind(ctx context.Context) {
	h := st.holdLocked()
	st.m.HandOver()
	st.disownLocked()
	st.occupyLocked()
	st.mu.Unlock()
	go st.giveBack(ctx, &h)
}

// giveBack goes on after leaveBehind: it hands the hold to an owner that came meanwhile, or releases the hold. It has the
// baton and a reference, and has passed both on when it returns.
func (st *State) giveBack(ctx context.Context, h *Hold) {
	st.mu.Lock()
	if st.Queue.Len() > 0 && st.Queue.Pass() {
		st.m.Retaken()
		st.reportRelease(ctx, h, true, nil)
		done := st.vacateLocked()
		st.mu.Unlock()
		close(done)
		st.s.core.Counts.Handoffs.Add(1)
		st.s.putState(st)
		return
	}
	at := st.moment(st.s.core.Age())
	st.m.Clean()
	req := st.m.ReleaseRequest(&at)
	st.mu.Unlock()
	st.reportGivenBack(ctx, h, st.release(ctx, req))
	st.endCleaning()
}

// reportGivenBack reports the end of a release in the background, for which the owner did not wait. A hold that Redis no longer
// had is lost only if its lease is not over yet. If the lease is over, it may have ended after Unlock, and the owner had the
// hold for as long as the owner needed the lock.
func (st *State) reportGivenBack(ctx context.Context, h *Hold, err error) {
	lost := errors.Is(err, core.ErrLost)
	if lost && !h.Lease.Trusted(time.Now()) {
		lost, err = false, nil
	}
	if err != nil && !lost && !st.s.core.Outages.Add(st.name) {
		st.s.core.Log(slog.LevelWarn, "could not give back a lock yet", slog.String("lock", st.name), slog.Any("error", err))
	}
	st.reportRelease(ctx, h, false, err)
	if lost {
		st.s.notifyLost(st.name, h, "Redis no longer had it after Unlock")
	}
}

// release gives up everything that Redis has of this session for the lock. The end of ctx does not end the release, which is
// tried for ReleaseTime, and after that in the background. ErrLost means that the hold was gone before the first try. The
// caller has the baton.
func (st *State) release(ctx context.Context, req backend.ReleaseRequest) error {
	begun := time.Now()
	r := release{s: st.s, remote: st.remote, req: req}
	// Each copy has its full time, so that its error gives the cause, and not just that the time was short.
	err := st.s.core.Repeat(ctx, core.Policy{
		Until: begun.Add(st.s.core.Config.ReleaseTime), Room: st.s.core.Config.CommandTimeout, Outlives: true, Tried: 1,
	}, r.send)
	st.mu.Lock()
	st.m.Released(err == nil, r.freed)
	st.mu.Unlock()
	switch {
	case err == nil && r.gone:
		return core.ErrLost
	case err == nil, backend.Refused(err):
		return err
	}
	r.finishLater(time.Now().Add(finishTime))
	return fmt.Errorf("not confirmed within %v, and sent again in the background: %w", time.Since(begun).Round(time.Millisecond), err)
}

// A release gives up what a session has of a lock, up to an epoch. It touches nothing of a later epoch, so it can be
// sent without the baton.
type release struct {
	s      *Room
	remote backend.Remote
	req    backend.ReleaseRequest
	tries  int
	freed  bool  // Redis found the lock as the request's Prior said, and freed it
	gone   bool  // Redis had nothing of the hold, and no earlier copy can be the reason
	last   error // the error of the latest try, marked as of unknown outcome if the error of an earlier try was
}

// send sends the release once.
func (r *release) send(ctx context.Context, _ core.Copy) error {
	r.tries++
	result, err := r.remote.Release(ctx, r.req)
	if err != nil {
		err = core.WrapUnavailable(context.Background(), err)
	} else {
		err = check.Release(result)
	}
	r.req.Prior = backend.Prior{} // the next copy has no Prior, since what Redis has is not known then
	if err != nil {
		r.last = core.MergeOutcome(r.last, err)
		return err
	}
	r.freed = result == backend.Freed
	r.gone = result != backend.Freed && result != backend.Released && r.last == nil
	return nil
}

// finishTime bounds how long a release is sent in the background. After that the lock is free when its lease is over.
const finishTime = time.Minute

// finishLater sends the release in the background until Redis replies, the given time has come, or the session has ended.
func (r release) finishLater(until time.Time) {
	core.RepeatLater(&r.s.core.Releases, core.RetryPause(r.tries, r.s.core.Config.Heartbeat), func() { r.finish(until) })
}

// finish sends the release once more.
func (r release) finish(until time.Time) {
	if r.s.keeper.Stopped() {
		return
	}
	now, lock := time.Now(), slog.String("lock", r.remote.Name())
	err := r.s.core.Repeat(context.Background(), core.Policy{Outlives: true, Tries: 1}, r.send)
	switch {
	case err != nil && !backend.Refused(err) && now.Before(until):
		r.finishLater(until)
	case err != nil:
		r.s.core.Log(slog.LevelWarn, "could not give back a lock; it expires", lock, slog.Any("error", r.last))
	default:
		r.s.core.Log(slog.LevelInfo, "a lock was given back late", lock)
	}
}

// ReleaseOrphan releases what Redis has of a lock under an epoch. It needs no baton, since a release touches no newer epoch.
// One try is enough: if the release fails, the hold expires. A copy of an attempt without a reply may be under way until
// pendingUntil; if pendingUntil is zero, there is no such copy.
func (s *Room) ReleaseOrphan(remote backend.Remote, name string, epoch uint64, pendingUntil time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), s.core.Config.CommandTimeout)
	defer cancel()
	s.core.Counts.Commands.Add(1)
	if _, err := remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch, Until: pendingUntil}); err != nil {
		s.core.Log(slog.LevelWarn, "could not give back a lock; it expires", slog.String("lock", name), slog.Any("error", err))
	}
}

// reportReleaseLocked reports that the owner has given up the last hold, without an error. st.mu is held.
func (st *State) reportReleaseLocked(ctx context.Context, handedOff bool) {
	if st.s.core.Reporting {
		h := st.holdLocked()
		st.reportRelease(ctx, &h, handedOff, nil)
	}
}

// reportRelease reports that an owner has given up its last hold.
func (st *State) reportRelease(ctx context.Context, h *Hold, handedOff bool, err error) {
	if st.s.core.Reporting {
		st.s.core.Report(ctx, core.Event{Kind: core.EventReleased, Lock: st.name, Owner: h.Owner, Token: h.Token,
			Held: time.Since(h.since), HandedOff: handedOff, Err: err})
	}
}

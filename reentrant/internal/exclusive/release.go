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

// oweLocked records that the owner of a lost hold, which may have had a fixed lease, owes so many Unlocks. e.mu is held,
// and so the owner's Unlock finds either the hold or the record.
func (e *State) oweLocked(owner core.Owner, fixed bool, holds int) {
	of := core.DebtOf(core.ModeLock, e.name, owner)
	if fixed {
		e.s.core.Debts.AddLapsed(of, holds)
	} else {
		e.s.core.Debts.Add(of, holds)
	}
}

// UnlockAs gives up one hold of an owner.
func (l *Handle) UnlockAs(ctx context.Context, owner core.Owner) error {
	if e, age := l.ownState(core.GoroutineOf(owner)); e != nil {
		// The hold has a reference until it is given up.
		switch holds, ok := e.exitOrBegin(owner); {
		case !ok:
		case holds == 0:
			return e.unlock(ctx, age)
		case e.cohort.Load():
			return nil
		default:
			return e.exit(ctx, owner, holds)
		}
	}
	e := l.Room.FindState(l.Name)
	if e == nil {
		return l.notHeld(owner)
	}
	defer l.Room.PutState(e)
	holds, ok := e.Queue.Begin(owner)
	switch {
	case !ok:
		e.mu.Lock() // a loss is on record before the mutex is free
		defer e.mu.Unlock()
		return l.notHeld(owner)
	case holds > 1:
		return e.exit(ctx, owner, holds-1)
	}
	return e.unlock(ctx, e.s.core.Age())
}

// exitOrBegin gives up one hold of an owner, if that needs no command, and returns how many are left. Otherwise, and for
// the last one, it begins an operation, and the caller has the baton.
func (e *State) exitOrBegin(owner core.Owner) (left int, ok bool) {
	if e.cohort.Load() {
		return e.Queue.ExitOrBegin(owner)
	}
	holds, ok := e.Queue.Begin(owner)
	return holds - 1, ok
}

// notHeld returns the error of Unlock for an owner without a hold.
func (l *Handle) notHeld(owner core.Owner) error {
	if l.Room.core.Debts.TakeOwed(core.DebtOf(core.ModeLock, l.Name, owner), 1, 1) > 0 {
		return core.ErrLost
	}
	return core.ErrNotHeld
}

// exit gives up one of several holds. The hold ends in this process even if Redis does not confirm it; the next
// operation corrects the count in Redis. exit is called with the baton, which goes back to the owner, or to the next
// one if the hold is lost.
func (e *State) exit(ctx context.Context, owner core.Owner, holds int) error {
	err := e.setRemoteHolds(context.WithoutCancel(ctx), owner, holds, time.Now().Add(e.s.core.Config.ReleaseTime))
	if !e.finishOperation(holds, holds) {
		e.passOn()
		return core.ErrLost
	}
	return err
}

// unlock gives up the last hold. While the turn of this session lasts, it sends nothing: the next owner in the queue
// takes the lock over in Redis with its own first command. The next owner becomes the holder under the same mutex, so its
// events come after those of this hold. unlock is called with the baton, and has passed it on when it returns. age is the
// session's when Unlock began, which is how long the lease had to be trusted. As in inherit, frames are small.
func (e *State) unlock(ctx context.Context, age time.Duration) error {
	e.mu.Lock()
	if e.Queue.Len() == 0 || !e.m.CanHandOver(&e.s.options, age) || !e.Queue.Pass() {
		return e.endHold(ctx, age)
	}
	e.reportReleaseLocked(ctx, true)
	e.m.HandOver()
	e.disownLocked()
	e.mu.Unlock()
	e.s.core.Counts.Handoffs.Add(1)
	e.s.PutState(e)
	return nil
}

// endHold is unlock for a lock that no other owner of this session waits for, or a hold that cannot be trusted any
// more. e.mu is held, and free when it returns.
func (e *State) endHold(ctx context.Context, age time.Duration) error {
	at := e.moment(age)
	at.Closing = e.s.core.IsClosing() // before Close looks for lingering holds: either Close finds this one, or the machine sees that
	h := e.holdLocked()
	s := e.m.Exit(&at)
	e.disownLocked()
	switch s.Do {
	case machine.Linger:
		e.reportRelease(ctx, &h, false, nil)
		e.Queue.Leave() // from now on the lock state may serve another lock
		e.mu.Unlock()
		e.s.Watchdog.WakeBy(s.Wake)
		return nil
	case machine.PassOn:
		e.mu.Unlock()
		if s.Why != "" {
			e.s.notifyLost(e.name, &h, s.Why)
		}
		e.passOn()
		return core.ErrLost
	}
	req := e.m.ReleaseRequest(&at)
	e.mu.Unlock()
	err := e.release(ctx, req)
	if e.s.core.Reporting {
		e.reportRelease(ctx, &h, false, err)
	}
	if errors.Is(err, core.ErrLost) {
		e.s.notifyLost(e.name, &h, "Redis no longer had it at Unlock")
	}
	e.Queue.Leave()
	e.s.PutState(e)
	return err
}

// release gives up everything that Redis has of this session for the lock. The end of ctx does not end it. It tries for
// ReleaseTime, and after that in the background. ErrLost means that the hold was gone before the first try. Baton.
func (e *State) release(ctx context.Context, req backend.ReleaseRequest) error {
	begun := time.Now()
	r := release{s: e.s, remote: e.remote, req: req}
	// Each copy has its full time, so that its error gives the cause, and not just that the time was short.
	err := e.s.core.Repeat(ctx, core.Policy{
		Until: begun.Add(e.s.core.Config.ReleaseTime), Room: e.s.core.Config.CommandTimeout, Outlives: true, Tried: 1,
	}, r.send)
	e.mu.Lock()
	e.m.Released(err == nil, r.freed)
	e.mu.Unlock()
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
	freed  bool  // the lock is free, and Redis has it as the session remembers it
	gone   bool  // Redis had nothing of the hold before any copy can have been carried out
	last   error // of the latest try; its outcome is unknown if that of an earlier one is
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
	r.req.Prior = backend.Prior{} // a second copy is sent when the state in Redis is not known
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

// finishLater sends the release in the background until Redis replies, the time until has come, or the session has
// ended.
func (r release) finishLater(until time.Time) {
	core.RepeatLater(&r.s.core.Releases, core.RetryPause(r.tries, r.s.core.Config.Heartbeat), func() { r.finish(until) })
}

// finish sends the release once more.
func (r release) finish(until time.Time) {
	if r.s.Watchdog.stopped() {
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

// ReleaseOrphan releases what an epoch has of a lock, without the baton, since it touches nothing newer. One try is
// enough: if it fails, the hold expires.
func (s *Room) ReleaseOrphan(remote backend.Remote, name string, epoch uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.core.Config.CommandTimeout)
	defer cancel()
	s.core.Counts.Commands.Add(1)
	if _, err := remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch}); err != nil {
		s.core.Log(slog.LevelWarn, "could not give back a lock; it expires", slog.String("lock", name), slog.Any("error", err))
	}
}

// reportReleaseLocked is reportRelease for the hold of the machine, without an error. e.mu is held.
func (e *State) reportReleaseLocked(ctx context.Context, handedOff bool) {
	if e.s.core.Reporting {
		h := e.holdLocked()
		e.reportRelease(ctx, &h, handedOff, nil)
	}
}

// reportRelease reports that an owner has given up its last hold.
func (e *State) reportRelease(ctx context.Context, h *Hold, handedOff bool, err error) {
	if e.s.core.Reporting {
		e.s.core.Report(ctx, core.Event{Kind: core.EventReleased, Lock: e.name, Owner: h.Owner, Token: h.Token,
			Held: time.Since(h.since), HandedOff: handedOff, Err: err})
	}
}

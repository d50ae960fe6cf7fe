package reentrant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// Unlock gives up one hold of the caller's owner. Giving up the last one frees the lock for the next owner in the
// queue. Unlock works under a ctx that has ended: it has a time limit of its own, and ctx provides only the owner.
//
// It returns [ErrNotHeld] if the owner does not hold the lock, and changes nothing. It returns [ErrLost] if the owner
// held the lock and its lease could not be trusted to the end: another owner may have held the lock meanwhile. After
// any other error the hold has ended in this process, and Redis has not confirmed it. Redis refused ([Refused]), may
// have released the hold ([OutcomeUnknown]), could not be reached, or did not serve the lock (a failover, a slot that
// moves). If Redis did not refuse, Unlock has tried for the length of the lease, at most 6 seconds. If it was the last
// hold, the session goes on trying in the background, for a minute. The lock is free for others when Redis has replied,
// and when its lease ends at the latest. If it was an inner hold, the next call on the lock corrects the count in
// Redis.
func (l *Lock) Unlock(ctx context.Context) error {
	owner, err := l.session.core.Caller(ctx, l.invalid)
	if err != nil {
		return l.error("unlock", err)
	}
	if e, age := l.ownState(core.GoroutineOf(owner)); e != nil {
		// The hold has a reference until it is given up.
		if holds, ok := e.queue.ExitOrBegin(owner); ok && holds > 0 {
			return nil
		} else if ok {
			return l.error("unlock", e.unlock(ctx, age))
		}
	}
	e := l.session.findState(l.name)
	if e == nil {
		return l.error("unlock", l.notHeld(owner))
	}
	defer l.session.putState(e)
	holds, ok := e.queue.Begin(owner)
	switch {
	case !ok:
		e.mu.Lock() // a loss is on record before the mutex is free
		defer e.mu.Unlock()
		err = l.notHeld(owner)
	case holds > 1:
		err = e.exit(ctx, owner, holds-1)
	default:
		err = e.unlock(ctx, e.s.core.Age())
	}
	return l.error("unlock", err)
}

// notHeld returns the error of Unlock for an owner without a hold.
func (l *Lock) notHeld(owner Owner) error {
	if l.session.core.Debts.TakeOwed(core.DebtOf(ModeLock, l.name, owner), 1, 1) > 0 {
		return ErrLost
	}
	return ErrNotHeld
}

// exit gives up one of several holds. The hold ends in this process even if Redis does not confirm it; the next
// operation corrects the count in Redis. exit is called with the baton, which goes back to the owner, or to the next
// one if the hold is lost.
func (e *lockState) exit(ctx context.Context, owner Owner, holds int) error {
	err := e.setRemoteHolds(context.WithoutCancel(ctx), owner, holds, time.Now().Add(e.s.core.Config.ReleaseTime))
	if !e.finishOperation(holds, holds) {
		e.passOn()
		return ErrLost
	}
	return err
}

// unlock gives up the last hold. While the turn of this session lasts, it sends nothing: the next owner in the queue
// takes the lock over in Redis with its own first command. unlock is called with the baton, and has passed it on when
// it returns. age is the session's when Unlock began, which is how long the lease had to be trusted.
func (e *lockState) unlock(ctx context.Context, age time.Duration) error {
	e.mu.Lock()
	if !e.handToNextLocked(ctx, age) {
		return e.endHold(ctx, age)
	}
	e.mu.Unlock()
	e.s.core.Counts.Handoffs.Add(1)
	e.s.putState(e)
	return nil
}

// endHold is unlock for a lock that no other owner of this session waits for, or a hold that cannot be trusted any
// more. e.mu is held, and free when it returns.
func (e *lockState) endHold(ctx context.Context, age time.Duration) error {
	h := e.hold
	trusted := h.phase != phaseLost && e.trustLeft(age) > 0
	stays := trusted && h.cohort && e.lingerLocked(ctx, &h, age)
	if !stays {
		e.clearLocked()
	}
	e.mu.Unlock()
	switch {
	case stays: // the lock state may serve another lock by now
		e.s.watchdog.wakeBy(e.s.core.Opened.Add(age + e.s.core.Config.Linger))
		return nil
	case !trusted:
		if h.phase != phaseLost {
			e.s.notifyLost(e.name, h, "the lease ended before Unlock")
		}
		e.passOn()
		return ErrLost
	}
	err := e.release(ctx)
	e.reportRelease(ctx, &h, false, err)
	if errors.Is(err, ErrLost) {
		e.s.notifyLost(e.name, h, "Redis no longer had it at Unlock")
	}
	e.queue.Leave()
	e.s.putState(e)
	return err
}

// handToNextLocked gives the baton to the next owner in line, with the hold. It returns false, and changes nothing, if
// no owner waits or the hold cannot be trusted any more. The next owner becomes the holder under the same mutex, so its
// events come after those of this hold. As in inherit, frames are small. e.mu is held.
func (e *lockState) handToNextLocked(ctx context.Context, age time.Duration) bool {
	h := &e.hold
	if e.queue.Len() == 0 || h.phase == phaseLost || e.trustLeft(age) <= 0 || !e.queue.Pass() {
		return false
	}
	e.reportRelease(ctx, h, true, nil)
	e.handOverLocked()
	return true
}

// releaseTries bounds how often an unimportant command is sent.
const releaseTries = 3

// release gives up everything that Redis has of this session for the lock. The end of ctx does not end it. It tries for
// ReleaseTime, and after that in the background. ErrLost means that the hold was gone before the first try. Baton.
func (e *lockState) release(ctx context.Context) error {
	req := backend.ReleaseRequest{Epoch: e.sentEpoch, Until: e.pendingUntil(), Used: e.lastUsed}
	prior := e.prior
	req.Prior, e.prior = prior, backend.Prior{}
	begun := time.Now()
	r := release{s: e.s, remote: e.remote, req: req}
	err := r.repeat(ctx, begun.Add(e.s.core.Config.ReleaseTime))
	switch {
	case err == nil || errors.Is(err, ErrLost):
		e.unreleased = false
		if r.freed {
			prior.Freed = true
			e.prior = prior
		}
		return err
	case Refused(err):
		return err
	}
	r.finishLater(time.Now().Add(finishTime))
	return fmt.Errorf("not confirmed within %v, and sent again in the background: %w", time.Since(begun).Round(time.Millisecond), err)
}

// pendingUntil returns the time until which a copy of an attempt may be under way that had no reply, zero if there is
// none. Baton.
func (e *lockState) pendingUntil() time.Time {
	if e.unknownUntil <= e.s.core.Age() {
		return time.Time{}
	}
	return e.s.core.Opened.Add(e.unknownUntil)
}

// A release gives up what a session has of a lock, up to an epoch. It touches nothing of a later epoch, so it can be
// sent without the baton.
type release struct {
	s      *session
	remote backend.Remote
	req    backend.ReleaseRequest
	tries  int
	freed  bool  // the lock is free, and Redis has it as the session remembers it
	gone   bool  // Redis had nothing of the hold before any copy can have been carried out
	last   error // of the latest try; its outcome is unknown if that of an earlier one is
}

// repeat sends the release until Redis confirms or refuses it. It returns before until. Each try has its full time, so
// that its error gives the cause, and not just that the time was short.
func (r *release) repeat(ctx context.Context, until time.Time) error {
	err := r.s.core.Repeat(ctx, core.Policy{Until: until, Room: r.s.core.Config.CommandTimeout, Outlives: true, Tried: 1}, r.send)
	if err == nil && r.gone {
		return ErrLost
	}
	return err
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
	if r.s.watchdog.stopped() {
		return
	}
	now, lock := time.Now(), slog.String("lock", r.remote.Name())
	err := r.s.core.Repeat(context.Background(), core.Policy{Outlives: true, Tries: 1}, r.send)
	switch {
	case err != nil && !Refused(err) && now.Before(until):
		r.finishLater(until)
	case err != nil:
		r.s.core.Log(slog.LevelWarn, "could not give back a lock; it expires", lock, slog.Any("error", r.last))
	default:
		r.s.core.Log(slog.LevelInfo, "a lock was given back late", lock)
	}
}

// releaseOrphan releases what an epoch has of a lock, without the baton, since it touches nothing newer. One try is
// enough: if it fails, the hold expires.
func (s *session) releaseOrphan(remote backend.Remote, name string, epoch uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.core.Config.CommandTimeout)
	defer cancel()
	s.core.Counts.Commands.Add(1)
	if _, err := remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch}); err != nil {
		s.core.Log(slog.LevelWarn, "could not give back a lock; it expires", slog.String("lock", name), slog.Any("error", err))
	}
}

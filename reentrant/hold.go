package reentrant

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A phase is where the session's hold on a lock is in its life. lockState.mu guards it, and only this file writes it.
type phase uint8

const (
	phaseVacant    phase = iota // the session has no hold
	phaseHeld                   // an owner has the lock, and its lease was trusted when last looked at
	phaseReleasing              // as held; but Await gives it up, or Resume renews it: if Redis has the epoch no more, that is no loss
	phaseLost                   // the lease ended under the owner, who has not unlocked and still has the baton
	phaseHanded                 // the owner left it to the one that has the baton now
	phaseIdle                   // the owner left it, and the baton is free: the hold has a reference of its own
)

var phaseNames = [...]string{"vacant", "held", "releasing", "lost", "handed", "idle"}

func (p phase) String() string { return phaseNames[p] }

// successors lists the phases that may follow each phase.
var successors = [...][]phase{
	phaseVacant:    {phaseHeld},                                           // settle
	phaseHeld:      {phaseReleasing, phaseLost, phaseHanded, phaseVacant}, // startReleasing, lose, handOverLocked, endHold
	phaseReleasing: {phaseHeld, phaseLost, phaseVacant},                   // stopReleasing or replace, lose, leaveHold
	phaseLost:      {phaseHeld, phaseVacant},                              // replace, clearLocked
	phaseHanded:    {phaseHeld, phaseIdle, phaseVacant},                   // settleLocked, idleLocked, takeHanded or lose
	phaseIdle:      {phaseHanded, phaseVacant},                            // wakeIdleLocked, clearLocked
}

// enter changes the phase. Builds with the tag invariants, and those with the race detector, check that it may.
func (h *hold) enter(next phase) {
	if invariants && next != h.phase && !slices.Contains(successors[h.phase], next) {
		panic(fmt.Sprintf("reentrant: bug: a hold went from %v to %v", h.phase, next))
	}
	h.phase = next
}

// A hold is what an owner of this session has, or left to the next one: guarded by lockState.mu, written by the owner of
// the baton, and by the watchdog when it renews or loses it.
type hold struct {
	phase         phase
	cohort        bool   // it is the session's in Redis, not its owner's
	renewalFailed bool   // the last renewal was not answered
	checking      bool   // Redis is to be asked whether another session has taken it up
	lockID        uint32 // id of the Lock it was got with
	owner         Owner
	epoch         uint64 // 0 for an idle hold that was lost
	op            uint64 // of re-entry
	token         Token
	last          Token // of the block
	lease         lease.Lease
	span          time.Duration  // the lease that was asked for, and that renewals ask for
	notifier      *lossNotifier  // nil until a caller asks to be told of the loss
	wanted        *wantedChannel // nil until a caller asks to be told that another owner waits
	since         time.Time      // when it began, if the session reports events
	note          *note          // nil if its owner noted nothing
}

// owned reports whether an owner has the hold, as far as this process knows.
func (h *hold) owned() bool { return h.phase == phaseHeld || h.phase == phaseReleasing }

// inheritable reports whether an owner left the hold, and it has not been lost since.
func (h *hold) inheritable() bool {
	return h.phase == phaseHanded || h.phase == phaseIdle && h.epoch != 0
}

// belongsTo reports whether the owner has the hold, or lost it and has not been evicted yet.
func (h *hold) belongsTo(owner Owner) bool {
	return h.owner == owner && (h.owned() || h.phase == phaseLost)
}

// fixed is the length of the hold's lease if that is a fixed one, else zero.
func (h *hold) fixed() time.Duration {
	if h.lease.Fixed() {
		return h.span
	}
	return 0
}

// settle makes the head the holder of a hold, where there is none. From here on the watchdog sees it. If there is no watchdog
// any more, because the session was closed, the attempt is given up. It is entered and left as acquireRemote is.
func (e *lockState) settle(ctx context.Context, l *Lock, h hold, t *try) (bool, error) {
	e.mu.Lock()
	if t.note != "" && !h.cohort {
		h.note = newNote(t.note)
	}
	e.hold = h
	settled := e.settleLocked(ctx, l, t)
	if settled {
		e.startUpkeepLocked()
	}
	e.mu.Unlock()
	if !settled {
		e.giveUp()
		return false, ErrClosed
	}
	return true, nil
}

// settleLocked makes e.hold the head's, with the holds that it comes back with, or one. It returns false, and forgets the
// hold, if the session was closed: the baton then stays with the head. e.mu is held.
func (e *lockState) settleLocked(ctx context.Context, l *Lock, t *try) bool {
	e.waiting = false
	if e.s.abandoned.Load() { // set before Close looks for holds, so it sees this one or this sees it
		e.clearLocked()
		return false
	}
	h := &e.hold
	h.enter(phaseHeld)
	h.lockID = l.id()
	if h.cohort {
		e.lastUsed = h.token
		e.holderLock.Store(h.lockID)
		e.trustLocked(h.lease)
		e.holder.Store(h.owner.goroutine)
		if l.lastState.Load() != e {
			l.lastState.Store(e)
		}
	}
	if e.s.reporting {
		h.since = time.Now()
		e.reportGot(ctx, EventAcquired, t)
	}
	e.queue.Settle(max(t.holds, 1))
	e.s.noteToken(h.token)
	e.s.stats.acquired.Add(1)
	return true
}

// startUpkeepLocked starts what goes on beside a hold while it lasts: its note is written, its lease renewed, and Redis asked
// for it if another session may have taken it up already. It may also have been got anew since then, by a copy of the same
// attempt. e.mu is held.
func (e *lockState) startUpkeepLocked() {
	if e.hold.note != nil {
		e.noteLocked()
	}
	e.s.watchdog.wakeBy(e.hold.lease.Wake())
	if e.movedEpoch >= e.hold.epoch {
		e.scheduleCheckLocked()
	}
}

// trustLocked gives the hold a lease. e.mu is held.
func (e *lockState) trustLocked(l lease.Lease) {
	e.hold.lease = l
	e.holderUntil.Store(int64(l.Until().Sub(e.s.opened)))
}

// startReleasing begins what takes the hold's epoch from Redis: a message that it is gone is then no loss. Baton.
func (e *lockState) startReleasing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hold.phase == phaseHeld {
		e.hold.enter(phaseReleasing)
	}
}

// stopReleasing is called when the hold stays after all. Baton.
func (e *lockState) stopReleasing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hold.phase == phaseReleasing {
		e.hold.enter(phaseHeld)
	}
}

// leaveHold takes the hold away from its owner, whom a signal may put in line from now on. Baton.
func (e *lockState) leaveHold(t *ticket) hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hold
	e.clearLocked()
	t.holdGone = true
	return h
}

// handOverLocked takes the hold from its owner, and leaves it to the next owner of the baton. e.mu is held.
func (e *lockState) handOverLocked() {
	e.hold.enter(phaseHanded)
	e.hold.owner, e.hold.notifier, e.hold.wanted = Owner{}, nil, nil
	e.holder.Store(0)
}

// takeHanded takes over what the last owner left to the head, which asks Redis all the same. Baton.
func (e *lockState) takeHanded(head Owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head = head
	e.clearLocked()
}

// idleLocked lets a handed hold wait for an owner until the session is so old. e.mu is held.
func (e *lockState) idleLocked(until time.Duration) {
	e.hold.enter(phaseIdle)
	e.lingerUntil = until
}

// wakeIdleLocked leaves an idle hold to the head, if it has not been lost. The reference that the hold had is the caller's
// then. e.mu is held.
func (e *lockState) wakeIdleLocked() {
	if e.hold.inheritable() {
		e.hold.enter(phaseHanded)
	} else {
		e.clearLocked()
	}
}

// dropLocked ends a hold that an owner left. An idle one still has its reference. e.mu is held.
func (e *lockState) dropLocked() {
	if e.hold.phase == phaseIdle {
		e.hold = hold{phase: phaseIdle}
		return
	}
	e.clearLocked()
}

// clearLocked forgets the hold. e.mu is held.
func (e *lockState) clearLocked() {
	e.hold.enter(phaseVacant)
	e.hold = hold{}
	e.holder.Store(0)
}

// replace puts a hold in the place of the owner's present one. If that has been lost meanwhile, those who asked have
// been told. In a session that has been closed it is lost, and nobody would watch the new one. Baton.
func (e *lockState) replace(h hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.s.abandoned.Load() { // as in settleLocked
		return
	}
	h.since, h.lockID = e.s.now(), e.hold.lockID
	if e.hold.phase != phaseLost {
		h.since, h.notifier, h.wanted = e.hold.since, e.hold.notifier, e.hold.wanted
		h.note = cmp.Or(h.note, e.hold.note)
	}
	e.hold.enter(phaseHeld)
	h.phase = e.hold.phase
	e.hold = h
	e.watchLocked()
	e.startUpkeepLocked()
	e.s.noteToken(h.token)
}

// lose ends a hold that can no longer be trusted: its owner is told. The owner still has the baton. If it is in the
// middle of an operation, that finds out and gives the baton on; if it unlocks, that does; if it does neither, the
// baton is taken from it (evict) when the lease is over in Redis too. So a neighbour gets in no sooner than a stranger
// could, and the margin of the lease is the owner's to stop in.
func (e *lockState) lose(epoch uint64, why string) {
	e.mu.Lock()
	h := e.hold
	if h.inheritable() && h.epoch == epoch {
		e.dropLocked() // the next owner finds nothing to inherit
	}
	if !h.owned() || h.epoch != epoch {
		e.mu.Unlock()
		return
	}
	e.hold.enter(phaseLost)
	e.holder.Store(0)
	if h.notifier != nil {
		h.notifier.closeLost() // before any call can return ErrLost
	}
	e.s.reportLost(e.name, h, why)
	e.mu.Unlock()
	h.notifyLoss()
}

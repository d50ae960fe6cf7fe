package exclusive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A phase is the state of a session's hold on a lock. State.mu guards it, and only this file writes it.
type phase uint8

const (
	phaseVacant    phase = iota // the session has no hold
	phaseHeld                   // an owner has the lock, and its lease was trusted when last looked at
	phaseReleasing              // as held; but Await gives it up, or Resume gives it a new epoch: if Redis no longer has the old one, that is no loss
	phaseLost                   // the hold was lost; its owner has not unlocked, and still has the baton
	phaseHanded                 // the last owner left it to the one that has the baton now
	phaseIdle                   // the last owner left it, and the baton is free: the hold has a reference of its own
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

// enter changes the phase. Builds with the tag invariants, and those with the race detector, check that the transition
// is legal.
func (h *Hold) enter(next phase) {
	if invariants && next != h.phase && !slices.Contains(successors[h.phase], next) {
		panic(fmt.Sprintf("reentrant: bug: a hold went from %v to %v", h.phase, next))
	}
	h.phase = next
}

// A Hold is what an owner of this session has of a lock, or what it left to the next owner. It is guarded by
// State.mu. The goroutine that has the baton writes it, and so does the watchdog when it renews the lease or finds
// it over.
type Hold struct {
	phase         phase
	cohort        bool   // Redis has it as the session's, not as its owner's
	renewalFailed bool   // the last renewal failed
	checking      bool   // an ownership check is scheduled
	portable      bool   // the owner that left it was portable
	lockID        uint32 // of the Lock with which it was got
	Owner         core.Owner
	Epoch         uint64 // 0 for an idle hold that was lost
	op            uint64 // the number of its last operation in Redis
	Token         backend.Token
	last          backend.Token // the last token of its block
	Lease         lease.Lease
	span          time.Duration      // the lease that was asked for, and that renewals ask for
	notifier      *core.LossNotifier // nil until a caller asks to be notified of the loss
	wanted        *wantedChannel     // nil until a caller asks to be notified that another owner waits
	since         time.Time          // when it began, if the session reports events
	note          *note              // nil if it has none
}

// Owned reports whether an owner has the hold, as far as this process knows.
func (h *Hold) Owned() bool { return h.phase == phaseHeld || h.phase == phaseReleasing }

// passesLease reports whether the next owner of this session goes on with the hold's lease instead of a new one: most of it is
// left, and no other session can have resumed the hold. If one had, Redis could grant the next owner a shorter lease.
func (h *Hold) passesLease(now time.Time, length time.Duration) bool {
	return !h.Lease.Fixed() && h.Lease.Length >= length && h.Lease.Remaining(now) > length*2/3 && !h.portable
}

// inheritable reports whether an owner left the hold, and it has not been lost since.
func (h *Hold) inheritable() bool {
	return h.phase == phaseHanded || h.phase == phaseIdle && h.Epoch != 0
}

// belongsTo reports whether the owner has the hold, or lost it and has not been evicted yet.
func (h *Hold) belongsTo(owner core.Owner) bool {
	return h.Owner == owner && (h.Owned() || h.phase == phaseLost)
}

// fixed is the length of the hold's lease if that is a fixed one, else zero.
func (h *Hold) fixed() time.Duration {
	if h.Lease.Fixed() {
		return h.span
	}
	return 0
}

// settle makes the head the owner of a new hold, which the watchdog maintains from here on. If the session has been
// closed, settle gives up the attempt. The baton and the reference are as in acquireRemote.
func (e *State) settle(ctx context.Context, l *Handle, h Hold, t *Try) (bool, error) {
	e.mu.Lock()
	if t.note != "" {
		h.note = newNote(t.note)
	}
	e.Hold = h
	e.trustLocked(h.Lease)
	settled := e.settleLocked(ctx, l, t)
	if settled {
		e.startUpkeepLocked()
	}
	e.mu.Unlock()
	if !settled {
		e.giveUp()
		return false, core.ErrClosed
	}
	return true, nil
}

// settleLocked makes the head the owner of e.hold, with the hold count that the try brings, or one. If the session has
// been closed, settleLocked forgets the hold and returns false, and the head keeps the baton. e.mu is held.
func (e *State) settleLocked(ctx context.Context, l *Handle, t *Try) bool {
	e.waiting = false
	if e.s.core.Abandoned.Load() { // set before Close looks for holds: either Close finds this one, or this call sees the flag
		e.clearLocked()
		return false
	}
	h := &e.Hold
	h.enter(phaseHeld)
	h.lockID = l.id()
	if h.cohort {
		e.lastUsed = h.Token
		if e.holderLock.Load() != h.lockID {
			e.holderLock.Store(h.lockID)
		}
		e.holder.Store(core.GoroutineOf(h.Owner))
		if l.lastState.Load() != e {
			l.lastState.Store(e)
		}
	}
	if e.s.core.Reporting {
		h.since = time.Now()
		e.reportGot(ctx, core.EventAcquired, t)
	}
	e.Queue.Settle(max(t.holds, 1))
	e.s.core.SawToken(h.Token)
	e.s.core.Counts.Acquired.Add(1)
	return true
}

// startUpkeepLocked starts the background work for a hold: it sends the note and has the watchdog renew the lease. If
// another session may have resumed the hold already, it asks Redis, since a copy of the same attempt may have got the
// hold anew after that. e.mu is held.
func (e *State) startUpkeepLocked() {
	if e.Hold.note != nil {
		e.noteLocked()
	}
	e.s.Watchdog.WakeBy(e.Hold.Lease.Wake())
	if e.movedEpoch >= e.Hold.Epoch {
		e.scheduleCheckLocked()
	}
}

// trustLocked gives the hold a lease. e.mu is held.
func (e *State) trustLocked(l lease.Lease) {
	e.Hold.Lease = l
	e.trustUntil.Store(int64(l.Until().Sub(e.s.core.Opened)))
}

// trustLeft returns for how much longer the hold's lease can be trusted when the session has the given age.
func (e *State) trustLeft(age time.Duration) time.Duration {
	return time.Duration(e.trustUntil.Load()) - age
}

// startReleasing marks the hold before a command that ends its epoch in Redis. If Redis then no longer has the epoch,
// that is no loss. Baton.
func (e *State) startReleasing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Hold.phase == phaseHeld {
		e.Hold.enter(phaseReleasing)
	}
}

// stopReleasing undoes startReleasing, if the hold stays after all. Baton.
func (e *State) stopReleasing() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Hold.phase == phaseReleasing {
		e.Hold.enter(phaseHeld)
	}
}

// leaveHold ends the hold of an owner that waits for a condition, and returns it. From here on a signal may put the
// owner in the queue. Baton.
func (e *State) leaveHold(t *Ticket) Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.Hold
	e.clearLocked()
	t.holdGone = true
	return h
}

// handOverLocked takes the hold from its owner, and leaves it to the next one that gets the baton. e.mu is held.
func (e *State) handOverLocked() {
	e.Hold.enter(phaseHanded)
	e.Hold.portable = core.IsPortable(e.Hold.Owner)
	e.Hold.Owner, e.Hold.notifier, e.Hold.wanted = core.Owner{}, nil, nil
	e.holder.Store(0)
}

// takeHanded ends the hold that the last owner left to the head, which asks Redis all the same. Baton.
func (e *State) takeHanded(head core.Owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head = head
	e.clearLocked()
}

// idleLocked makes a handed hold idle. It is given back at the session's age until, if no owner takes it before. e.mu
// is held.
func (e *State) idleLocked(until time.Duration) {
	e.Hold.enter(phaseIdle)
	e.lingerUntil = until
}

// wakeIdleLocked leaves an idle hold to the head, or clears it if it has been lost. The caller gets the reference that
// the hold had. e.mu is held.
func (e *State) wakeIdleLocked() {
	if e.Hold.inheritable() {
		e.Hold.enter(phaseHanded)
	} else {
		e.clearLocked()
	}
}

// dropLocked ends a handed or an idle hold. An idle one stays idle, with epoch 0, since it still has its reference.
// e.mu is held.
func (e *State) dropLocked() {
	if e.Hold.phase == phaseIdle {
		e.Hold = Hold{phase: phaseIdle}
		return
	}
	e.clearLocked()
}

// clearLocked forgets the hold. e.mu is held.
func (e *State) clearLocked() {
	e.Hold.enter(phaseVacant)
	e.Hold = Hold{}
	e.holder.Store(0)
}

// replace replaces the owner's hold by h. Callers that asked to be notified about the old hold are notified about h,
// unless the old hold has been lost: then they have been notified. In a closed session replace does nothing, since no
// watchdog would maintain h. Baton.
func (e *State) replace(h Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.s.core.Abandoned.Load() { // as in settleLocked
		return
	}
	h.since, h.lockID = e.s.core.Now(), e.Hold.lockID
	if e.Hold.phase != phaseLost {
		h.since, h.notifier, h.wanted = e.Hold.since, e.Hold.notifier, e.Hold.wanted
		h.note = cmp.Or(h.note, e.Hold.note)
	}
	e.Hold.enter(phaseHeld)
	h.phase = e.Hold.phase
	e.Hold = h
	e.trustLocked(h.Lease)
	e.watchLocked()
	e.startUpkeepLocked()
	e.s.core.SawToken(h.Token)
}

// Lose ends a hold that can no longer be trusted, and notifies its owner, who still has the baton. An operation under
// way finds the loss and passes the baton on, and so does Unlock. If there is neither, evict takes the baton from the
// owner when the lease is over in Redis too. So another owner of this session gets the lock no sooner than one of
// another session could, and the owner has the margin of the lease to stop.
func (e *State) Lose(epoch uint64, why string) {
	e.mu.Lock()
	h := e.Hold
	if h.inheritable() && h.Epoch == epoch {
		e.dropLocked() // the next owner finds nothing to inherit
	}
	if !h.Owned() || h.Epoch != epoch {
		e.mu.Unlock()
		return
	}
	e.Hold.enter(phaseLost)
	e.holder.Store(0)
	if h.notifier != nil {
		h.notifier.CloseLost() // before any call can return ErrLost
	}
	e.s.reportLost(e.name, h, why)
	e.mu.Unlock()
	h.notifyLoss()
}

// ownState returns the lock state if the calling goroutine has the lock by this handle, in cohort mode, and its lease
// can be trusted now; otherwise nil. goroutine is 0 for a named owner, which never has it this way. age is the session's
// now. In a process that was stopped the watchdog may not have noticed yet that the lease is over. The lock state is not
// used for another lock while the goroutine has its hold; if the hold is lost at this moment, the queue refuses the
// operation.
func (l *Handle) ownState(goroutine int64) (e *State, age time.Duration) {
	e = l.lastState.Load()
	if e == nil || goroutine == 0 || e.holder.Load() != goroutine || e.holderLock.Load() != l.lazyID.Load() {
		return nil, 0
	}
	if age = l.Room.core.Age(); e.trustLeft(age) <= 0 {
		return nil, 0
	}
	return e, age
}

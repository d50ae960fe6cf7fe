package exclusive

import (
	"cmp"
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Hold is what was known at one moment of what an owner of this session has of a lock.
type Hold struct {
	Owner core.Owner
	Epoch uint64
	Token backend.Token
	Lease lease.Lease
	span  time.Duration // the lease that renewals ask for
	phase machine.Phase
	holdInfo
}

// Owned reports whether an owner has the hold, as far as this process knows.
func (h *Hold) Owned() bool { return h.phase == machine.Held || h.phase == machine.Leaving }

// belongsTo reports whether the owner has the hold, or lost it and has not been evicted yet.
func (h *Hold) belongsTo(owner core.Owner) bool {
	return h.Owner == owner && (h.Owned() || h.phase == machine.Lost)
}

// fixed is the length of the hold's lease if that is a fixed one, else zero.
func (h *Hold) fixed() time.Duration {
	if h.Lease.Fixed() {
		return h.span
	}
	return 0
}

// A holdInfo is what this process keeps about a hold for its users. It decides nothing. It is guarded by State.mu.
type holdInfo struct {
	lockID   uint32             // of the Lock with which it was got
	notifier *core.LossNotifier // nil until a caller asks to be notified of the loss
	wanted   *wantedChannel     // nil until a caller asks to be notified that another owner waits
	since    time.Time          // when it began, if the session reports events
	note     *note              // nil if it has none
}

// holdLocked returns the hold. e.mu is held.
func (e *State) holdLocked() Hold {
	return Hold{Owner: e.m.Owner(), Epoch: e.m.Epoch(), Token: e.m.Token(), Lease: e.m.Lease(), span: e.m.Span(), phase: e.m.Phase(), holdInfo: e.info}
}

// settleLocked carries out that the machine has made the head a holder: its owner is known, and has the hold count of
// the step. e.mu is held.
func (e *State) settleLocked(ctx context.Context, l *Handle, t *Try, holds int) {
	e.info = holdInfo{lockID: l.id(), notifier: t.notifier}
	if e.holderLock.Load() != e.info.lockID {
		e.holderLock.Store(e.info.lockID)
	}
	if cohort := e.m.Cohort(); e.cohort.Load() != cohort {
		e.cohort.Store(cohort)
	}
	e.holder.Store(core.GoroutineOf(e.m.Owner()))
	if l.lastState.Load() != e {
		l.lastState.Store(e)
	}
	if e.s.core.Reporting {
		e.info.since = time.Now()
		e.reportGot(ctx, core.EventAcquired, t)
	}
	e.Queue.Settle(holds)
	e.s.core.SawToken(e.m.Token())
	e.s.core.Counts.Acquired.Add(1)
}

// startUpkeepLocked starts the background work for a hold that is new in Redis: it sends the note and has the watchdog
// renew the lease. If another session may have resumed the hold already, it asks Redis (check), since a copy of the same
// attempt may have got the hold anew after that. e.mu is held.
func (e *State) startUpkeepLocked(note *note, check bool) {
	if e.info.note = note; note != nil {
		e.noteLocked()
	}
	e.s.Watchdog.WakeBy(e.m.Lease().Wake())
	if check {
		e.checkLocked()
	}
}

// trustLocked records for how long the lease can be trusted, after the machine has changed that. e.mu is held.
func (e *State) trustLocked() {
	e.trustUntil.Store(int64(e.m.Lease().Until().Sub(e.s.core.Opened)))
}

// trustLeft returns for how much longer the hold's lease can be trusted when the session has the given age.
func (e *State) trustLeft(age time.Duration) time.Duration {
	return time.Duration(e.trustUntil.Load()) - age
}

// disownLocked carries out that the owner no longer has the hold. e.mu is held.
func (e *State) disownLocked() {
	e.info = holdInfo{}
	e.holder.Store(0)
}

// replaceLocked carries out that the owner's hold goes on under another epoch. old is the one before: callers that asked
// to be notified about it are notified about the new one, unless it has been lost. Then they have been notified. e.mu is
// held.
func (e *State) replaceLocked(old *Hold, note *note, check bool) {
	e.info = holdInfo{lockID: old.lockID, since: e.s.core.Now()}
	if old.Owned() {
		e.info.since, e.info.notifier, e.info.wanted = old.since, old.notifier, old.wanted
		note = cmp.Or(note, old.note)
	}
	e.trustLocked()
	e.watchLocked()
	e.startUpkeepLocked(note, check)
	e.s.core.SawToken(e.m.Token())
}

// Lose ends a hold that can no longer be trusted, and notifies its owner. See [machine.Machine.Lose].
func (e *State) Lose(epoch uint64, why string) {
	e.mu.Lock()
	e.carryOutLoss(e.m.Lose(epoch, why))
}

// carryOutLoss notifies the owner of a lost hold, if the step says so. e.mu is held, and free when it returns.
func (e *State) carryOutLoss(s machine.Step) {
	if s.Do != machine.Lose {
		e.mu.Unlock()
		return
	}
	h := e.holdLocked()
	e.recordLossLocked(&h, s.Why)
	e.mu.Unlock()
	h.notifyLoss()
}

// recordLossLocked records that the hold is lost, before any call can return ErrLost. The caller calls notifyLoss without
// the mutex. e.mu is held.
func (e *State) recordLossLocked(h *Hold, why string) {
	e.holder.Store(0)
	if h.notifier != nil {
		h.notifier.CloseLost()
	}
	e.s.reportLost(e.name, h, why)
}

// ownState returns the lock state if the calling goroutine has the lock by this handle, and its lease can be trusted now; otherwise nil. goroutine is 0 for a named owner, which never has it this way. age is the session's
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

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
	since    time.Time          // when it began
	note     *note              // nil if it has none
}

// holdLocked returns the hold. st.mu is held.
func (st *State) holdLocked() Hold {
	return Hold{Owner: st.m.Owner(), Epoch: st.m.Epoch(), Token: st.m.Token(), Lease: st.m.Lease(), span: st.m.Span(), phase: st.m.Phase(), holdInfo: st.info}
}

// settleLocked carries out that the machine has made the head a holder: its owner is known, and has the hold count of
// the step. st.mu is held.
func (st *State) settleLocked(ctx context.Context, l *Handle, t *Try, now time.Time, holds int) {
	st.info = holdInfo{lockID: l.id(), notifier: t.notifier, since: now}
	if st.holderLock.Load() != st.info.lockID {
		st.holderLock.Store(st.info.lockID)
	}
	if cohort := st.m.Cohort(); st.cohort.Load() != cohort {
		st.cohort.Store(cohort)
	}
	st.holder.Store(core.GoroutineOf(st.m.Owner()))
	if l.lastState.Load() != st {
		l.lastState.Store(st)
	}
	if st.s.core.Reporting {
		st.reportGot(ctx, core.EventAcquired, t)
	}
	st.Queue.Settle(holds)
	st.s.core.SawToken(st.m.Token())
	st.s.core.Counts.Acquired.Add(1)
}

// startUpkeepLocked starts the background work for a hold that is new in Redis: it sends the note and has the keeper
// renew the lease. If another session may have resumed the hold already, it asks Redis (check), since a copy of the same
// attempt may have got the hold anew after that. st.mu is held.
func (st *State) startUpkeepLocked(note *note, check bool) {
	if st.info.note = note; note != nil {
		st.noteLocked()
	}
	st.s.keeper.WakeBy(st.m.Lease().Wake())
	if check {
		st.checkLocked()
	}
}

// trustLocked records for how long the lease can be trusted, after the machine has changed that. st.mu is held.
func (st *State) trustLocked() {
	st.trustUntil.Store(int64(st.m.Lease().Until().Sub(st.s.core.Opened)))
}

// trustLeft returns for how much longer the hold's lease can be trusted when the session has the given age.
func (st *State) trustLeft(age time.Duration) time.Duration {
	return time.Duration(st.trustUntil.Load()) - age
}

// disownLocked carries out that the owner no longer has the hold. st.mu is held.
func (st *State) disownLocked() {
	st.info = holdInfo{}
	st.holder.Store(0)
}

// replaceLocked carries out that the owner's hold goes on under another epoch. old is the one before: callers that asked
// to be notified about it are notified about the new one, unless it has been lost. Then they have been notified. st.mu is
// held.
func (st *State) replaceLocked(old *Hold, note *note, check bool) {
	st.info = holdInfo{lockID: old.lockID, since: time.Now()}
	if old.Owned() {
		st.info.since, st.info.notifier, st.info.wanted = old.since, old.notifier, old.wanted
		note = cmp.Or(note, old.note)
	}
	st.trustLocked()
	st.watchLocked()
	st.startUpkeepLocked(note, check)
	st.s.core.SawToken(st.m.Token())
}

// Lose ends a hold that can no longer be trusted, and notifies its owner. See [machine.Machine.Lose].
func (st *State) Lose(epoch uint64, why string) {
	st.mu.Lock()
	st.carryOutLoss(st.m.Lose(epoch, why))
}

// carryOutLoss notifies the owner of a lost hold, if the step says so. st.mu is held, and free when it returns.
func (st *State) carryOutLoss(s machine.Step) {
	if s.Do != machine.Lose {
		st.mu.Unlock()
		return
	}
	h := st.holdLocked()
	st.recordLossLocked(&h, s.Why)
	st.mu.Unlock()
	h.notifyLoss()
}

// recordLossLocked records that the hold is lost, before any call can return ErrLost. The caller calls notifyLoss without
// the mutex. st.mu is held.
func (st *State) recordLossLocked(h *Hold, why string) {
	st.holder.Store(0)
	if h.notifier != nil {
		h.notifier.CloseLost()
	}
	st.s.reportLost(st.name, h, why)
}

// ownState returns the lock state if the calling goroutine has the lock by this handle, and its lease can be trusted now;
// otherwise nil. goroutine is 0 for a named owner, which never has it this way. age is the session's now. In a process that
// was stopped the keeper may not have noticed yet that the lease is over. The lock state is not used for another lock
// while the goroutine has its hold; if the hold is lost at this moment, the queue refuses the operation.
func (l *Handle) ownState(goroutine int64) (st *State, age time.Duration) {
	st = l.lastState.Load()
	if st == nil || goroutine == 0 || st.holder.Load() != goroutine || st.holderLock.Load() != l.lazyID.Load() {
		return nil, 0
	}
	if age = l.Room.core.Age(); st.trustLeft(age) <= 0 {
		return nil, 0
	}
	return st, age
}

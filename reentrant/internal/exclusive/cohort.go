package exclusive

import (
	"context"
	"time"

	"github.com/petermattis/goid"

	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// In cohort mode, after Dice, Marathe and Shavit's lock cohorting, the session has the lock, and its owners hand the lock to
// each other without a command. In Redis the lock's owner is [backend.CohortOwner] or [backend.LingeringOwner].

// A session in cohort mode takes the lock with a block of tokens, one for each owner of its turn, and the owners
// after the first inherit it:
//
//	Redis     acquire e7, tokens 10..266                              acquire e8, yield
//	              │                                                        ▲
//	owners        └─▶ a: 10 ──▶ b: 11 ──▶ c: 12 ──▶ a: 13 ──▶ … ──▶ x: 266 ┘
//
// A turn ends when the tokens are used up, after a number of hand-overs or a time, when too little is left of the lease,
// or when no owner of the session waits any more. Then the session asks Redis again, or releases the lock.

// ReenterFast re-enters in cohort mode without the session's mutex, for a goroutine that has the lock by this handle already
// and whose hold is not known to be lost. If it returns false, the caller takes the slow way.
func (h *Handle) ReenterFast(ctx context.Context) bool {
	st, _ := h.ownState(goid.Get())
	if st == nil || !st.cohort.Load() || ctx == nil || h.Room.core.Reporting || ctx.Err() != nil {
		return false
	}
	owner := core.CurrentOwner(ctx)
	if core.IsShared(owner) {
		return false
	}
	_, ok := st.Queue.Reenter(owner)
	if ok {
		st.s.core.Counts.Reentries.Add(1)
	}
	return ok
}

// A hold lingers when its owner has unlocked and no other owner waited for the lock: the session keeps the hold, and the baton
// is free. The next owner of this session takes the baton and inherits the hold. If no owner has come when the time is up,
// another session asks for the lock, or this session is closed, stopLingering takes the baton and gives the hold back.

// keepLocked lets the hold linger and frees the baton, and returns true, if the machine keeps the hold for the session's next
// owner. st.mu is held, and free when keepLocked returns true.
func (st *State) keepLocked(ctx context.Context, age time.Duration) bool {
	closing := st.s.core.IsClosing() // set before Close looks for lingering holds: Close finds this hold, or closing is true
	until, ok := st.m.Linger(&st.s.options, age, closing)
	if !ok {
		return false
	}
	st.reportReleaseLocked(ctx, false)
	st.disownLocked()
	st.Queue.Leave() // from now on the lock state may serve another lock
	st.mu.Unlock()
	st.s.keeper.WakeBy(st.s.core.Opened.Add(until))
	return true
}

// startDismissal reports whether the hold lingers and no call of stopLingering for it is pending. If so, the caller must have
// the Cleaner call stopLingering, and take a reference to the lock state for that call.
func (st *State) startDismissal() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.m.Dismiss().Do == machine.Dismiss
}

// stopLingering gives back an idle hold. It owns a reference to the lock state, which it drops.
func (st *State) stopLingering() {
	st.mu.Lock()
	lingers := st.m.Arrive() && st.Queue.TryClaim(core.Owner{}, localqueue.Fair) == localqueue.Claimed // false if an owner came
	if lingers {
		st.startCleaningLocked()
	}
	st.mu.Unlock()
	if lingers {
		st.cleanUp() // drops the reference of the hold
	}
	st.s.putState(st)
}

// noteWanted notes that another session waits for the hold with an epoch. It returns true if the hold lingers and no call of
// stopLingering for it is pending. If so, the caller must have the Cleaner call stopLingering, and pass a reference to the lock
// state on to that call.
func (st *State) noteWanted(epoch uint64) (dismissed bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch st.m.Wanted(epoch).Do {
	case machine.Notify:
		st.closeWantedLocked()
	case machine.Dismiss:
		return true
	}
	return false
}

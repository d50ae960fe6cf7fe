package exclusive

import (
	"context"

	"github.com/petermattis/goid"

	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// Cohort mode, after Dice, Marathe and Shavit's lock cohorting: the lock is the session's, and its owners hand it to
// each other without a command. Its owner in Redis is [backend.CohortOwner] or [backend.LingeringOwner].

// A session in cohort mode takes the lock with a block of tokens, one for each owner of its turn, and the owners
// after the first inherit it:
//
//	Redis     acquire e7, tokens 10..266                              acquire e8, yield
//	              │                                                        ▲
//	owners        └─▶ a: 10 ──▶ b: 11 ──▶ c: 12 ──▶ a: 13 ──▶ … ──▶ x: 266 ┘
//
// A turn ends with the block of tokens, at its limits, when too little is left of the lease, or with the queue; then
// the session asks Redis again, or releases.

// ReenterFast is the fast way to re-enter in cohort mode: without the session's mutex, for a goroutine that has the
// lock by this handle already and whose hold is not known to be lost. After false the caller takes the slow way.
func (l *Handle) ReenterFast(ctx context.Context) bool {
	e, _ := l.ownState(goid.Get())
	if e == nil || !e.cohort.Load() || ctx == nil || l.Room.core.Reporting || ctx.Err() != nil {
		return false
	}
	owner := core.CurrentOwner(ctx)
	if core.IsShared(owner) {
		return false
	}
	_, ok := e.Queue.Reenter(owner)
	if ok {
		e.s.core.Counts.Reentries.Add(1)
	}
	return ok
}

// A hold lingers when it was handed on and no owner was there to take it: the session keeps it, and the baton is free.
// It ends when an owner takes the baton and inherits it; or when the time is up, another session asks or this one is
// closed: then stopLingering takes the baton and gives the hold back.

// startDismissal reports whether the hold lingers and no clean-up is on its way to it. The caller then sends one: stopLingering,
// with a reference to the lock state.
func (e *State) startDismissal() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.m.Dismiss().Do == machine.Dismiss
}

// stopLingering gives back an idle hold. It comes with a reference to the lock state.
func (e *State) stopLingering() {
	if e.claimLingering() {
		e.cleanUp() // with the reference of the hold
	}
	e.s.PutState(e)
}

// claimLingering takes the baton for a clean-up, if the hold still lingers.
func (e *State) claimLingering() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.m.Arrive() || e.Queue.TryClaim(core.Owner{}, localqueue.Fair) != localqueue.Claimed {
		return false // an owner is about to inherit it
	}
	e.startCleaningLocked()
	return true
}

// noteWanted notes that another session waits for the hold with an epoch. It reports what startDismissal does.
func (e *State) noteWanted(epoch uint64) (dismissed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.m.Wanted(epoch).Do {
	case machine.Notify:
		e.closeWantedLocked()
	case machine.Dismiss:
		return true
	}
	return false
}

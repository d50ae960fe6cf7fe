package exclusive

import (
	"context"
	"math"
	"time"

	"github.com/petermattis/goid"

	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
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

// inherit gives the head the hold that its session has already, without a command. It returns false if there is none,
// or if the head must ask Redis. Its frames, and those of what it calls, are small: the stack of a goroutine that has
// waited long is no longer in the processor's caches. Baton.
func (e *State) inherit(ctx context.Context, l *Handle, owner core.Owner, t *Try) bool {
	e.mu.Lock()
	idle := e.Hold.phase == phaseIdle
	if idle {
		e.wakeIdleLocked()
	}
	inherited := e.inheritLocked(ctx, l, owner, t, idle)
	e.mu.Unlock()
	if idle {
		e.s.PutState(e) // the reference of the idle hold
	}
	return inherited
}

// inheritLocked is inherit with e.mu held. idle says that the hold was idle.
func (e *State) inheritLocked(ctx context.Context, l *Handle, owner core.Owner, t *Try, idle bool) bool {
	h := &e.Hold
	if h.phase != phaseHanded || !h.cohort {
		return false
	}
	age := e.s.core.Age()
	if idle { // no other session has asked for it meanwhile
		e.turn = e.newTurn(age)
	}
	if h.Token >= h.last || e.trustLeft(age) < h.Lease.Length/3 || e.spent(age) || ctx.Err() != nil {
		return false
	}
	e.turn.passes++
	h.Owner, h.notifier = owner, t.notifier
	h.Token++
	return e.settleLocked(ctx, l, t)
}

// ReenterFast is the fast way to re-enter in cohort mode: without the session's mutex, for a goroutine that has the
// lock by this handle already and whose hold is not known to be lost. After false the caller takes the slow way.
func (l *Handle) ReenterFast(ctx context.Context) bool {
	e, _ := l.ownState(goid.Get())
	if e == nil || ctx == nil || l.Room.core.Reporting || ctx.Err() != nil {
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

// turn counts the local hand-overs since this session got the lock.
type turn struct {
	began      time.Duration // the session's age
	passes     int32
	limit      int32 // 0: there is no turn
	generation int32 // how many owners were in the queue when it began
}

// newTurn begins a turn for the owners that are in the queue now. age is the session's.
func (e *State) newTurn(age time.Duration) turn {
	return turn{began: age, limit: int32(min(e.s.core.Config.Handoffs, math.MaxInt32)), generation: int32(e.Queue.Len())}
}

// spent reports whether another session, if one waits, should have the lock when this one has the given age.
func (e *State) spent(age time.Duration) bool {
	t := e.turn
	lasted := age - t.began
	return t.passes >= t.limit || lasted >= e.s.core.Config.HandoffTime || lasted >= core.GenerationTime && t.passes >= t.generation
}

// A hold lingers when it was handed on and no owner was there to take it: the session keeps it, and the baton is free.
// It ends when an owner takes the baton and inherits it; or when the time is up, another session asks or this one is
// closed: then stopLingering takes the baton and gives the hold back.

// lingerLocked keeps a hold that the owner with the baton has just left, and frees the baton. It returns false if the
// hold must not be kept, and the caller still has the baton. e.mu is held.
func (e *State) lingerLocked(ctx context.Context, h *Hold, age time.Duration) bool {
	if e.s.core.Config.Linger == 0 || h.Token >= h.last {
		return false
	}
	select {
	case <-e.s.core.Closing: // closed before Close looks for lingering holds: either Close finds this one, or this call sees that
		return false
	default:
	}
	if e.wantedEpoch >= e.Hold.Epoch {
		return false
	}
	e.handOverLocked()
	e.idleLocked(age + e.s.core.Config.Linger)
	e.reportRelease(ctx, h, false, nil)
	e.Queue.Leave() // from now on the lock state may serve another lock
	return true
}

// startDismissal reports whether the hold lingers and no clean-up is on its way to it. The caller then sends one: stopLingering,
// with a reference to the lock state.
func (e *State) startDismissal() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.startDismissalLocked()
}

func (e *State) startDismissalLocked() bool {
	if e.Hold.phase != phaseIdle || e.dismissed {
		return false
	}
	e.dismissed = true
	return true
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
	e.dismissed = false
	if e.Hold.phase != phaseIdle || e.Queue.TryClaim(core.Owner{}, localqueue.Fair) != localqueue.Claimed {
		return false // an owner is about to inherit it
	}
	e.clearLocked()
	e.startCleaningLocked()
	return true
}

// noteWanted notes that another session waits for the hold with an epoch. It reports what startDismissal does.
func (e *State) noteWanted(epoch uint64) (dismissed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wantedEpoch = max(e.wantedEpoch, epoch)
	if e.Hold.Owned() && e.Hold.Epoch <= epoch {
		e.closeWantedLocked()
	}
	return e.startDismissalLocked()
}

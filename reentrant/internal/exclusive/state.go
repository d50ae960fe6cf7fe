package exclusive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// lost reports whether the owner has lost a hold of the lock that it has not unlocked since.
func (l *Handle) lost(owner core.Owner) bool {
	return l.Room.core.Debts.Owed(core.DebtOf(core.ModeLock, l.Name, owner)) > 0
}

// A State is the state of one lock name in one session: the queue of its owners, and what the session has in Redis.
// It is in use while an owner holds the lock or waits for it, or a clean-up runs. After that it may be reused for
// another name.
//
// The baton of the queue is the right to act. One goroutine at a time has it: the head that asks Redis, the holder
// during one of its operations, or a clean-up. Only that goroutine may take, re-enter or give up the lock in Redis, and
// touch the fields marked "baton". A function whose comment ends with "Baton." is called with it.
type State struct {
	s *Room

	// Written when the lock state is (re)used, under s.mu, before any goroutine can find it; constant while refs > 0.
	name   string
	remote backend.Remote

	refs int // s.mu: one for the hold, for each caller inside and for each clean-up

	Queue localqueue.Queue[core.Owner]

	// Baton.
	unknownUntil time.Duration // the session's age up to which a copy of an attempt may be under way that had no reply
	turn         turn          // the run of local hand-overs
	timer        *time.Timer   // of the parked head
	wake         chan struct{} // 1-buffered: a grant has arrived, or the channel to the backend was reopened
	fieldOwner   core.Owner    // the last owner that was printed
	field        string        // fieldOwner as Redis has it
	lastUsed     backend.Token // the last token used of the block that came with the last attempt; 0: all of them
	prior        backend.Prior // how the last reply left the lock in Redis; none if the outcome of a later command is not known
	unreleased   bool          // Redis may have a hold, a grant or a place of this session, to be released

	watched    atomic.Bool   // the hold may have a wantedChannel. Written under mu. It shares a word with unreleased
	holderLock atomic.Uint32 // the id of the Lock with which holder got it
	waiting    bool          // mu: the attempt waits for a grant. It shares a word with holderLock
	dismissed  bool          // mu: a clean-up is on its way to the idle hold

	// The goroutine that has the lock in cohort mode; 0 if there is none, or the hold is found to be lost. Written
	// under mu with hold. A goroutine that reads its own id here has the lock.
	holder     atomic.Int64
	trustUntil atomic.Int64 // how old the session is, in nanoseconds, at the end of the trust in the hold's lease. Written under mu with that

	mu            sync.Mutex    // guards what follows; taken after s.mu and before the queue's own
	sentEpoch     uint64        // the last epoch sent; written with the baton, whose owner may read it without mu
	head          core.Owner    // the owner whose attempt it is
	grant         backend.Grant // that came for the attempt
	Hold          Hold
	tickets       []*Ticket     // of owners that wait for the lock's conditions, or come back from there
	cleaning      chan struct{} // closed when the clean-up that has the baton is done; nil when there is none
	cleaningSince time.Duration // the session's age when that began
	lingerUntil   time.Duration // the session's age at which the idle hold is given back
	wantedEpoch   uint64        // the hold with this epoch, or a later one, was asked for by another session
	movedEpoch    uint64        // the hold with this epoch, or an earlier one, may have been taken up by another session
}

// ownerField returns the owner as Redis has it. It keeps the last one: a lock that is not contended often has the same
// owner again. Baton.
func (e *State) ownerField(o core.Owner) string {
	if e.fieldOwner != o || e.field == "" {
		e.fieldOwner, e.field = o, o.String()
	}
	return e.field
}

// granted handles a grant that was pushed. It returns false if no attempt needs the grant, so that it must be released.
// s.mu is not held.
func (e *State) granted(g backend.Grant) (wanted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.ticketLocked(g.Epoch); t != nil && e.sentEpoch < g.Epoch {
		e.grant = g // for an owner that was signalled and is not the head yet
		t.Over = true
		t.Wake(true) // if the message of the signal was lost
		return true
	}
	if e.sentEpoch != g.Epoch || !e.waiting {
		// A newer attempt superseded the grant, or the reply to a heartbeat came first: nothing to do. Or the attempt
		// was given up: a clean-up is on its way, or the next head takes over the grant. Or the session has the lock, and
		// what would release the grant would release that.
		return e.sentEpoch > g.Epoch || e.Hold.inheritable() || !e.Queue.Idle()
	}
	e.grant = g
	e.nudge()
	return true
}

// nudge wakes the parked head. If there is none, the next head to park wakes at once.
func (e *State) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// finishOperation ends an operation of the holder, with its new hold count. It returns false if the hold was lost
// meanwhile: the baton then stays with the caller, and it is on record that the owner still owes so many Unlocks.
func (e *State) finishOperation(holds, owed int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finishOperationLocked(holds, owed)
}

// finishOperationLocked is finishOperation with e.mu held.
func (e *State) finishOperationLocked(holds, owed int) bool {
	if e.Hold.phase == phaseLost {
		e.oweLocked(owed)
		e.clearLocked()
		return false
	}
	e.Queue.Settle(holds)
	return true
}

// finishAcquire is finishOperation for an operation that takes the lock. If err is nil, it reports an event of the
// kind.
func (e *State) finishAcquire(ctx context.Context, kind core.EventKind, t *Try, holds, owed int, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	settled := e.finishOperationLocked(holds, owed)
	if settled && err == nil && e.s.core.Reporting {
		e.reportGot(ctx, kind, t)
	}
	return settled
}

// heldBy returns the hold, and reports whether the owner has it. If the lease is over and the watchdog has not found
// that yet, in a process that was paused, heldBy makes the hold lost, so that no later call reports it as held. No
// mutex is held.
func (e *State) heldBy(owner core.Owner) (Hold, bool) {
	e.mu.Lock()
	h := e.Hold
	e.mu.Unlock()
	held := h.Owned() && h.Owner == owner
	if held && !h.Lease.Trusted(time.Now()) {
		e.Lose(h.Epoch, "the lease was over when the owner looked")
		held = false
	}
	return h, held
}

// withHold calls f with the hold of a lock, if an owner has it and it has the given epoch, and returns f's result. If not,
// it returns false. f is called with the mutex of the lock state, and no reference is left afterwards: what runs in the
// background has none while it waits for Redis, so that Close need not wait for it.
func (s *Room) withHold(name string, epoch uint64, f func(*Hold) bool) bool {
	e := s.FindState(name)
	if e == nil {
		return false
	}
	defer s.PutState(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Hold.Owned() && e.Hold.Epoch == epoch && f(&e.Hold)
}

package reentrant

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
)

// A lockState is one lock name in one session: the queue of this process's owners, and what the session has in Redis.
// It exists while an owner holds the lock, waits for it or cleans up after it, and is then reused for another name.
//
// The baton of the queue says who may act: whoever has it (the head that asks Redis, the owner during one of its
// operations, a cleaner) is the only one to send commands for the lock and the only one to touch the fields marked
// "baton".
type lockState struct {
	s *session

	// Written when the lock state is (re)used, under s.mu, before any goroutine can find it; constant while refs > 0.
	name   string
	remote backend.Remote

	refs int // s.mu: one for the hold, for each caller inside and for each clean-up

	queue localqueue.Queue[Owner]

	// Baton.
	unknownUntil time.Duration // until the session is so old a copy of an attempt may be under way whose answer is not known
	turn         turn          // the run of local hand-overs
	timer        *time.Timer   // of the parked head
	wake         chan struct{} // 1-buffered: a grant has arrived, or the channel to the backend was reopened
	fieldOwner   Owner         // the last owner that was printed,
	field        string        // and how
	lastUsed     Token         // the last token used of the block that came with the last attempt; 0: all of them
	prior        backend.Prior // how the last answer left the lock in Redis; none if the outcome of a later command is not known
	mayOwe       bool          // Redis may have a hold, a grant or a place of this session

	watched    atomic.Bool   // the hold may have a wantedChannel. Written under mu. It is here to fill the word of mayOwe, as is
	holderLock atomic.Uint32 // the id of the Lock with which holder got it
	waiting    bool          // mu: the attempt waits for a grant. It is here to fill the word of holderLock, as is
	dismissed  bool          // mu: a clean-up is on its way to the idle hold

	// The goroutine that has the lock in cohort mode and has not been told that it is lost; 0 if there is none. Written
	// under mu with hold. A goroutine that reads its own id here has the lock.
	holder      atomic.Int64
	holderUntil atomic.Int64 // the end of its trust, in nanoseconds since the session was opened. Written under mu with the lease

	mu            sync.Mutex    // guards what follows; taken after s.mu and before the queue's own
	sentEpoch     uint64        // the last epoch sent; written with the baton, whose owner may read it without mu
	head          Owner         // whose attempt it is
	grant         backend.Grant // that came for it
	hold          hold
	tickets       []*ticket     // owners who wait for the lock's conditions, or come back from there
	cleaning      chan struct{} // closed when the clean-up that has the baton is done; nil when there is none
	cleaningSince time.Duration // how old the session was when that began
	lingerUntil   time.Duration // how old the session is when the idle hold is given back
	wantedEpoch   uint64        // the hold with this epoch, or a later one, was asked for by another session
	movedEpoch    uint64        // the hold with this epoch, or an earlier one, may have been taken up by another session
}

// ownerField is the owner as Redis has it. The same one comes again and again while a lock is not contended. Baton.
func (e *lockState) ownerField(o Owner) string {
	if e.fieldOwner != o || e.field == "" {
		e.fieldOwner, e.field = o, o.String()
	}
	return e.field
}

// queueLength is how many owners wait: those in the local queue, and the head if it waits for Redis.
func (e *lockState) queueLength() int {
	if _, waits := e.waitingHead(); waits {
		return e.queue.Len() + 1
	}
	return e.queue.Len()
}

func (e *lockState) waitingHead() (Owner, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.head, e.waiting
}

// granted takes a grant that was pushed; false if no attempt of this lock state wants it. s.mu is not held.
func (e *lockState) granted(g backend.Grant) (wanted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.ticketLocked(g.Epoch); t != nil && e.sentEpoch < g.Epoch {
		e.grant = g // for an owner who was signalled and is not the head yet
		t.over = true
		t.wake(true) // if the message of the signal was lost
		return true
	}
	if e.sentEpoch != g.Epoch || !e.waiting {
		// Superseded, or accepted by a heartbeat that was quicker: nothing to do. Given up: a clean-up is on
		// its way, or the next head takes the grant over.
		has := e.hold.owned() || e.hold.inheritable()
		return e.sentEpoch > g.Epoch || has && e.hold.epoch == g.Epoch || !e.queue.Idle()
	}
	e.grant = g
	e.nudge()
	return true
}

// nudge wakes the parked head, if there is one; otherwise the next one to park looks once more.
func (e *lockState) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// finishOperation ends an operation of the holder, with its hold count. It returns false when the hold was lost meanwhile:
// the baton then stays with the caller, and what its owner owes, the holds that it then still has to unlock, is on
// record.
func (e *lockState) finishOperation(holds, owed int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finishOperationLocked(holds, owed)
}

// finishOperationLocked is finishOperation with e.mu held.
func (e *lockState) finishOperationLocked(holds, owed int) bool {
	if e.hold.phase == phaseLost {
		e.s.lostHolds.Add(e.name, e.hold.owner, owed)
		e.clearLocked()
		return false
	}
	e.queue.Settle(holds)
	return true
}

// finishAcquire ends an operation that, if err is nil, got the owner the lock in the way that kind says.
func (e *lockState) finishAcquire(ctx context.Context, kind EventKind, t *try, holds, owed int, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	settled := e.finishOperationLocked(holds, owed)
	if settled && err == nil && e.s.reporting {
		e.reportGot(ctx, kind, t)
	}
	return settled
}

// heldBy returns the hold, and reports whether the owner has it. Should it find that the lease is over before the watchdog
// does (a process that was paused), the hold is lost from here on: no caller is told no now and yes later. No mutex is held.
func (e *lockState) heldBy(owner Owner) (hold, bool) {
	e.mu.Lock()
	h := e.hold
	e.mu.Unlock()
	held := h.owned() && h.owner == owner
	if held && !h.lease.Trusted(time.Now()) {
		e.lose(h.epoch, "the lease was over when the owner looked")
		held = false
	}
	return h, held
}

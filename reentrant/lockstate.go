package reentrant

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A lockState is one lock name in one session: the queue of this process's owners, and what the session has in Redis.
// It exists while somebody holds the lock, waits for it or cleans up after it, and is then reused for another name.
//
// The baton of the queue says who may act: whoever has it (the head that asks Redis, the owner during one of its
// operations, a cleaner) is the only one to send commands for the lock and the only one to touch the fields marked
// "baton".
type lockState struct {
	s *session

	// Written when the lock state is (re)used, under s.mu, before anybody can find it; constant while refs > 0.
	name   string
	remote backend.Remote

	refs int // s.mu: one for the hold, for each caller inside and for each clean-up

	queue localqueue.Queue[Owner]

	// Baton.
	mayOwe       bool          // Redis may have a hold, a grant or a place of this session
	unknownUntil time.Time     // until then a copy of an attempt may be under way whose answer is not known
	turn         turn          // the run of local hand-overs
	timer        *time.Timer   // of the parked head
	wake         chan struct{} // 1-buffered: a grant has arrived, or the channel to the backend was reopened
	fieldOwner   Owner         // the last owner that was printed,
	field        string        // and how
	lastUsed     Token         // the last token used of the block that came with the last attempt; 0: all of them

	// The goroutine that has the lock in cohort mode and has not been told that it is lost; 0 if there is none. Written
	// under mu with hold. A goroutine that reads its own id here has the lock.
	holder      atomic.Int64
	holderLock  atomic.Uint32 // id of the Lock it was got with
	holderUntil atomic.Int64  // the end of its trust, in nanoseconds since the session was opened. Written under mu with the lease

	mu            sync.Mutex    // guards what follows; taken after s.mu and before the queue's own
	sentEpoch     uint64        // the last epoch sent
	head          Owner         // whose attempt it is
	grant         backend.Grant // that came for it
	hold          hold
	tickets       []*ticket     // owners who wait for the lock's conditions, or come back from there
	cleaning      chan struct{} // closed when the clean-up that has the baton is done; nil when there is none
	cleaningSince time.Duration // how old the session was when that began
	waiting       bool          // the attempt waits for a grant
	lingers       bool          // nobody has the handed hold, and nobody is about to: its reference is its own
	dismissed     bool          // a clean-up is on its way to end that
	lingerUntil   time.Time     // when that ends
	wantedEpoch   uint64        // the hold with this epoch, or a later one, was asked for by another session
	movedEpoch    uint64        // the hold with this epoch, or an earlier one, may have been taken up by another session
}

// A hold is what an owner of this session has: guarded by lockState.mu, written by whoever has the baton, and by the
// watchdog when it renews or loses it.
type hold struct {
	live          bool   // an owner has the lock and its lease was trusted when last looked at
	lost          bool   // the lease ended while an operation of the owner was under way: the operation says so
	handed        bool   // its owner has left it to the next one
	cohort        bool   // it is the session's in Redis, not its owner's
	lockID        uint32 // id of the Lock it was got with
	owner         Owner
	epoch         uint64
	op            uint64 // of re-entry
	token         Token
	last          Token // of the block
	lease         lease.Lease
	span          time.Duration // the lease that was asked for, and that renewals ask for
	notifier      *lossNotifier // nil until somebody wants to know of the loss
	since         time.Time     // when it began, if anybody wants to know
	renewalFailed bool          // the last renewal was not answered
	yielding      bool          // Await gives it up, or Resume renews it: Redis may have this epoch no more, and that is no loss
	checking      bool          // Redis is to be asked whether another session has taken it up
}

// fixed is the length of the hold's lease if that is a fixed one, else zero.
func (h *hold) fixed() time.Duration {
	if h.lease.Fixed() {
		return h.span
	}
	return 0
}

// turn counts the local hand-overs since this session was given the lock.
type turn struct {
	began      time.Time
	passes     int
	limit      int
	generation int // how many stood in the queue when it began
}

// newTurn begins a turn for the owners that stand in the queue now.
func (e *lockState) newTurn(now time.Time) turn {
	generation := e.queue.Len()
	return turn{began: now, limit: e.s.config.turnLimit(generation), generation: generation}
}

// spent tells whether another session should have the lock now, if one waits.
func (t turn) spent(now time.Time, cfg *config) bool {
	lasted := now.Sub(t.began)
	return t.passes >= t.limit || lasted >= cfg.handoffTime ||
		cfg.cohort && lasted >= DefaultHandoffTime && t.passes >= t.generation
}

// settle makes the head the holder, with a hold count. From here on the watchdog sees the hold. It answers false if
// there is no watchdog any more, because the session was closed: the baton then stays with the head.
func (e *lockState) settle(ctx context.Context, l *Lock, h hold, t try, holds int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = h
	if !e.settleLocked(ctx, l, t, holds) {
		e.clearLocked()
		return false
	}
	e.s.watchdog.wakeBy(h.lease.Wake())
	e.checkIfMovedLocked()
	return true
}

// settleLocked makes e.hold the head's. e.mu is held.
func (e *lockState) settleLocked(ctx context.Context, l *Lock, t try, holds int) bool {
	e.waiting = false
	if e.s.abandoned.Load() { // set before Close looks for holds, so it sees this one or this sees it
		return false
	}
	h := &e.hold
	h.live, h.since, h.lockID = true, e.s.now(), l.id()
	if h.cohort {
		e.lastUsed = h.token
		e.holderLock.Store(h.lockID)
		e.trustLocked(h.lease)
		e.holder.Store(h.owner.goroutine)
		if l.lastState.Load() != e {
			l.lastState.Store(e)
		}
	}
	e.reportGot(ctx, EventAcquired, t)
	e.queue.Settle(holds)
	e.s.noteToken(h.token)
	e.s.stats.acquired.Add(1)
	return true
}

// trustLocked gives the hold a lease. e.mu is held.
func (e *lockState) trustLocked(l lease.Lease) {
	e.hold.lease = l
	e.holderUntil.Store(int64(l.Until().Sub(e.s.opened)))
}

// finishOperation ends an operation of the holder, with its hold count. It answers false when the hold was lost meanwhile:
// the baton then stays with the caller, and what its owner owes, the holds that it then still has to unlock, is on
// record.
func (e *lockState) finishOperation(holds, owed int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.finishOperationLocked(holds, owed)
}

// finishOperationLocked is finishOperation with e.mu held.
func (e *lockState) finishOperationLocked(holds, owed int) bool {
	if e.hold.lost {
		e.s.lostHolds.Add(e.name, e.hold.owner, owed)
		e.clearLocked()
		return false
	}
	e.queue.Settle(holds)
	return true
}

// finishAcquire ends an operation that, if err is nil, got the owner the lock in the way that kind says.
func (e *lockState) finishAcquire(ctx context.Context, kind EventKind, t try, holds, owed int, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	settled := e.finishOperationLocked(holds, owed)
	if settled && err == nil {
		e.reportGot(ctx, kind, t)
	}
	return settled
}

// endHold takes the hold away from its owner, who has the baton and is giving it up. It answers the hold as it was.
func (e *lockState) endHold() hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hold
	e.clearLocked()
	return h
}

// clearLocked forgets the hold. e.mu is held.
func (e *lockState) clearLocked() {
	e.hold = hold{}
	e.holder.Store(0)
}

// handOver takes the hold from its owner, who has the baton, and leaves it to whoever gets the baton next. It answers
// the hold as it was. Of one that was lost nothing is left.
func (e *lockState) handOver() hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hold
	if h.lost {
		e.clearLocked()
		return h
	}
	e.hold.live, e.hold.handed, e.hold.owner, e.hold.notifier = false, true, Owner{}, nil
	e.holder.Store(0)
	return h
}

// takeHanded is what the last owner left to the head, if that does not inherit it as it is. Baton.
func (e *lockState) takeHanded(head Owner) hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.head = head
	h := e.hold
	e.clearLocked()
	return h
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

// heldBy tells whether an owner has the lock, and the hold. Should it find that the lease is over before the watchdog
// does (a process that was paused), the hold is lost from here on: nobody is told no now and yes later. No mutex is held.
func (e *lockState) heldBy(owner Owner) (hold, bool) {
	e.mu.Lock()
	h := e.hold
	e.mu.Unlock()
	held := h.live && h.owner == owner
	if held && !h.lease.Trusted(time.Now()) {
		e.lose(h.epoch, "the lease was over when the owner looked")
		held = false
	}
	return h, held
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
		has := e.hold.live || e.hold.handed
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

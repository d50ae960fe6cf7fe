package exclusive

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// lost reports whether the owner has lost a hold of the lock that it has not unlocked since.
func (l *Handle) lost(owner core.Owner) bool {
	return l.Room.core.Debts.Owed(core.DebtOf(core.ModeLock, l.Name, owner)) > 0
}

// A State is the state of one lock name in one session: the queue of its owners, and a machine that decides what the
// session does about it in Redis. It is in use while an owner holds the lock or waits for it, or a clean-up runs. After
// that it may be reused for another name.
//
// Its methods drive the machine: each event is one call of the machine under the mutex, and the step that it returns is
// carried out. What must be one with a transition, such as passing the baton, is done under the same mutex.
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

	watched    atomic.Bool   // the hold may have a wantedChannel. Written under mu
	cohort     atomic.Bool   // holder has it in cohort mode. Written under mu before holder
	holderLock atomic.Uint32 // the id of the Lock with which holder got it

	// The goroutine that has the lock; 0 if there is none, or the hold is found to be lost. Written under mu with the
	// machine. A goroutine that reads its own id here has the lock.
	holder     atomic.Int64
	trustUntil atomic.Int64 // how old the session is, in nanoseconds, at the end of the trust in the hold's lease. Written under mu with that

	mu            sync.Mutex // guards what follows, up to the baton's; taken after s.mu and before the queue's own
	info          holdInfo   // of the machine's hold, while an owner has it
	m             machine.Machine[core.Owner]
	tickets       condition.Tickets
	cleaning      chan struct{} // closed when the clean-up that has the baton is done; nil when there is none
	cleaningSince time.Duration // the session's age when that began

	// Baton.
	timer      *time.Timer   // of the parked head
	wake       chan struct{} // 1-buffered: a grant has arrived, or the channel to the backend was reopened
	fieldOwner core.Owner    // the last owner that was printed
	field      string        // fieldOwner as Redis has it
}

// moment returns what the machine needs to know of an event when the session has the given age. e.mu is held.
func (e *State) moment(age time.Duration) machine.Moment {
	c := e.s.core
	return machine.Moment{
		Options: &e.s.options, Now: c.Opened.Add(age), Waiters: e.Queue.Len(),
		Abandoned: c.Abandoned.Load(), // set before Close looks for holds: either Close finds a new one, or the machine sees the flag
	}
}

// momentOfCommand returns what the machine needs to know when a command for an owner is sent, or its reply has come. e.mu
// is held, by a goroutine that has the baton.
func (e *State) momentOfCommand(now time.Time, owner core.Owner) machine.Moment {
	at := e.moment(0)
	at.Now, at.Ahead, at.Seen, at.Field = now, e.s.core.Ahead(), backend.Token(e.s.core.SeenToken.Load()), e.ownerField(owner)
	return at
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
	t := e.tickets.Find(g.Epoch)
	at := e.moment(e.s.core.Age())
	switch e.m.Pushed(&at, &g, t != nil, !e.Queue.Idle()).Do {
	case machine.Signal:
		t.End()
		t.Wake(true) // if the message of the signal was lost
	case machine.Wake:
		e.nudge()
	case machine.Orphan:
		return false
	}
	return true
}

// nudge wakes the parked head. If there is none, the next head to park wakes at once.
func (e *State) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// forgetWake takes back a wake that was meant for an earlier epoch. Baton.
func (e *State) forgetWake() {
	select {
	case <-e.wake:
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
	of, fixed := e.m.Owner(), e.m.Lease().Fixed()
	if e.m.Finish().Lost {
		e.oweLocked(of, fixed, owed)
		e.disownLocked()
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
	h := e.holdLocked()
	if !h.Owned() || h.Owner != owner {
		e.mu.Unlock()
		return h, false
	}
	return h, e.trust("the lease was over when the owner looked")
}

// trust asks the machine whether the hold can be trusted. If it cannot, the hold is lost, for the reason why. e.mu is held,
// and free when it returns.
func (e *State) trust(why string) bool {
	at := e.moment(e.s.core.Age())
	step := e.m.Trust(&at, why)
	e.carryOutLoss(step)
	return !step.Lost
}

// withHold calls f with what is known of the hold of a lock, if an owner has it and it has the given epoch, and returns
// f's result. If not, it returns false. f is called with the mutex of the lock state, and no reference is left
// afterwards: what runs in the background has none while it waits for Redis, so that Close need not wait for it.
func (s *Room) withHold(name string, epoch uint64, f func(*holdInfo) bool) bool {
	e := s.FindState(name)
	if e == nil {
		return false
	}
	defer s.PutState(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.m.Owned() && e.m.Epoch() == epoch && f(&e.info)
}

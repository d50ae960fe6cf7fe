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

// moment returns what the machine needs to know of an event when the session has the given age. st.mu is held.
func (st *State) moment(age time.Duration) machine.Moment {
	c := st.s.core
	return machine.Moment{
		Options: &st.s.options, Now: c.Opened.Add(age), Waiters: st.Queue.Len(),
		Abandoned: c.Abandoned.Load(), // set before Close looks for holds: either Close finds a new one, or the machine sees the flag
	}
}

// momentOfCommand returns what the machine needs to know when a command for an owner is sent, or its reply has come. st.mu
// is held, by a goroutine that has the baton.
func (st *State) momentOfCommand(now time.Time, owner core.Owner) machine.Moment {
	at := st.moment(0)
	at.Now, at.Ahead, at.Seen, at.Field = now, st.s.core.Ahead(), backend.Token(st.s.core.SeenToken.Load()), st.ownerField(owner)
	return at
}

// ownerField returns the owner as Redis has it. It keeps the last one: a lock that is not contended often has the same
// owner again. Baton.
func (st *State) ownerField(o core.Owner) string {
	if st.fieldOwner != o || st.field == "" {
		st.fieldOwner, st.field = o, o.String()
	}
	return st.field
}

// granted handles a grant that was pushed. It returns false if no attempt needs the grant, so that it must be released.
// s.mu is not held.
func (st *State) granted(g backend.Grant) (wanted bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.tickets.Find(g.Epoch)
	at := st.moment(st.s.core.Age())
	switch st.m.Pushed(&at, &g, t != nil, !st.Queue.Idle()).Do {
	case machine.Signal:
		t.End()
		t.Wake(true) // if the message of the signal was lost
	case machine.Wake:
		st.nudge()
	case machine.Orphan:
		return false
	}
	return true
}

// nudge wakes the parked head. If there is none, the next head to park wakes at once.
func (st *State) nudge() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// forgetWake takes back a wake that was meant for an earlier epoch. Baton.
func (st *State) forgetWake() {
	select {
	case <-st.wake:
	default:
	}
}

// finishOperation ends an operation of the holder, with its new hold count. It returns false if the hold was lost
// meanwhile: the baton then stays with the caller, and it is on record that the owner still owes so many Unlocks.
func (st *State) finishOperation(holds, owed int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.finishOperationLocked(holds, owed)
}

// finishOperationLocked is finishOperation with st.mu held.
func (st *State) finishOperationLocked(holds, owed int) bool {
	of, fixed := st.m.Owner(), st.m.Lease().Fixed()
	if st.m.Finish().Lost {
		st.oweLocked(of, fixed, owed)
		st.disownLocked()
		return false
	}
	st.Queue.Settle(holds)
	return true
}

// finishAcquire is finishOperation for an operation that takes the lock. If err is nil, it reports an event of the
// kind.
func (st *State) finishAcquire(ctx context.Context, kind core.EventKind, t *Try, holds, owed int, err error) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	settled := st.finishOperationLocked(holds, owed)
	if settled && err == nil && st.s.core.Reporting {
		st.reportGot(ctx, kind, t)
	}
	return settled
}

// heldBy returns the hold, and reports whether the owner has it. If the lease is over and the keeper has not found
// that yet, in a process that was paused, heldBy makes the hold lost, so that no later call reports it as held. No
// mutex is held.
func (st *State) heldBy(owner core.Owner) (Hold, bool) {
	st.mu.Lock()
	h := st.holdLocked()
	if !h.Owned() || h.Owner != owner {
		st.mu.Unlock()
		return h, false
	}
	return h, st.trust("the lease was over when the owner looked")
}

// trust asks the machine whether the hold can be trusted. If it cannot, the hold is lost, for the reason why. st.mu is held,
// and free when it returns.
func (st *State) trust(why string) bool {
	at := st.moment(st.s.core.Age())
	step := st.m.Trust(&at, why)
	st.carryOutLoss(step)
	return !step.Lost
}

// withHold calls f with what is known of the hold of a lock, if an owner has it and it has the given epoch, and returns
// f's result. If not, it returns false. f is called with the mutex of the lock state, and no reference is left
// afterwards: what runs in the background has none while it waits for Redis, so that Close need not wait for it.
func (s *Room) withHold(name string, epoch uint64, f func(*holdInfo) bool) bool {
	st := s.FindState(name)
	if st == nil {
		return false
	}
	defer s.PutState(st)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.m.Owned() && st.m.Epoch() == epoch && f(&st.info)
}

package exclusive

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A State is the state of one lock name in one session: the queue of its owners, and a machine that decides what the session
// does about the lock in Redis. It is in use while an owner holds the lock or waits for it, or a clean-up runs. After that it
// may be reused for another name.
//
// Its methods drive the machine: each event is one call of the machine under the mutex, and the step that it returns is
// carried out. What must happen together with a transition, such as passing the baton, is done before the mutex is unlocked.
//
// The baton of the queue is the right to act. One goroutine at a time has it: the head that asks Redis, the holder
// during one of its operations, or a clean-up. Only that goroutine may take, re-enter or give up the lock in Redis, and
// touch the fields of the State that say so. The comments of functions say whether the caller must have the baton.
type State struct {
	s *Room

	// These two are written when the lock state is (re)used, under s.mu, before any goroutine can find it. They do not change
	// while refs > 0.
	name   string
	remote backend.Remote

	Queue localqueue.Queue[core.Owner]

	refs int32 // guarded by s.mu: one for the hold, one for each caller inside and one for each clean-up

	watched    atomic.Bool   // the hold may have a wantedChannel. Written under mu
	cohort     atomic.Bool   // the goroutine in holder has the lock in cohort mode. Written under mu before holder
	holderLock atomic.Uint32 // the id of the Lock with which the goroutine in holder got the lock

	// The goroutine that has the lock; 0 if there is none, or the hold is found to be lost. Written under mu with the
	// machine. A goroutine that reads its own id here has the lock.
	holder     atomic.Int64
	trustUntil atomic.Int64 // the session's age, in nanoseconds, up to which the lease is trusted. Written under mu with the lease

	mu            sync.Mutex // guards what follows, up to the fields for the baton; locked after s.mu, before the queue's mutex
	info          holdInfo   // about the machine's hold, while an owner has it
	m             machine.Machine[core.Owner]
	tickets       condition.Tickets
	cleaning      chan struct{} // closed when the clean-up, or release in the background, that has the baton is done; nil when there is none
	cleaningSince time.Duration // the session's age when the clean-up or release began

	// For the goroutine that has the baton.
	timer      *time.Timer   // the timer of the parked head
	wake       chan struct{} // 1-buffered: a grant has arrived, or the channel to the backend was reopened; any goroutine sends
	fieldOwner core.Owner    // the last owner that ownerField was asked for
	field      string        // fieldOwner as Redis has it
}

// maxSpare bounds the lock states kept for reuse, so that locking a free lock again and again allocates nothing.
const maxSpare = 64

// getState takes a reference to the lock state of a lock. If there is no lock state, it takes a spare one or makes one.
func (s *Room) getState(l *Handle) (*State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, core.ErrClosed
	}
	st := l.lastState.Load()
	if st == nil || st.refs == 0 || st.name != l.Name { // the handle's last state does not serve this lock any more
		st = s.states[l.Name]
	}
	if st == nil {
		st = s.newStateLocked(l)
		s.states[l.Name] = st
	}
	st.refs++
	return st, nil
}

// findState takes a reference to the lock state of a lock if there is one.
func (s *Room) findState(name string) *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[name]
	if st != nil {
		st.refs++
	}
	return st
}

// with calls f with the lock state of a lock. It returns false if there is none.
func (s *Room) with(name string, f func(*State)) bool {
	st := s.findState(name)
	if st == nil {
		return false
	}
	defer s.putState(st)
	f(st)
	return true
}

// newStateLocked returns a spare lock state or a new one. The best spare is the one that served this lock before: it knows
// how the lock was left in Redis, and until when a copy may be under way. If there is none, newStateLocked makes a new lock
// state while there is room for more spares, and else takes the one that has been spare for longest. s.mu is held.
func (s *Room) newStateLocked(l *Handle) *State {
	i := len(s.spares) - 1
	for i >= 0 && s.spares[i].name != l.Name {
		i--
	}
	if i < 0 && len(s.spares) < maxSpare {
		return &State{s: s, wake: make(chan struct{}, 1), name: l.Name, remote: l.Remote}
	}
	i = max(i, 0)
	st := s.spares[i]
	s.spares = slices.Delete(s.spares, i, i+1)
	st.m.Reuse(st.name == l.Name)
	st.name, st.remote = l.Name, l.Remote
	return st
}

// putState drops a reference. A lock state without references is removed, and may become a spare.
func (s *Room) putState(st *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.refs--; st.refs > 0 {
		return
	}
	if st.refs < 0 || invariants && !st.Queue.Idle() {
		panic("reentrant: bug: a lock state without references is in use")
	}
	if st.m.Phase() != machine.Vacant { // no goroutine has a reference, so none changes the machine now
		panic("reentrant: bug: a lock state without references has a hold")
	}
	delete(s.states, st.name)
	if s.closed && len(s.states) == 0 {
		close(s.drained)
	}
	if len(s.spares) < maxSpare {
		st.remote = nil
		s.spares = append(s.spares, st)
	}
}

// moment returns what the machine needs to know of an event when the session has the given age. st.mu is held.
func (st *State) moment(age time.Duration) machine.Moment {
	c := st.s.core
	return machine.Moment{
		Options: &st.s.options, Now: c.Opened.Add(age), Waiters: st.Queue.Len(),
		Abandoned: c.Abandoned.Load(), // set before Close looks for holds: Close finds a new hold, or Abandoned is true here
	}
}

// momentOfCommand returns what the machine needs to know when a command for an owner is sent, or its reply has come. st.mu
// is held, by a goroutine that has the baton.
func (st *State) momentOfCommand(now time.Time, owner core.Owner) machine.Moment {
	at := st.moment(0)
	at.Now, at.Ahead, at.Seen, at.Field = now, st.s.core.Ahead(), backend.Token(st.s.core.SeenToken.Load()), st.ownerField(owner)
	return at
}

// ownerField returns an owner as it is written in Redis. It keeps the result for the latest owner, since a lock that is not
// contended often has the same owner again. The caller has the baton.
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
		t.Wake(true) // in case the message of the signal was lost
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

// newEpoch returns a new epoch, and takes back a wake that was meant for an earlier epoch. The caller has the baton.
func (st *State) newEpoch() uint64 {
	select {
	case <-st.wake:
	default:
	}
	return st.s.core.Epochs.Add(1)
}

// finish ends an operation of the holder, which has the given number of holds from then on, and calls got under the mutex
// unless got is nil. It returns ErrLost if the hold was lost meanwhile: the baton has then been passed on, and it is on record
// that the owner owes as many Unlocks as owed says. A hold that Close has left in Redis stays there.
func (st *State) finish(holds, owed int, got func()) error {
	st.mu.Lock()
	h := st.m.Hold()
	if st.m.Finish().Lost {
		st.oweLocked(&h, owed)
		st.disownLocked()
		st.mu.Unlock()
		st.passOnHold(h.Owner)
		return core.ErrLost
	}
	st.Queue.Settle(holds)
	if got != nil {
		got()
	}
	st.mu.Unlock()
	return nil
}

// finishAcquire calls finish for an operation that takes the lock. If err, the operation's error, is nil, finishAcquire reports
// an event of the given kind.
func (st *State) finishAcquire(ctx context.Context, kind core.EventKind, t *Try, holds, owed int, err error) error {
	return st.finish(holds, owed, func() {
		if err == nil && st.s.core.Reporting {
			st.reportGot(ctx, kind, t)
		}
	})
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

// trust reports whether the machine trusts the hold. If it does not, the hold is lost, and why is the reason. st.mu is held, and
// free when trust returns.
func (st *State) trust(why string) bool {
	at := st.moment(st.s.core.Age())
	step := st.m.Trust(&at, why)
	st.carryOutLoss(step)
	return !step.Lost
}

// A Hold is what was known at one moment of this session's hold on a lock.
type Hold struct {
	machine.Hold[core.Owner]
	holdInfo
}

// A holdInfo is what this process keeps about a hold for its users. It decides nothing. It is guarded by State.mu.
type holdInfo struct {
	lockID   uint32             // the id of the Lock with which the hold was got
	notifier *core.LossNotifier // nil until a caller asks to be notified of the loss
	wanted   *wantedChannel     // nil until a caller asks to be notified that another owner waits
	since    time.Time          // when the hold began
	note     *note              // nil if the hold has none
}

// holdLocked returns what is known of the hold now. st.mu is held.
func (st *State) holdLocked() Hold { return Hold{st.m.Hold(), st.info} }

// settleLocked carries out the step Settle, with which the machine has made the head the holder. holds is the hold count of
// the step. st.mu is held.
func (st *State) settleLocked(ctx context.Context, l *Handle, t *Try, now time.Time, holds int) {
	h := st.m.Hold()
	st.info = holdInfo{lockID: l.id(), notifier: t.notifier, since: now}
	if st.holderLock.Load() != st.info.lockID {
		st.holderLock.Store(st.info.lockID)
	}
	if st.cohort.Load() != h.Cohort {
		st.cohort.Store(h.Cohort)
	}
	st.holder.Store(core.GoroutineOf(h.Owner))
	if l.lastState.Load() != st {
		l.lastState.Store(st)
	}
	if st.s.core.Reporting {
		st.reportGot(ctx, core.EventAcquired, t)
	}
	st.Queue.Settle(holds)
	st.s.core.SawToken(h.Token)
	st.s.core.Counts.Acquired.Add(1)
}

// reportGot reports that the owner got the lock, in a session that reports events. Like reportRelease it is called with st.mu
// held, or with the baton of the hold, so that the events of a lock have an order.
func (st *State) reportGot(ctx context.Context, kind core.EventKind, t *Try) {
	h := st.m.Hold()
	st.s.core.Report(ctx, core.Event{Kind: kind, Lock: st.name, Owner: h.Owner, Token: h.Token, Wait: time.Since(t.Begun)})
}

// startUpkeepLocked starts the upkeep of a hold that is new in Redis: it records how long the lease can be trusted, sends the
// note and has the keeper renew the lease. If check is true, another session may have resumed the hold already.
// startUpkeepLocked then asks Redis whether this session has the hold, since a later copy of the attempt may have got it anew.
// st.mu is held.
func (st *State) startUpkeepLocked(text string, check bool) {
	if text != "" {
		st.info.note = &note{text: text}
		st.noteLocked()
	}
	st.s.keeper.WakeBy(st.trustLocked().Wake())
	if check {
		st.checkLocked()
	}
}

// trustLocked records for how long the lease can be trusted, after the machine has changed that, and returns the lease. st.mu
// is held.
func (st *State) trustLocked() lease.Lease {
	l := st.m.Hold().Lease
	st.trustUntil.Store(int64(l.Until().Sub(st.s.core.Opened)))
	return l
}

// disownLocked notes for the users of the hold that its owner no longer has it. st.mu is held.
func (st *State) disownLocked() {
	st.info = holdInfo{}
	st.holder.Store(0)
}

// replaceLocked carries out the step Replace: the owner's hold goes on under another epoch. old is the hold under the earlier
// epoch. Callers that asked to be notified about old are notified about the new hold, unless old has been lost: then they have
// been notified already. text is the new note; if text is "", the note of old stays. st.mu is held.
func (st *State) replaceLocked(old *Hold, text string, check bool) {
	st.info = holdInfo{lockID: old.lockID, since: time.Now()}
	if old.Owned() {
		st.info.since, st.info.notifier, st.info.wanted = old.since, old.notifier, old.wanted
		text = cmp.Or(text, old.note.String())
	}
	st.watchLocked()
	st.startUpkeepLocked(text, check)
	st.s.core.SawToken(st.m.Hold().Token)
}

// ownState returns the lock state if the calling goroutine has the lock by this handle, and its lease can be trusted now;
// otherwise nil. goroutine is 0 for a named owner, for which ownState always returns nil. age is the session's age now. The
// lease is compared with that age, since in a process that was stopped the keeper may not have noticed yet that the lease is
// over. The lock state is not used for another lock while the goroutine has its hold; if the hold is lost at this moment, the
// queue refuses the operation.
func (h *Handle) ownState(goroutine int64) (st *State, age time.Duration) {
	st = h.lastState.Load()
	if st == nil || goroutine == 0 || st.holder.Load() != goroutine || st.holderLock.Load() != h.lazyID.Load() {
		return nil, 0
	}
	if age = h.Room.core.Age(); time.Duration(st.trustUntil.Load()) <= age {
		return nil, 0
	}
	return st, age
}

// lockIDs counts the Locks that ever got a hold.
var lockIDs atomic.Uint32

// id returns a number that identifies the Lock: a hold records the Lock with which it was acquired. From its first hold on, the
// session notices when the Lock is garbage-collected.
func (h *Handle) id() uint32 {
	if n := h.lazyID.Load(); n != 0 {
		return n
	}
	if n := lockIDs.Add(1); h.lazyID.CompareAndSwap(0, n) {
		runtime.AddCleanup(h, leakRecord.report, leakRecord{h.Room, h.Name, n})
	}
	return h.lazyID.Load()
}

// A leakRecord is what is kept of a Lock for the time after it was garbage-collected.
type leakRecord struct {
	s      *Room
	name   string
	lockID uint32
}

// report reports a hold whose Lock is gone. The hold's owner can still unlock, with another Lock of that name.
func (r leakRecord) report() {
	if h := r.s.HoldOf(r.name); h.Owned() && h.lockID == r.lockID {
		r.s.core.LeakLog.Log(slog.LevelWarn, "a lock was forgotten while it is held", slog.String("lock", r.name), slog.String("owner", h.Owner.String()))
	}
}

package exclusive

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// A Handle is what a Lock knows of its lock. Locks of equal name may differ in the lease and in fairness.
type Handle struct {
	Room       *Room
	Name       string
	Remote     backend.Remote
	Fixed      time.Duration // the lease of each hold, if it is a fixed one
	Unfair     bool
	MaxWaiting int                   // how many may wait in this session before a call that would have to; 0: any number
	lazyID     atomic.Uint32         // see id
	lastState  atomic.Pointer[State] // with which a cohort's owner last got it: a hint for ReenterFast
}

// NotifierOf returns the notifier of an owner's hold; nil if it has none.
func (l *Handle) NotifierOf(owner core.Owner) *core.LossNotifier {
	st := l.Room.FindState(l.Name)
	if st == nil {
		return nil
	}
	defer l.Room.PutState(st)
	if _, held := st.heldBy(owner); !held {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.m.Owned() || st.m.Owner() != owner {
		return nil
	}
	if st.info.notifier == nil {
		st.info.notifier = core.NewLossNotifier()
	}
	return st.info.notifier
}

// HoldsOf returns how many times an owner holds the lock.
func (l *Handle) HoldsOf(owner core.Owner) (holds int) {
	l.WithState(func(st *State) {
		if _, ok := st.heldBy(owner); ok {
			holds = st.Queue.HoldCount(owner)
		}
	})
	return holds
}

// OwnHold returns an owner's hold.
func (l *Handle) OwnHold(owner core.Owner) (h Hold, err error) {
	held, lost := false, false
	l.WithState(func(st *State) {
		if h, held = st.heldBy(owner); !held { // lost, it is the owner's until the margin of its lease is over
			lost = h.belongsTo(owner)
		}
	})
	switch {
	case held:
		return h, nil
	case lost, l.lost(owner):
		return Hold{}, core.ErrLost
	}
	return Hold{}, core.ErrNotHeld
}

// Shorten shortens the trust in the hold with an epoch to the rest of its lease, as a reply reported it.
func (l *Handle) Shorten(epoch uint64, sent time.Time, ttl time.Duration) {
	l.WithState(func(st *State) {
		st.checked(ownershipCheck{st.s, st.remote, st.name, epoch}, machine.Checked{Epoch: epoch, Ours: true, Sent: sent, TTL: ttl})
	})
}

// LoseIfCurrent ends the hold with an epoch that Redis does not have. It returns false, and changes nothing, if the
// hold has another epoch by now, or is being given up or moved: then the reply may be older than that, or newer.
func (l *Handle) LoseIfCurrent(epoch uint64) (lost bool) {
	l.WithState(func(st *State) {
		st.mu.Lock()
		lost = st.m.Phase() == machine.Held && st.m.Epoch() == epoch
		st.mu.Unlock()
		if lost {
			st.Lose(epoch, "Redis no longer had it at Verify")
			st.evict(epoch, false)
		}
	})
	return lost
}

// WithState calls f with the lock's state, if there is one.
func (l *Handle) WithState(f func(*State)) {
	if st := l.Room.FindState(l.Name); st != nil {
		f(st)
		l.Room.PutState(st)
	}
}

// Queued returns how many owners wait.
func (l *Handle) Queued() (n int) {
	l.WithState(func(st *State) { n = st.Queue.Queued() })
	return n
}

// WaitingOwners returns the owners that wait, longest first.
func (l *Handle) WaitingOwners() (owners []core.Owner) {
	l.WithState(func(st *State) { owners = append(owners, st.Queue.QueuedOwners()...) })
	return owners
}

// lockIDs counts the Locks that ever got a hold.
var lockIDs atomic.Uint32

// id identifies the Lock: a hold records the Lock with which it was acquired. A Lock is watched from its first hold on.
func (l *Handle) id() uint32 {
	if n := l.lazyID.Load(); n != 0 {
		return n
	}
	if n := lockIDs.Add(1); l.lazyID.CompareAndSwap(0, n) {
		runtime.AddCleanup(l, leakRecord.report, leakRecord{l.Room, l.Name, n})
	}
	return l.lazyID.Load()
}

// A leakRecord outlives a Lock that was collected.
type leakRecord struct {
	s      *Room
	name   string
	lockID uint32
}

// report reports a hold whose Lock is gone. Its owner can still unlock it, by another Lock of that name.
func (r leakRecord) report() {
	if h := r.s.HoldOf(r.name); h.Owned() && h.lockID == r.lockID {
		r.s.core.LeakLog.Log(slog.LevelWarn, "a lock was forgotten while it is held", slog.String("lock", r.name), slog.String("owner", h.Owner.String()))
	}
}

// Has reports whether the owner has the lock, or lost it and has not been evicted yet.
func (l *Handle) Has(owner core.Owner) (has bool) {
	l.WithState(func(st *State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		has = st.m.BelongsTo(owner)
	})
	return has
}

// A Try describes a call that takes the lock, and how long it may wait. It is passed by reference: the stack of a
// goroutine that has waited long is no longer in the processor's caches, and each copy would touch three cache lines of
// it.
type Try struct {
	Op       string
	Waits    bool
	Barges   bool      // takes a free lock even if others wait for it
	Deadline time.Time // zero: none
	Timeout  <-chan time.Time
	Fixed    time.Duration // the lease of the hold, if it is a fixed one
	Fresh    bool          // fails if the owner has the lock already
	Begun    time.Time     // zero if the session reports no events
	note     string        // for a new hold

	waitBegun    time.Time // when it began to wait in the local queue, if that is watched
	reportedWait bool      // the long wait has been reported

	// An owner that comes back from a condition: the holds it had, and its ticket if Redis has already queued the
	// session for it.
	holds    int
	ticket   uint64
	ahead    time.Duration      // how far the wall clock was ahead when it got the ticket
	notifier *core.LossNotifier // of the hold it had
}

// TakeAs goes through the local queue, and then asks Redis or re-enters. In a session that is being closed only an owner
// that has the lock can take it again.
func (l *Handle) TakeAs(ctx context.Context, owner core.Owner, t *Try) (bool, error) {
	st, err := l.Room.getState(l)
	if err != nil {
		return l.reenterClosed(ctx, owner, t)
	}
	if !l.Room.core.Cohort(owner, t.Fixed) { // the owners of a cohort's hold change
		t.note = core.NoteOf(ctx)
	}
	got := st.enter(ctx, owner, t, l.MaxWaiting)
	if got == localqueue.Claimed {
		return st.acquireRemote(ctx, l, owner, t) // keeps this reference for the hold, or passes it to a clean-up
	}
	defer l.Room.PutState(st)
	switch {
	case got == localqueue.Reentered:
		return st.reenter(ctx, owner, t)
	case got == localqueue.Full:
		return false, core.QueueFull(l.MaxWaiting)
	case got != localqueue.Cancelled:
		return false, st.checkCleanUp()
	case ctx.Err() != nil:
		return false, core.Outwaited(ctx, "others come first")
	}
	return l.reenterClosed(ctx, owner, t) // Close has shut the queue
}

// checkCleanUp returns an error if the baton is with a clean-up to which Redis does not reply: then no owner of this
// process has the lock, and it is not known whether another process has it. A clean-up that has only begun is no error.
func (st *State) checkCleanUp() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cleaning == nil || st.s.core.Age()-st.cleaningSince < st.s.core.Config.Stall() {
		return nil
	}
	return fmt.Errorf("%w: what an earlier caller left behind is not given back yet", backend.ErrUnavailable)
}

// reenterClosed takes the lock once more, for an owner that has it in a session that is being closed.
func (l *Handle) reenterClosed(ctx context.Context, owner core.Owner, t *Try) (bool, error) {
	st := l.Room.FindState(l.Name)
	if st == nil {
		return false, core.ErrClosed
	}
	defer l.Room.PutState(st)
	if _, holds := st.Queue.Begin(owner); !holds {
		return false, core.ErrClosed
	}
	return st.reenter(ctx, owner, t)
}

// enter enters the local queue, and waits in it if the try waits, but not behind most others.
func (st *State) enter(ctx context.Context, owner core.Owner, t *Try, most int) localqueue.Outcome {
	mode := queueMode(owner)
	if t.Barges {
		mode |= localqueue.Barging
	}
	if !t.Waits {
		return st.tryEnter(ctx, owner, mode)
	}
	if ctx.Err() != nil {
		return localqueue.Cancelled
	}
	place := st.Queue.ReserveWithin(owner, mode, most)
	if st.watched.Load() {
		st.noteWaiter(owner)
	}
	if !place.Waits() {
		return st.Queue.Wait(place, nil, nil)
	}
	return st.wait(ctx, owner, place, t)
}

// queueMode is how an owner waits in the local queue.
func queueMode(o core.Owner) localqueue.Mode {
	if core.IsShared(o) {
		return localqueue.Shared
	}
	return localqueue.Fair
}

// tryEnter enters the local queue without waiting behind another owner. It does wait for a clean-up, for as long as one
// command may take: the clean-up may be about to release the very lock that the caller asks for.
func (st *State) tryEnter(ctx context.Context, owner core.Owner, mode localqueue.Mode) localqueue.Outcome {
	var limit <-chan time.Time
	for {
		st.mu.Lock() // a clean-up gets the baton, and passes it on, under st.mu
		got, cleaning := st.Queue.TryClaim(owner, mode), st.cleaning
		st.mu.Unlock()
		if got != localqueue.Busy || cleaning == nil {
			return got
		}
		if limit == nil {
			timer := time.NewTimer(st.s.core.Config.CommandTimeout)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-cleaning:
		case <-limit:
			return localqueue.TimedOut
		case <-ctx.Done():
			return localqueue.Cancelled
		}
	}
}

// maxHolds is the largest hold count, as in Java.
const maxHolds = math.MaxInt32

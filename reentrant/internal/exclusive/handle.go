package exclusive

import (
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Handle is what a Lock knows of its lock. Locks of equal name may differ in the lease and in fairness.
type Handle struct {
	Room      *Room
	Name      string
	Remote    backend.Remote
	Fixed     time.Duration // the lease of each hold, if it is a fixed one
	Unfair    bool
	lazyID    atomic.Uint32         // see id
	lastState atomic.Pointer[State] // with which a cohort's owner last got it: a hint for ReenterFast
}

// NotifierOf returns the notifier of an owner's hold; nil if it has none.
func (l *Handle) NotifierOf(owner core.Owner) *core.LossNotifier {
	e := l.Room.FindState(l.Name)
	if e == nil {
		return nil
	}
	defer l.Room.PutState(e)
	if _, held := e.heldBy(owner); !held {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.Hold.Owned() || e.Hold.Owner != owner {
		return nil
	}
	if e.Hold.notifier == nil {
		e.Hold.notifier = core.NewLossNotifier()
	}
	return e.Hold.notifier
}

// HoldsOf returns how many times an owner holds the lock.
func (l *Handle) HoldsOf(owner core.Owner) (holds int) {
	l.WithState(func(e *State) {
		if _, ok := e.heldBy(owner); ok {
			holds = e.Queue.HoldCount(owner)
		}
	})
	return holds
}

// OwnHold returns an owner's hold.
func (l *Handle) OwnHold(owner core.Owner) (h Hold, err error) {
	held, lost := false, false
	l.WithState(func(e *State) {
		if h, held = e.heldBy(owner); !held { // lost, it is the owner's until the margin of its lease is over
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
	l.WithState(func(e *State) { e.shorten(epoch, sent, ttl) })
}

// LoseIfCurrent ends the hold with an epoch that Redis does not have. It returns false, and changes nothing, if the
// hold has another epoch by now, or is being given up or moved: then the reply may be older than that, or newer.
func (l *Handle) LoseIfCurrent(epoch uint64) (lost bool) {
	l.WithState(func(e *State) {
		e.mu.Lock()
		lost = e.Hold.phase == phaseHeld && e.Hold.Epoch == epoch
		e.mu.Unlock()
		if lost {
			e.Lose(epoch, "Redis no longer had it at Verify")
			e.evict(epoch, false)
		}
	})
	return lost
}

// WithState calls f with the lock's state, if there is one.
func (l *Handle) WithState(f func(*State)) {
	if e := l.Room.FindState(l.Name); e != nil {
		f(e)
		l.Room.PutState(e)
	}
}

// Queued returns how many owners wait.
func (l *Handle) Queued() (n int) {
	l.WithState(func(e *State) { n = e.Queue.Queued() })
	return n
}

// WaitingOwners returns the owners that wait, longest first.
func (l *Handle) WaitingOwners() (owners []core.Owner) {
	l.WithState(func(e *State) { owners = append(owners, e.Queue.QueuedOwners()...) })
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
func (k leakRecord) report() {
	if h := k.s.HoldOf(k.name); h.Owned() && h.lockID == k.lockID {
		k.s.core.LeakLog.Log(slog.LevelWarn, "a lock was forgotten while it is held", slog.String("lock", k.name), slog.String("owner", h.Owner.String()))
	}
}

// Has reports whether the owner has the lock, or lost it and has not been evicted yet.
func (l *Handle) Has(owner core.Owner) (has bool) {
	l.WithState(func(e *State) {
		e.mu.Lock()
		defer e.mu.Unlock()
		has = e.Hold.belongsTo(owner)
	})
	return has
}

package exclusive

import (
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
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
func (l *Handle) NotifierOf(owner core.Owner) (notifier *core.LossNotifier) {
	l.inHold(owner, func(st *State) {
		if st.info.notifier == nil {
			st.info.notifier = core.NewLossNotifier()
		}
		notifier = st.info.notifier
	})
	return notifier
}

// inHold calls f with st.mu held, if the owner has the lock and its hold can be trusted.
func (l *Handle) inHold(owner core.Owner, f func(st *State)) {
	l.WithState(func(st *State) {
		if _, held := st.heldBy(owner); !held {
			return
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.m.Owned() && st.m.Owner() == owner {
			f(st)
		}
	})
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

// Has reports whether the owner has the lock, or lost it and has not been evicted yet.
func (l *Handle) Has(owner core.Owner) bool {
	h := l.Room.HoldOf(l.Name)
	return h.belongsTo(owner)
}

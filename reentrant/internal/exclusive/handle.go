package exclusive

import (
	"context"
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
	AtLeast    time.Duration // for how long no other owner gets the lock, from the beginning of each hold on
	Unfair     bool
	MaxWaiting int                   // a call that would have to wait fails if so many wait in this session already; 0: no limit
	lazyID     atomic.Uint32         // see id
	lastState  atomic.Pointer[State] // the lock state of the last hold got by this handle: a hint for getState and ownState
}

// NotifierOf returns the notifier of the loss of an owner's hold, nil if the owner has no hold that can be trusted.
func (h *Handle) NotifierOf(owner core.Owner) (notifier *core.LossNotifier) {
	h.inHold(owner, func(st *State) {
		if st.info.notifier == nil {
			st.info.notifier = core.NewLossNotifier()
		}
		notifier = st.info.notifier
	})
	return notifier
}

// inHold calls f with st.mu held, if the owner has the lock and its hold can be trusted.
func (h *Handle) inHold(owner core.Owner, f func(st *State)) {
	h.WithState(func(st *State) {
		if _, held := st.heldBy(owner); !held {
			return
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.m.OwnedBy(owner) {
			f(st)
		}
	})
}

// HoldsOf returns how many times an owner holds the lock.
func (h *Handle) HoldsOf(owner core.Owner) (holds int) {
	h.WithState(func(st *State) {
		if _, ok := st.heldBy(owner); ok {
			holds = st.Queue.HoldCount(owner)
		}
	})
	return holds
}

// OwnHold returns an owner's hold.
func (h *Handle) OwnHold(owner core.Owner) (hold Hold, err error) {
	held, lost := false, false
	h.WithState(func(st *State) {
		if hold, held = st.heldBy(owner); !held { // a lost hold belongs to its owner until the owner is evicted
			lost = hold.BelongsTo(owner)
		}
	})
	switch {
	case held:
		return hold, nil
	case lost, h.lost(owner):
		return Hold{}, core.ErrLost
	}
	return Hold{}, core.ErrNotHeld
}

// Shorten makes the session trust the hold with the given epoch no longer than the hold's lease lasts in Redis. A reply of
// Redis said that ttl was left of the lease; sent is when the command with this reply was sent.
func (h *Handle) Shorten(epoch uint64, sent time.Time, ttl time.Duration) {
	h.WithState(func(st *State) {
		st.checked(ownershipCheck{s: st.s, remote: st.remote, name: st.name, epoch: epoch}, machine.Checked{Epoch: epoch, Ours: true, Sent: sent, TTL: ttl})
	})
}

// LoseIfCurrent ends the hold with the given epoch, after a reply that Redis does not have the hold, or has granted the lock
// under that epoch again. It returns false, and changes nothing, if this session's hold has another epoch by now, or is being
// given up or moved, since that may be the reason for the reply.
func (h *Handle) LoseIfCurrent(epoch uint64, again bool) (lost bool) {
	h.WithState(func(st *State) {
		st.mu.Lock()
		hold := st.m.Hold()
		st.mu.Unlock()
		lost = hold.Phase == machine.Held && hold.Epoch == epoch
		if lost {
			st.Lose(epoch, "Redis no longer had it at Verify")
			st.evict(epoch, again)
		}
	})
	return lost
}

// WithState calls f with the lock's state, if there is one.
func (h *Handle) WithState(f func(*State)) { h.Room.with(h.Name, f) }

// AwaitCleanUp waits for the end of the clean-up that has the baton, if there is one, so that a lock which an owner has given
// back in the background is free in Redis. It waits for as long as one command may take, and no longer than ctx.
func (h *Handle) AwaitCleanUp(ctx context.Context) {
	var done <-chan struct{}
	h.WithState(func(st *State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		done = st.cleaning
	})
	if done == nil {
		return
	}
	limit := time.NewTimer(h.Room.core.Config.CommandTimeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// Queued returns how many owners of this session wait for the lock.
func (h *Handle) Queued() (n int) {
	h.WithState(func(st *State) { n = st.Queue.Queued() })
	return n
}

// WaitingOwners returns the owners of this session that wait for the lock, longest first.
func (h *Handle) WaitingOwners() (owners []core.Owner) {
	h.WithState(func(st *State) { owners = append(owners, st.Queue.QueuedOwners()...) })
	return owners
}

// Has reports whether the owner has the lock, or lost it and has not been evicted yet.
func (h *Handle) Has(owner core.Owner) bool {
	hold := h.Room.HoldOf(h.Name)
	return hold.BelongsTo(owner)
}

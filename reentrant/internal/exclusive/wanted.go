package exclusive

import (
	"slices"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// WantedOf returns the channel that a Lock's Wanted returns to an owner: it is closed when another owner waits.
func (h *Handle) WantedOf(owner core.Owner) <-chan struct{} {
	wanted := (<-chan struct{})(core.AlreadyLost)
	h.inHold(owner, func(st *State) { wanted = st.wantedLocked(owner) })
	return wanted
}

// A wantedChannel belongs to a hold and serves the callers of Wanted. Guarded by State.mu.
type wantedChannel struct {
	channel chan struct{}
	closed  bool
}

// wantedLocked returns the channel of the owner's hold. st.mu is held.
func (st *State) wantedLocked(owner core.Owner) <-chan struct{} {
	if st.info.wanted != nil {
		return st.info.wanted.channel
	}
	st.info.wanted = &wantedChannel{channel: make(chan struct{})}
	st.watched.Store(true) // before othersWait looks at the queue: an owner that joins later sees the flag
	if st.m.IsWanted() || st.othersWait(owner) {
		st.closeWantedLocked()
	} else {
		st.watchLocked()
	}
	return st.info.wanted.channel
}

// othersWait reports whether another owner waits in this process's queue.
func (st *State) othersWait(owner core.Owner) bool {
	return st.Queue.Len() > 0 && slices.ContainsFunc(st.Queue.Waiters(), func(o core.Owner) bool { return o != owner })
}

// noteWaiterLocked notifies a holder that called Wanted that an owner has joined this process's queue. st.mu is held.
func (st *State) noteWaiterLocked(owner core.Owner) {
	st.watched.Store(st.info.wanted != nil)
	if st.m.Owned() && !st.m.OwnedBy(owner) {
		st.closeWantedLocked()
	}
}

// closeWantedLocked closes the channel of the hold, if a caller asked for one. st.mu is held.
func (st *State) closeWantedLocked() {
	if w := st.info.wanted; w != nil && !w.closed {
		w.closed = true
		close(w.channel)
	}
}

// watchLocked asks Redis, in the background, to report waiters, if a caller of Wanted waits for that. st.mu is held.
func (st *State) watchLocked() {
	remote, ok := st.remote.(backend.Watcher)
	if w := st.info.wanted; !ok || w == nil || w.closed {
		return
	}
	w := watch{s: st.s, remote: remote, name: st.name, epoch: st.m.Epoch()}
	st.s.core.Checks.Do(w.send)
}

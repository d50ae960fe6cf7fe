package exclusive

import (
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// AbandonAll loses every hold of the session. Portable ones stay in Redis with WithPortableHoldsLeft.
func (s *Room) AbandonAll() {
	type abandoned struct {
		*State
		epoch uint64
		left  bool
	}
	var held []abandoned
	s.core.Abandoned.Store(true)
	s.mu.Lock()
	for _, st := range s.states {
		st.mu.Lock()
		if st.m.Owned() || st.m.Phase() == machine.Lost {
			st.refs++
			left := s.core.Config.LeavesPortable && st.m.Owned() && core.IsPortable(st.m.Owner())
			held = append(held, abandoned{st, st.m.Epoch(), left})
			if left {
				s.leftHolds.Add(1)
			} else {
				s.abandonedHolds.Add(1)
			}
		}
		st.mu.Unlock()
	}
	s.mu.Unlock()
	for _, x := range held {
		why := "the session was closed"
		if x.left {
			why = leftBehind
		}
		x.Lose(x.epoch, why)
		x.evict(x.epoch, !x.left)
		s.PutState(x.State)
	}
}

// evict takes the baton from the owner of a lost hold and passes it to the next, unless the owner is giving it up
// itself. If there is no next owner to take over what Redis may still have, the session gives that back. The caller has
// a reference to the lock state.
func (st *State) evict(epoch uint64, mayBeThere bool) {
	st.mu.Lock()
	owner, fixed := st.m.Owner(), st.m.Lease().Fixed()
	holds := st.Queue.HoldCount(owner)
	evicted := st.m.Phase() == machine.Lost && st.m.Epoch() == epoch && st.Queue.Evict(owner)
	if evicted {
		st.oweLocked(owner, fixed, holds)
		st.m.Evicted()
		st.disownLocked()
	}
	remote, name := st.remote, st.name
	st.mu.Unlock()
	if !evicted {
		return
	}
	if mayBeThere && st.Queue.Idle() {
		st.s.core.Cleaner.Do(func() { st.s.ReleaseOrphan(remote, name, epoch) })
	}
	st.s.PutState(st)
}

// notifyLost reports a lost hold: first to its owner, who must stop. No mutex is held.
func (s *Room) notifyLost(name string, h *Hold, why string) {
	h.notifyLoss()
	s.reportLost(name, h, why)
}

// notifyLoss wakes the owners that must stop because the hold is lost. No mutex is held.
func (h *Hold) notifyLoss() {
	if h.notifier != nil {
		h.notifier.Notify()
	}
}

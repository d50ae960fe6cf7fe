package exclusive

import (
	"context"
	"fmt"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// AbandonAll ends every hold of the session as lost. Holds of portable owners stay in Redis in a session with the option
// WithPortableHoldsLeft.
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
		if h := st.m.Hold(); h.Owned() || h.Phase == machine.Lost {
			st.refs++
			left := h.Owned() && s.leaves(h.Owner)
			held = append(held, abandoned{st, h.Epoch, left})
			if left {
				st.m.LeaveThere()
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
		s.putState(x.State)
	}
}

// leaves reports whether the session has given up its holds, but leaves those of the owner in Redis.
func (s *Room) leaves(owner core.Owner) bool {
	return s.LeavesHolds() && core.IsPortable(owner)
}

// LeavesHolds reports whether the session has given up its holds, and has left some in Redis, to be resumed. If so, the session
// gives back nothing that may be one of the holds left in Redis.
func (s *Room) LeavesHolds() bool {
	return s.core.Config.LeavesPortable && s.core.Abandoned.Load()
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

// Lose ends a hold that can no longer be trusted, and notifies its owner. See [machine.Machine.Lose].
func (st *State) Lose(epoch uint64, why string) {
	st.mu.Lock()
	st.carryOutLoss(st.m.Lose(epoch, why))
}

// carryOutLoss notifies the owner of a lost hold, if the step says so. st.mu is held, and free when it returns.
func (st *State) carryOutLoss(s machine.Step) {
	if s.Do != machine.Lose {
		st.mu.Unlock()
		return
	}
	h := st.holdLocked()
	st.recordLossLocked(&h, s.Why)
	st.mu.Unlock()
	h.notifyLoss()
}

// recordLossLocked records that the hold is lost, before any call can return ErrLost. st.mu is held. The caller calls
// notifyLoss once it has unlocked st.mu.
func (st *State) recordLossLocked(h *Hold, why string) {
	st.holder.Store(0)
	if h.notifier != nil {
		h.notifier.CloseLost()
	}
	st.s.reportLost(st.name, h, why)
}

// leftBehind is the reason for the end of a hold that Close leaves in Redis.
const leftBehind = "the session was closed, and the hold is left to be resumed"

// reportLost reports that a hold is lost.
func (s *Room) reportLost(name string, h *Hold, why string) {
	s.core.Counts.Lost.Add(1)
	e := core.Event{Kind: core.EventLost, Lock: name, Owner: h.Owner, Token: h.Token, Held: time.Since(h.since)}
	switch {
	case h.Lease.Fixed() && !time.Now().Before(h.Lease.Until()):
		why = "its fixed lease ended"
		e = core.Meant(e, "a fixed lease has ended")
	case why == leftBehind:
		e = core.Meant(e, "a hold is left to be resumed")
	}
	e.Err = fmt.Errorf("%w (%s)", core.ErrLost, why)
	s.core.Report(context.Background(), e)
}

// lost reports whether the owner has lost a hold of the lock that it has not unlocked since.
func (h *Handle) lost(owner core.Owner) bool {
	return h.Room.core.Debts.Owed(core.DebtOf(core.ModeLock, h.Name, owner)) > 0
}

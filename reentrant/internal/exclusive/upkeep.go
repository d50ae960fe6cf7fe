package exclusive

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
	"github.com/relock-go/relock/reentrant/internal/keeper"
)

// Survey implements [keeper.Room]: it asks the machine of each lock what there is to do, and when to ask again.
func (s *Room) Survey(v *keeper.Survey) {
	var then []func()
	at := machine.Moment{Options: &s.options, Now: v.Now, Ahead: v.Ahead}
	s.mu.Lock()
	for _, st := range s.states {
		if do := st.survey(&at, v); do != nil {
			then = append(then, do)
		}
	}
	s.mu.Unlock()
	for _, do := range then {
		do()
	}
}

// survey carries out what there is to do for the hold of one lock. The caller calls the returned function, which may be nil,
// without a mutex. s.mu is held.
func (st *State) survey(at *machine.Moment, v *keeper.Survey) (then func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	step := st.m.Tick(at, machine.Survey{Renewing: v.Renewing, Refreshed: v.Refreshed})
	if st.m.Epoch() != 0 {
		st.trustLocked()
	}
	if step.Check {
		st.checkLocked()
	}
	if !step.Wake.IsZero() {
		v.WakeBy(step.Wake)
	}
	switch epoch := st.m.Epoch(); step.Do {
	case machine.Lose:
		h := st.holdLocked()
		st.recordLossLocked(&h, step.Why)
		return h.notifyLoss
	case machine.Evict:
		st.refs++
		return func() {
			st.evict(epoch, true)
			st.s.putState(st)
		}
	case machine.Dismiss:
		st.refs++
		st.s.core.Cleaner.Do(st.stopLingering)
	case machine.Renew:
		v.Renew(backend.Renewal{Remote: st.remote, Epoch: epoch, Lease: st.m.Hold().Span}, st)
	}
	return nil
}

// Renewed implements [keeper.Holder]. A batch of renewals has no references to lock states: the hold may have ended, and this
// lock state may serve another lock by now. The machine ignores a reply for another epoch.
func (st *State) Renewed(r *backend.Renewal, sent time.Time, ahead time.Duration) {
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	step := st.m.Renewed(&at, machine.Renewed{
		Epoch: r.Epoch, First: r.First, Gone: r.Gone, Failed: r.Err != nil, Sent: sent, Ahead: ahead,
	})
	if step.Do == machine.Extended {
		st.trustLocked()
		if r.Err == nil {
			st.renewNoteLocked(at.Now)
		}
		st.s.core.NoteRenewal(st.name, step.Change, r.Err)
	}
	st.carryOutLoss(step)
	if step.Do == machine.Lose {
		st.s.with(r.Remote.Name(), func(st *State) { st.evict(r.Epoch, !r.Gone) })
	}
}

package share

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/keeper"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
)

// Survey implements [keeper.Room].
func (r *Room) Survey(s *keeper.Survey) {
	for _, n := range r.all() {
		n.survey(s)
	}
}

func (n *Name) survey(s *keeper.Survey) {
	n.mu.Lock()
	at := plan.Moment{Options: &n.room.options, Now: s.Now, Ahead: s.Ahead, Tier: n.tier}
	n.carry(n.plan.Slept(&at))
	wake, renew := n.plan.Due(s.Now, s.Refreshed)
	until, _ := n.plan.Until()
	if renew {
		wake = until
		if !s.Renewing {
			r, had := n.plan.Renewal(n.remote, n.room.session.Config.Lease)
			s.Renew(r, renewal{n, had})
		}
	}
	n.mu.Unlock()
	if wake.IsZero() {
		return
	}
	s.WakeBy(wake)
	if !s.Now.Before(until) {
		n.expire()
	}
}

// A renewal renews a name's units. had is how many the name had when the renewal was sent: the server must have at least as
// many.
type renewal struct {
	*Name
	had int
}

// Renewed implements [keeper.Holder].
func (r renewal) Renewed(reply *backend.Renewal, sent time.Time, ahead time.Duration) {
	r.event(func(p *plan.Plan, at *plan.Moment) plan.Step {
		step, change := p.Renewed(at, plan.Renewed{
			Epoch: reply.Epoch, Had: r.had, Failed: reply.Err != nil, Gone: reply.Gone, Units: reply.Units, Sent: sent, Ahead: ahead,
		})
		r.room.session.NoteRenewal(r.name, change, reply.Err)
		return step
	})
}

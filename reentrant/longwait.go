package reentrant

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/sharedqueue"
)

// mostHolders is how many holders of this process an event lists.
const mostHolders = 16

// holders returns who has a side or permits: those of this process, by their owners where those are known, and the other
// sessions that the server names.
func (x *sharedName) holders() (seen core.Sighting) {
	s := x.session
	if n := x.find(); n != nil {
		seen.Holders = n.Tier().(interface{ holders() []Holder }).holders()
	}
	now := time.Now()
	s.core.Counts.Commands.Add(1)
	st, err := x.remote.(backend.Sharer).InspectShared(s.core.Deadlines.Context(context.Background(), now, now.Add(s.core.Config.CommandTimeout)))
	if err == nil {
		err = check.Shared(&st)
	}
	switch {
	case err == nil:
		seen.Shared, seen.Holders = &st, append(seen.Holders, s.otherHolders(&st)...)
	case len(seen.Holders) == 0:
		seen.Err = core.WrapUnavailable(context.Background(), err)
	}
	return seen
}

// A wish is what a call asks for of a shared name.
type wish struct {
	mode    Mode
	permits int
}

// WatchWait has the caller's wait for a side or for permits reported when it takes long.
func (x *sharedName) watchWait(ctx context.Context, asked wish) *core.LongWait {
	if !x.session.core.Warns {
		return nil
	}
	return x.session.core.WatchWait(ctx, Event{Lock: x.name, Mode: asked.mode, Permits: asked.permits, Owner: core.CurrentOwner(ctx)}, x.holders)
}

// otherHolders returns the other sessions that have units.
func (s *session) otherHolders(st *SharedState) (holders []Holder) {
	for _, u := range st.Holders {
		h := Holder{Session: u.Session, Mode: ModeRead}
		switch {
		case u.Session == s.core.ID:
			continue
		case st.Kind == backend.Permits:
			h.Mode, h.Permits = ModePermits, u.Units
		case u.Units == backend.AllUnits:
			h.Mode, h.Since = ModeWrite, core.TimeOf(u.Under)
		}
		holders = append(holders, h)
	}
	return holders
}

// holders returns the owners of this session that are inside.
func (q *rwTier) holders() (all []Holder) {
	q.Inside(mostHolders, func(owner Owner, side sharedqueue.Mode, token uint64) {
		h := Holder{Session: q.s.core.ID, Owner: owner.String(), Mode: modeOf(side), Since: q.since[owner]}
		if h.Since.IsZero() && token > 0 {
			h.Since = core.TimeOf(Token(token))
		}
		all = append(all, h)
	})
	return all
}

// holders returns the owners of this session that got permits, or if they are not known how many permits it uses.
func (q *permitTier) holders() (all []Holder) {
	q.Inside(func(permits int) {
		if permits == 0 {
			return // they may be lost, and Lose is about to clear the stays
		}
		if q.stays.all.Len() == 0 {
			all = []Holder{{Session: q.s.core.ID, Mode: ModePermits, Permits: permits}}
		}
		for at := q.stays.all.Front(); at != nil && len(all) < mostHolders; at = at.Next() {
			one := at.Value.(*stay)
			all = append(all, Holder{Session: q.s.core.ID, Owner: one.owner.String(), Mode: ModePermits, Permits: one.permits, Since: one.since})
		}
	})
	return all
}

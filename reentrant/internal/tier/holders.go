package tier

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// mostHolders is how many holders of this process an event lists.
const mostHolders = 16

// Holders returns who has a side or permits: the holders in this process, by their owners where those are known, and the other
// sessions, if the server names them within limit.
func (h *Handle) Holders(limit time.Duration) (seen core.Sighting) {
	s := h.Session
	seen.Holders = h.LocalHolders()
	ctx, _ := s.Apart(limit)
	st, err := h.Remote.(backend.Sharer).InspectShared(ctx)
	if err == nil {
		err = check.Shared(&st)
	}
	switch {
	case err == nil:
		seen.Shared, seen.Holders = &st, append(seen.Holders, otherHolders(s, &st)...)
	case len(seen.Holders) == 0:
		seen.Err = core.WrapUnavailable(context.Background(), err)
	}
	return seen
}

// LocalHolders returns who has a side or permits in this process.
func (h *Handle) LocalHolders() []core.Holder {
	n := h.Find()
	if n == nil {
		return nil
	}
	return n.Tier().(interface{ holders() []core.Holder }).holders()
}

// HoldersOf returns who has a side or permits of a name in this process.
func HoldersOf(room *share.Room, name string) []core.Holder {
	if n := room.Find(name); n != nil {
		return n.Tier().(interface{ holders() []core.Holder }).holders()
	}
	return nil
}

// A wish is the side of a read-write lock, or the number of permits, that a call asks for.
type wish struct {
	mode    core.Mode
	permits int
}

// watchWait has the caller's wait for a side or for permits reported when it takes long.
func (h *Handle) watchWait(ctx context.Context, asked wish) *core.LongWait {
	if !h.Session.Warns {
		return nil
	}
	return h.Session.WatchWait(ctx, core.Event{Lock: h.Name, Mode: asked.mode, Permits: asked.permits, Owner: core.CurrentOwner(ctx)}, h.Holders)
}

// otherHolders returns the other sessions that have units.
func otherHolders(s *core.Session, st *backend.SharedState) (holders []core.Holder) {
	for _, u := range st.Holders {
		h := core.Holder{Session: u.Session, Mode: core.ModeRead, Since: u.Since, Note: u.Note}
		switch {
		case u.Session == s.ID:
			continue
		case st.Kind == backend.Permits:
			h.Mode, h.Permits = core.ModePermits, u.Units
		case u.Units == backend.AllUnits:
			h.Mode = core.ModeWrite
		}
		holders = append(holders, h)
	}
	return holders
}

// holders returns the owners of this session that are inside.
func (t *rwTier) holders() (all []core.Holder) {
	notes := t.notesOf()
	t.Inside(mostHolders, func(owner core.Owner, mode sharedqueue.Mode, token uint64) {
		h := core.Holder{Session: t.session.ID, Owner: owner.String(), Mode: modeOf(mode), Since: t.since[owner], Note: notes[owner]}
		if h.Since.IsZero() && token > 0 {
			h.Since = core.TimeOf(backend.Token(token))
		}
		all = append(all, h)
	})
	return all
}

// holders returns the owners of this session that got permits or, if the owners are not known, one holder with the number of
// permits in use.
func (t *permitTier) holders() (all []core.Holder) {
	notes, last := t.notesOf(), t.Note()
	t.Inside(func(permits int) {
		if permits == 0 {
			return // the permits may be lost, and Lose is about to clear the stays
		}
		if t.stays.all.Len() == 0 {
			all = []core.Holder{{Session: t.session.ID, Mode: core.ModePermits, Permits: permits, Note: last}}
		}
		for at := t.stays.all.Front(); at != nil && len(all) < mostHolders; at = at.Next() {
			one := at.Value.(*stay)
			all = append(all, core.Holder{Session: t.session.ID, Owner: one.owner.String(), Mode: core.ModePermits, Permits: one.permits, Since: one.since, Note: notes[one.owner]})
		}
	})
	return all
}

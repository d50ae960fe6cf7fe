package reentrant

import (
	"context"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/sharedqueue"
)

// A sighting is what the session knows of the holders of a name.
type sighting struct {
	holders []Holder
	state   *State       // of a Lock
	shared  *SharedState // of another name
	err     error        // of the server, if that had to be asked and no holder is known
}

// into fills in the event of a wait.
func (g *sighting) into(e *Event) {
	e.Holders, e.State, e.Shared, e.Err = g.holders, g.state, g.shared, g.err
}

// A longWait is a wait in this process's queue, which is reported once it takes longer than the session's lease.
type longWait struct {
	s     *session
	outer *running // the innermost Do in whose context the call was made; nil if there is none
	begun time.Time
	event Event
	look  func() sighting // at who has what it waits for; it may ask the server
	timer *time.Timer
}

// watchWait has a wait reported when it takes longer than the lease. event has the name, and what is asked for. Without an
// observer and a log it does nothing, and returns nil.
func (s *session) watchWait(ctx context.Context, event Event, look func() sighting) *longWait {
	if !s.core.Warns {
		return nil
	}
	event.Kind = EventWaitingLong
	w := &longWait{s: s, outer: runningIn(ctx), begun: time.Now(), event: event, look: look}
	w.timer = time.AfterFunc(s.core.Config.Lease, func() { s.longWaits.add(w) })
	return w
}

// stop ends the watch at the end of the wait, and reports whether the wait was reported.
func (w *longWait) stop() (reported bool) { return w != nil && !w.timer.Stop() }

// longWaits are the looks at the holders of names for which calls have waited long. A look serves all calls that come
// while it is new: thousands may wait for one name.
type longWaits struct {
	mu    sync.Mutex // a leaf
	looks map[waitedFor]*look
}

// waitedFor is a name of one of both kinds.
type waitedFor struct {
	name   string
	shared bool
}

// A look at the holders of a name. longWaits.mu guards it.
type look struct {
	done bool
	seen sighting    // once done
	due  []*longWait // to be reported when it is done
}

// lookAge is for how long a look counts as new.
const lookAge = time.Second

func (w *longWait) key() waitedFor { return waitedFor{w.event.Lock, w.event.Mode != ModeLock} }

// add reports a wait, at once if there is a new look, and otherwise in the background.
func (l *longWaits) add(w *longWait) {
	l.mu.Lock()
	k, known := l.looks[w.key()]
	if !known {
		k = &look{}
		if l.looks == nil {
			l.looks = make(map[waitedFor]*look)
		}
		l.looks[w.key()] = k
	}
	done := k.done
	if !done {
		k.due = append(k.due, w)
	}
	l.mu.Unlock()
	switch {
	case !known:
		w.s.core.Checks.Do(func() { l.take(w, k) })
	case done:
		w.report(k.seen) // which no longer changes
	}
}

// take takes a look, for w and those that came meanwhile, and forgets it when it is no longer new.
func (l *longWaits) take(w *longWait, k *look) {
	var seen sighting
	if w.s.core.TakesWarnings() {
		seen = w.look()
	}
	l.mu.Lock()
	k.done, k.seen = true, seen
	due := k.due
	k.due = nil
	l.mu.Unlock()
	for _, w := range due {
		w.report(seen)
	}
	time.AfterFunc(lookAge, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.looks, w.key())
	})
}

// report reports the wait, with what a look has seen.
func (w *longWait) report(seen sighting) {
	e := w.event
	seen.into(&e)
	w.s.reportLongWait(w.outer, e, w.begun)
}

// reportLongWait reports a wait that began at the given time, of a call that was made in the context of a Do, if outer is
// not nil.
func (s *session) reportLongWait(outer *running, e Event, begun time.Time) {
	e.Wait, e.OfParent = time.Since(begun), outer.has(s, e.Lock)
	s.core.Report(context.Background(), e)
}

// wait waits for the turn of a place in the local queue.
func (e *lockState) wait(ctx context.Context, owner Owner, place localqueue.Place[Owner], t *try) localqueue.Outcome {
	if !place.Waits() {
		return e.queue.Wait(place, nil, nil)
	}
	s, name, remote := e.s, e.name, e.remote
	if w := s.watchWait(ctx, Event{Lock: name, Owner: owner}, func() sighting { return s.holderOf(name, remote) }); w != nil {
		t.waitBegun = w.begun
		defer func() { t.reportedWait = w.stop() }()
	}
	return e.queue.Wait(place, ctx.Done(), t.timeout)
}

// holderOf returns who has a lock: an owner of this session, or whom the server names.
func (s *session) holderOf(name string, remote backend.Remote) sighting {
	h := s.holdOf(name)
	if !h.owned() {
		return s.askForHolder(remote, s.core.Config.CommandTimeout)
	}
	st := State{
		Locked: true, Session: s.core.ID, Owner: h.owner.String(), TTL: time.Until(h.lease.Until()), Epoch: h.epoch, Token: h.token, Note: h.note.String(),
	}
	seen := sighting{state: &st, holders: holdersOf(&st)}
	if !h.since.IsZero() {
		seen.holders[0].Since = h.since
	}
	return seen
}

// askForHolder asks the server for the holder of a lock.
func (s *session) askForHolder(remote backend.Remote, limit time.Duration) (seen sighting) {
	now := time.Now()
	s.core.Counts.Commands.Add(1)
	st, err := remote.Inspect(s.core.Deadlines.Context(context.Background(), now, now.Add(limit)))
	if err == nil {
		err = check.State(&st)
	}
	if seen.err = core.WrapUnavailable(context.Background(), err); err == nil {
		seen.state, seen.holders = &st, holdersOf(&st)
	}
	return seen
}

// holdersOf returns the holder of a lock, if it has one.
func holdersOf(st *State) []Holder {
	if !st.Locked {
		return nil
	}
	return []Holder{{Session: st.Session, Owner: st.Owner, Note: st.Note, Since: timeOf(st.Token)}}
}

// timeOf returns when a token was given out, zero if that is not known. Tokens come from the server's clock, so one that
// is not ahead of the local clock shows the moment, as far as the two clocks agree.
func timeOf(t Token) time.Time {
	if at := time.UnixMicro(int64(t)); at.Before(time.Now()) {
		return at
	}
	return time.Time{}
}

// mostHolders is how many holders of this process an event lists.
const mostHolders = 16

// holders returns who has a side or permits: those of this process, by their owners where those are known, and the other
// sessions that the server names.
func (x *sharedName) holders() (seen sighting) {
	s := x.session
	if n := x.find(); n != nil {
		seen.holders = n.Tier().(interface{ holders() []Holder }).holders()
	}
	now := time.Now()
	s.core.Counts.Commands.Add(1)
	st, err := x.remote.(backend.Sharer).InspectShared(s.core.Deadlines.Context(context.Background(), now, now.Add(s.core.Config.CommandTimeout)))
	if err == nil {
		err = check.Shared(&st)
	}
	switch {
	case err == nil:
		seen.shared, seen.holders = &st, append(seen.holders, s.otherHolders(&st)...)
	case len(seen.holders) == 0:
		seen.err = core.WrapUnavailable(context.Background(), err)
	}
	return seen
}

// A wish is what a call asks for of a shared name.
type wish struct {
	mode    Mode
	permits int
}

// watchWait has the caller's wait for a side or for permits reported when it takes long.
func (x *sharedName) watchWait(ctx context.Context, asked wish) *longWait {
	if !x.session.core.Warns {
		return nil
	}
	return x.session.watchWait(ctx, Event{Lock: x.name, Mode: asked.mode, Permits: asked.permits, Owner: core.CurrentOwner(ctx)}, x.holders)
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
			h.Mode, h.Since = ModeWrite, timeOf(u.Under)
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
			h.Since = timeOf(Token(token))
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

package reentrant

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/sharedqueue"
)

// A Holder has what a call waits for.
type Holder struct {
	Session string
	Owner   string    // as Owner.String prints it; "" of a session that has not told, as that of a remote reader
	Mode    Mode      // what it has
	Permits int       // with ModePermits: how many
	Note    string    // of a Lock's holder ([WithNote])
	Since   time.Time // zero if that is not known
	_       struct{}
}

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
	if !s.warns {
		return nil
	}
	event.Kind = EventWaitingLong
	w := &longWait{s: s, outer: runningIn(ctx), begun: time.Now(), event: event, look: look}
	w.timer = time.AfterFunc(s.config.lease, func() { s.longWaits.add(w) })
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
		w.s.checks.Do(func() { l.take(w, k) })
	case done:
		w.report(k.seen) // which no longer changes
	}
}

// take takes a look, for w and those that came meanwhile, and forgets it when it is no longer new.
func (l *longWaits) take(w *longWait, k *look) {
	var seen sighting
	if w.s.takesWarnings() {
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

// takesWarnings reports whether the observer or the log takes warnings. A log handler may be slow to say so.
func (s *session) takesWarnings() bool {
	return s.config.observer != nil || s.logWriter.Enabled(slog.LevelWarn)
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
	s.report(context.Background(), e)
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
		return s.askForHolder(remote, s.config.commandTimeout)
	}
	st := State{
		Locked: true, Session: s.id, Owner: h.owner.String(), TTL: time.Until(h.lease.Until()), Epoch: h.epoch, Token: h.token, Note: h.note.String(),
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
	s.stats.commands.Add(1)
	st, err := remote.Inspect(s.deadlines.Context(context.Background(), now, now.Add(limit)))
	if err == nil {
		err = check.State(&st)
	}
	if seen.err = wrapUnavailable(context.Background(), err); err == nil {
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
	s.stats.commands.Add(1)
	st, err := x.remote.(backend.Sharer).InspectShared(s.deadlines.Context(context.Background(), now, now.Add(s.config.commandTimeout)))
	if err == nil {
		err = check.Shared(&st)
	}
	switch {
	case err == nil:
		seen.shared, seen.holders = &st, append(seen.holders, s.otherHolders(&st)...)
	case len(seen.holders) == 0:
		seen.err = wrapUnavailable(context.Background(), err)
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
	if !x.session.warns {
		return nil
	}
	return x.session.watchWait(ctx, Event{Lock: x.name, Mode: asked.mode, Permits: asked.permits, Owner: CurrentOwner(ctx)}, x.holders)
}

// otherHolders returns the other sessions that have units.
func (s *session) otherHolders(st *SharedState) (holders []Holder) {
	for _, u := range st.Holders {
		h := Holder{Session: u.Session, Mode: ModeRead}
		switch {
		case u.Session == s.id:
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
		h := Holder{Session: q.s.id, Owner: owner.String(), Mode: modeOf(side), Since: q.since[owner]}
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
			all = []Holder{{Session: q.s.id, Mode: ModePermits, Permits: permits}}
		}
		for at := q.stays.all.Front(); at != nil && len(all) < mostHolders; at = at.Next() {
			one := at.Value.(*stay)
			all = append(all, Holder{Session: q.s.id, Owner: one.owner.String(), Mode: ModePermits, Permits: one.permits, Since: one.since})
		}
	})
	return all
}

// holderAttributes returns the first holder, since when it holds, how many there are, and how many sessions wait.
func (e Event) holderAttributes() (attrs []slog.Attr) {
	if len(e.Holders) > 0 {
		attrs = e.Holders[0].attributes()
	}
	if n := len(e.Holders); n > 1 {
		attrs = append(attrs, slog.Int("holders", n))
	}
	if n := e.waitingSessions(); n > 0 {
		attrs = append(attrs, slog.Int("waiting_sessions", n))
	}
	if e.OfParent {
		attrs = append(attrs, slog.String("hint", "the call is made with the context of a Do that has the lock: another goroutine is another owner, unless WithOwner names one"))
	}
	return attrs
}

func (h Holder) attributes() (attrs []slog.Attr) {
	if h.Owner != "" {
		attrs = append(attrs, slog.String("holder", h.Owner))
	}
	attrs = append(attrs, slog.String("holder_session", h.Session))
	if h.Note != "" {
		attrs = append(attrs, slog.String("holder_note", h.Note))
	}
	if !h.Since.IsZero() {
		attrs = append(attrs, slog.Time("held_since", h.Since))
	}
	return attrs
}

// waitingSessions returns how many sessions wait at the server, as far as that is known.
func (e Event) waitingSessions() int {
	switch {
	case e.State != nil:
		return len(e.State.Waiting)
	case e.Shared != nil:
		return len(e.Shared.Waiting)
	}
	return 0
}

package protocol

import (
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
)

// A Shared is what the server keeps for a name that many sessions hold at once. Every method is one verb, executed as a
// whole. Share and Force look at units and places only after run.settle has removed what has expired; the other verbs
// pass over what has expired.
type Shared struct {
	Name    string
	Kind    backend.ShareKind // 0: the name is not in use
	Token   backend.Token     // last token given out and not given back
	Last    uint64            // order of the last place given out; it only rises
	Told    int               // the most units that a session other than the head may believe it may keep
	Entries []Entry           // one for each session, in order of arrival
	Expires Instant           // the name is not in use after this moment
	After   backend.Token     // the last token of the Lock that had the name before

	Keep    time.Duration              // how long the name outlives its last change at least
	Publish func(to string, m Message) // sends a message to a session
}

// An Entry is the server's record of one session.
type Entry struct {
	Session string
	Epoch   uint64
	Units   int
	Until   Instant       // the end of the units' lease, inclusive
	Memory  Instant       // the entry is kept until then, because a copy of an older epoch may still be under way
	First   backend.Token // the token under which the session has the units
	Under   backend.Token // the token under which the session got the first of its units, while it has any
	Limit   int           // of the session's last request
	Got     Instant       // when the session was last granted units: only Inspect looks at it
	Asked   uint64        // order of the try that asked the session, until the session answers or has no units
	Place   Place
	Note    string // for Inspect, until the session is granted more
}

// A Place is a session's place in the queue of a shared name.
type Place struct {
	Order       uint64  // rises along the queue; 0: there is no place
	Since       Instant // when the place was taken
	Try         bool    // the place is a try's, at the head, and the other holders were asked
	Want, Least int
	Deadline    Instant // the place is dead after this moment
	TTL         time.Duration
	Tokens      int
	Seen        backend.Token
}

// Share handles a request. It returns ErrWrongKind, ErrLate if now is after notAfter, or ErrFarToken, and then changes
// nothing.
func (s *Shared) Share(now Instant, session string, req backend.ShareRequest, notAfter, memory Instant) (backend.ShareReply, error) {
	if !s.InUse(now) {
		s.forget()
	}
	i := s.find(session)
	switch {
	case s.Kind != 0 && s.Kind != req.Kind:
		return backend.ShareReply{}, ErrWrongKind
	case now > notAfter:
		return backend.ShareReply{}, ErrLate
	case i >= 0 && req.Epoch < s.Entries[i].Epoch:
		return backend.ShareReply{Status: backend.StaleShare, Epoch: s.Entries[i].Epoch}, nil
	case req.Want > req.Keep && s.tooFar(now, req.Tokens, req.Seen):
		return backend.ShareReply{}, ErrFarToken
	}
	s.Kind = req.Kind
	r := &run{Shared: s, now: now, lease: req.Lease}
	r.settle(session)
	e := s.entry(session)
	r.caller = e
	e.Memory = max(e.Memory, notAfter, memory)
	status, fresh := backend.Shared, req.Epoch != e.Epoch
	if fresh {
		status = r.begin(req)
	} else {
		e.refresh(now, req)
	}
	r.serve()
	if fresh && req.Try && e.Place.Order > 0 {
		r.try()
	}
	s.save(now)
	r.announce(!fresh)
	return s.reply(now, e, req, status), nil
}

// forget makes the name a new one.
func (s *Shared) forget() {
	s.Kind, s.Token, s.Last, s.Told, s.Entries = 0, 0, 0, backend.Unlimited, nil
	if s.After > 0 {
		s.Token, s.After = even(s.After+1), 0
	}
}

// refresh handles a copy of the last epoch: live units get a full lease, and a place a new deadline.
func (e *Entry) refresh(now Instant, req backend.ShareRequest) {
	if e.Units > 0 {
		e.prolong(now, req.Lease)
	}
	if e.Place.Order > 0 {
		e.Place.Deadline = now + req.Patience
	}
}

// try returns the number of the try whose place at the head e has, 0 if e is nil or has no such place.
func (e *Entry) try() uint64 {
	if e == nil || !e.Place.Try {
		return 0
	}
	return e.Place.Order
}

// prolong lets the units last for d from now, unless their lease is longer.
func (e *Entry) prolong(now Instant, d time.Duration) { e.Until = max(e.Until, now+d) }

// issue returns the first of a new block of even tokens: above every token of this name, not below the clock (so that
// tokens rise although the name was forgotten) and above what the session has seen. The block ends at the Horizon.
func (s *Shared) issue(now Instant, tokens int, seen backend.Token) backend.Token {
	first := even(max(s.Token+2, clockToken(now), seen+2))
	s.Token = max(first, min(first+2*backend.Token(tokens-1), clockToken(now+Horizon)/2*2))
	return first
}

// even rounds a token up.
func even(t backend.Token) backend.Token { return (t + 1) / 2 * 2 }

// tooFar reports whether tokens that are issued now would be further ahead of the clock than Farthest.
func (s *Shared) tooFar(now Instant, tokens int, seen backend.Token) bool {
	return max(s.Token, seen) > clockToken(now+Farthest)-2*backend.Token(max(tokens, 1))
}

// save keeps the name until the last lease, memory and place have expired, for Keep at least, and longer by as much as the
// name's tokens are ahead of the clock.
func (s *Shared) save(now Instant) {
	ahead := Instant(min(s.Token, clockToken(now+Farthest)))*time.Microsecond - now
	s.Expires = now + s.Keep + max(0, ahead)
	for _, e := range s.Entries {
		s.Expires = max(s.Expires, e.Memory, e.Place.Deadline+e.Place.TTL)
		if e.Units > 0 {
			s.Expires = max(s.Expires, e.Until)
		}
	}
}

func (s *Shared) reply(now Instant, e *Entry, req backend.ShareRequest, status backend.ShareStatus) backend.ShareReply {
	reply := backend.ShareReply{
		Status: status, Epoch: e.Epoch, Units: e.Units, Placed: e.Place.Order > 0, First: e.First, Last: s.lastOf(e), May: s.may(now, e),
	}
	if s.Kind == backend.Permits {
		reply.Share = s.share(e, req.Limit)
	}
	if h := s.head(); h != e {
		reply.Try = h.try()
	}
	return reply
}

// lastOf returns the last token under which a session has its units.
func (s *Shared) lastOf(e *Entry) backend.Token {
	if s.Kind == backend.ReadWrite && e.Units == backend.AllUnits {
		return s.Token
	}
	return e.First
}

// Renew prolongs the lease of the units that the session has under an epoch and a token, and returns how many units they are, 0
// if there are none.
func (s *Shared) Renew(now Instant, session string, epoch uint64, under backend.Token, lease time.Duration) int {
	i := s.find(session)
	if i < 0 || now > s.Expires {
		return 0
	}
	e := &s.Entries[i]
	if e.Epoch != epoch || e.Under != under || e.Units == 0 || now > e.Until {
		return 0
	}
	e.prolong(now, lease)
	s.save(now)
	return e.Units
}

// Force takes the units of all sessions that have some, for the head of the queue. A session that had units loses its place
// too: if it kept the place, and was granted more units, it would not learn that the first ones were gone. Force reports
// whether any session had units. It returns ErrWrongKind or, if now is after notAfter, ErrLate, and then changes nothing.
func (s *Shared) Force(now, notAfter Instant, kind backend.ShareKind) (had bool, err error) {
	switch {
	case now > notAfter:
		return false, ErrLate
	case !s.InUse(now):
		return false, nil
	case s.Kind != kind:
		return false, ErrWrongKind
	}
	r := &run{Shared: s, now: now}
	r.settle("")
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Units > 0 {
			r.lose(e)
			had = true
		}
	}
	if had {
		r.serve()
		s.save(now)
		r.announce(false)
	}
	return had, nil
}

// Inspect returns what is known of the name. It changes nothing.
func (s *Shared) Inspect(now Instant) (st backend.SharedState) {
	if !s.InUse(now) {
		return st
	}
	st.Kind, st.Token = s.Kind, s.Token
	places := slices.Clone(s.Entries)
	slices.SortStableFunc(places, func(a, b Entry) int { return int(a.Place.Order) - int(b.Place.Order) })
	for _, e := range places {
		if e.Units > 0 && now <= e.Until {
			st.Holders = append(st.Holders, backend.SharedHolder{
				Session: e.Session, Epoch: e.Epoch, Units: e.Units, Under: e.Under, Limit: e.Limit, TTL: e.Until - now,
				Since: Given(clockToken(e.Got), now), Note: e.Note})
		}
		if p := e.Place; p.Order > 0 && now <= p.Deadline {
			st.Waiting = append(st.Waiting, backend.SharedWaiter{
				Session: e.Session, Epoch: e.Epoch, Want: p.Want, Least: p.Least, Limit: e.Limit})
		}
	}
	return st
}

// Held reports whether any session has units, as of the last verb.
func (s *Shared) Held() bool {
	return slices.ContainsFunc(s.Entries, func(e Entry) bool { return e.Units > 0 })
}

// InUse reports whether the name is in use as a shared one.
func (s *Shared) InUse(now Instant) bool { return s.Kind != 0 && now <= s.Expires }

// find returns the index of a session's entry, -1 if it has none.
func (s *Shared) find(session string) int {
	return slices.IndexFunc(s.Entries, func(e Entry) bool { return e.Session == session })
}

// entry returns a session's entry, which is new if there was none. It is valid until the next call of entry or settle.
func (s *Shared) entry(session string) *Entry {
	if i := s.find(session); i >= 0 {
		return &s.Entries[i]
	}
	s.Entries = append(s.Entries, Entry{Session: session})
	return &s.Entries[len(s.Entries)-1]
}

// counts reports whether the session has units or a place.
func (e *Entry) counts() bool { return e.Units > 0 || e.Place.Order > 0 }

// others returns how many units the other sessions have, how many others have some, and how many others have units or a
// place.
func (s *Shared) others(e *Entry) (units, holders, sessions int) {
	for i := range s.Entries {
		o := &s.Entries[i]
		if o == e || !o.counts() {
			continue
		}
		sessions++
		units += o.Units
		if o.Units > 0 {
			holders++
		}
	}
	return units, holders, sessions
}

// head returns the first entry in the queue, nil if there is none.
func (s *Shared) head() (h *Entry) {
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Place.Order > 0 && (h == nil || e.Place.Order < h.Place.Order) {
			h = e
		}
	}
	return h
}

// A Summary is computed from all entries of a Shared. The scripts store it, so that not every run reads all entries.
type Summary struct {
	Units, Holders, Sessions int     // units of all; sessions with units; sessions with units or a place
	First                    uint64  // order of the head, Last + 1 if there is none
	Soonest                  Instant // nothing expires before this moment
}

const (
	// Never is a moment after all others, as the scripts write it: in microseconds, it is the highest number up to which a
	// double has all integers.
	Never Instant = (1<<53 - 1) * time.Microsecond
	// sweep is for how long the scripts keep entries that could be deleted, to delete several in one run.
	sweep = 5 * time.Second
)

// Summary returns the summary of the present entries.
func (s *Shared) Summary() Summary {
	m := Summary{First: s.Last + 1, Soonest: Never}
	m.Units, m.Holders, m.Sessions = s.others(nil)
	if h := s.head(); h != nil {
		m.First = h.Place.Order
	}
	for i := range s.Entries {
		m.Soonest = min(m.Soonest, s.Entries[i].ends())
	}
	return m
}

// ends returns when the first thing of an entry ends: its units, its place, or, if it has neither, the entry itself.
func (e *Entry) ends() Instant {
	if !e.counts() {
		return e.Memory + sweep
	}
	at := Never
	if e.Units > 0 {
		at = e.Until
	}
	if e.Place.Order > 0 {
		at = min(at, e.Place.Deadline)
	}
	return at
}

// Pending returns how many sessions have not answered the try of an entry.
func (s *Shared) Pending(h *Entry) (n int) {
	for _, e := range s.Entries {
		if e.Asked == h.Place.Order {
			n++
		}
	}
	return n
}

// may returns how many units a session may keep so that the head of the queue fits.
func (s *Shared) may(now Instant, e *Entry) int {
	if e == s.head() {
		return backend.Unlimited
	}
	return s.allowance(now)
}

// allowance returns how many units each session but the head may keep so that the head fits.
func (s *Shared) allowance(now Instant) int {
	h := s.head()
	if h == nil {
		return backend.Unlimited
	}
	_, holders, _ := s.others(h)
	switch {
	case holders == 0:
		return backend.Unlimited
	case s.Kind == backend.Permits && now-h.Place.Since > backend.ShareGrace:
		return 0
	}
	return (h.Limit - h.Place.Least) / holders
}

// share returns limit divided by the number of sessions that have units or a place, this one included, rounded up.
func (s *Shared) share(e *Entry, limit int) int {
	_, _, sessions := s.others(e)
	return (limit-1)/(sessions+1) + 1
}

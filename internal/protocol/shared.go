package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
)

// A Shared is what the server keeps for a name that many sessions hold at once. Every method is one verb, executed as a
// whole. Verbs look at units and places only after settle.
type Shared struct {
	Name    string
	Kind    backend.ShareKind // 0: the name is not in use
	Token   backend.Token     // last token given out and not given back
	Entries []Entry           // one for each session, in order of arrival
	Expires Instant           // the name is not in use after that

	Keep    time.Duration              // how long the name outlives its last change and its leases
	Publish func(to string, m Message) // sends a message to a session
}

// An Entry is the server's record of one session.
type Entry struct {
	Session string
	Epoch   uint64
	Units   int
	Until   Instant       // the end of the units' lease, inclusive
	Memory  Instant       // the entry is kept until then: a copy of an older epoch may still be under way
	First   backend.Token // under which it has the units
	Under   backend.Token // under which it got the first of them: it stays while the session has any
	Limit   int           // of its last request
	Place   Place
}

// A Place is a session's place in the queue of a shared name.
type Place struct {
	Order       uint64 // rises along the queue; 0: there is no place
	Want, Least int
	Deadline    Instant // it is dead after that
	TTL         time.Duration
	Tokens      int
	Seen        backend.Token
}

// Share handles a request. It returns ErrWrongKind, ErrLate if now is after notAfter, or ErrFarToken, and then changes
// nothing.
func (s *Shared) Share(now Instant, session string, req backend.ShareRequest, notAfter, memory Instant) (backend.ShareReply, error) {
	if now > s.Expires {
		s.Kind, s.Token, s.Entries = 0, 0, nil
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
	s.settle(now, session)
	e := s.entry(session)
	e.Memory = max(e.Memory, notAfter, memory)
	status := backend.Shared
	if req.Epoch > e.Epoch {
		status = s.begin(now, e, req)
	} else {
		e.refresh(now, req)
	}
	granted := s.serve(now, e, req.Lease)
	s.save(now)
	s.sendMessages(now, e, granted)
	return s.reply(e, req, status), nil
}

// settle removes what has expired: units past their lease, places past their deadline, entries past their memory. The
// caller's entry stays.
func (s *Shared) settle(now Instant, caller string) {
	for i := range s.Entries {
		e := &s.Entries[i]
		if now > e.Until {
			e.Units, e.First = 0, 0
		}
		if now > e.Place.Deadline {
			e.Place = Place{}
		}
	}
	s.Entries = slices.DeleteFunc(s.Entries, func(e Entry) bool {
		return !e.counts() && now > e.Memory && e.Session != caller
	})
}

// begin handles a new epoch: what the session keeps, and what it wants.
func (s *Shared) begin(now Instant, e *Entry, req backend.ShareRequest) backend.ShareStatus {
	has := e.Units
	if e.Under != req.Under {
		has = 0
	}
	e.Epoch, e.Limit = req.Epoch, req.Limit
	if req.Keep > has {
		e.Units, e.First, e.Until, e.Place = 0, 0, 0, Place{}
		return backend.ShareLost
	}
	s.keep(now, e, min(has, req.Keep), req)
	s.queue(now, e, req)
	return backend.Shared
}

// keep leaves the session the given number of its units, with a full lease. A writer that keeps fewer than all of them
// gives back the tokens that it did not use.
func (s *Shared) keep(now Instant, e *Entry, units int, req backend.ShareRequest) {
	if e.Units == backend.AllUnits && units < backend.AllUnits && req.Kind == backend.ReadWrite {
		if e.First <= req.Tail && req.Tail < s.Token && e.Under == req.Under && req.Tail%2 == 0 {
			s.Token = req.Tail
		}
		e.First = s.Token
	}
	e.Units = units
	if units == 0 {
		e.First, e.Until = 0, 0
		return
	}
	e.lease(now, req.Lease)
}

// queue gives the session a place, updates the one it has, or takes it away. A session with its fair share of permits
// gets no place. It gets the free permits at once if no session waits, else none.
func (s *Shared) queue(now Instant, e *Entry, req backend.ShareRequest) {
	if req.Want == req.Keep {
		e.Place = Place{}
		return
	}
	least := req.Least
	if req.Kind == backend.Permits && e.Units >= least {
		if e.Units >= s.share(e, req.Limit) {
			e.Place = Place{}
			if units := min(req.Want, req.Limit-s.others(e)); s.head() == nil && units > e.Units {
				s.give(now, e, units, Place{Tokens: 1, Seen: req.Seen})
				e.lease(now, req.Lease)
			}
			return
		}
		least = e.Units + 1 // the units that it has already are no grant
	}
	order := e.Place.Order
	if order == 0 {
		order = s.lastOrder() + 1
	}
	e.Place = Place{
		Order: order, Want: req.Want, Least: least, Deadline: now + req.Patience,
		TTL: req.GrantTTL, Tokens: req.Tokens, Seen: req.Seen,
	}
}

// refresh handles a copy of the last epoch: live units get a full lease, and a place a new deadline.
func (e *Entry) refresh(now Instant, req backend.ShareRequest) {
	if e.Units > 0 {
		e.lease(now, req.Lease)
	}
	if e.Place.Order > 0 {
		e.Place.Deadline = now + req.Patience
	}
}

// lease prolongs the lease of the units to d from now. It never shortens it.
func (e *Entry) lease(now Instant, d time.Duration) {
	e.Until = max(e.Until, now+d)
	e.Memory = max(e.Memory, e.Until)
}

// serve grants the requests at the head of the queue for as long as they fit, and returns the sessions that got units,
// except the caller. It looks at each session once: thousands can be served in one run. A session whose tokens would be
// too far ahead keeps its place; its next copy returns the error.
func (s *Shared) serve(now Instant, caller *Entry, lease time.Duration) (granted []*Entry) {
	line, units, sessions := s.line()
	for i, h := range line {
		p, free := h.Place, h.Limit-(units-h.Units)
		if p.Least > free || s.tooFar(now, p.Tokens, p.Seen) {
			break
		}
		n := min(p.Want, free)
		if s.Kind == backend.Permits && i < len(line)-1 {
			n = min(n, max(p.Least, h.Limit/sessions))
		}
		units += n - h.Units
		h.Place = Place{}
		s.give(now, h, n, p)
		if h == caller {
			h.lease(now, lease)
			continue
		}
		h.lease(now, p.TTL)
		granted = append(granted, h)
	}
	return granted
}

// line returns the entries with a place, in order, the number of units in use, and the number of sessions with units or
// a place.
func (s *Shared) line() (places []*Entry, units, sessions int) {
	for i := range s.Entries {
		e := &s.Entries[i]
		units += e.Units
		if e.Place.Order > 0 {
			places = append(places, e)
		}
		if e.counts() {
			sessions++
		}
	}
	slices.SortFunc(places, func(a, b *Entry) int { return cmp.Compare(a.Place.Order, b.Place.Order) })
	return places, units, sessions
}

// give grants units to a session: to a writer under a new block of tokens, to all others under the last token. If a
// reader has seen a higher token, the server has forgotten a write, and give issues a new last token.
func (s *Shared) give(now Instant, e *Entry, units int, p Place) {
	had := e.Units
	e.Units = units
	if s.Kind == backend.ReadWrite && units == backend.AllUnits {
		e.First = s.issue(now, p.Tokens, p.Seen)
	} else {
		if s.Token == 0 || s.Kind == backend.ReadWrite && p.Seen > s.Token {
			s.issue(now, 1, p.Seen)
		}
		e.First = s.Token
	}
	if had == 0 {
		e.Under = e.First
	}
}

// issue returns the first of a new block of even tokens: above every one of this name, above the clock (so that they rise
// although the name was forgotten) and above what the session has seen. The block ends at the Horizon.
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

// save keeps the name until the last lease, memory and place have expired, for Keep at least, and for longer by as much
// as its tokens have run ahead of the clock.
func (s *Shared) save(now Instant) {
	ahead := Instant(min(s.Token, clockToken(now+Farthest)))*time.Microsecond - now
	s.Expires = max(s.Expires, now+s.Keep+max(0, ahead))
	for _, e := range s.Entries {
		s.Expires = max(s.Expires, e.Until, e.Memory, e.Place.Deadline+e.Place.TTL)
	}
}

// sendMessages sends a message to the sessions that were granted units, and to those that have more than they may keep.
// The caller gets none: its reply says both.
func (s *Shared) sendMessages(now Instant, caller *Entry, granted []*Entry) {
	notified, may := map[*Entry]bool{caller: true}, s.allowance()
	for _, e := range granted {
		notified[e] = true
		last := e.First
		if e.Units == backend.AllUnits && s.Kind == backend.ReadWrite {
			last = s.Token
		}
		s.Publish(e.Session, Message{Kind: SharedGrant, Name: s.Name, Epoch: e.Epoch, Units: e.Units, First: e.First, Last: last,
			May: may(e), TTL: e.Until - now, At: now})
	}
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Units > may(e) && !notified[e] {
			s.Publish(e.Session, Message{Kind: SharedWanted, Name: s.Name, May: may(e)})
		}
	}
}

// allowance returns a function of a session: how many units it may keep so that the head of the queue fits.
func (s *Shared) allowance() func(*Entry) int {
	h, most := s.head(), backend.Unlimited
	if h != nil {
		goal, holders := h.Place.Least, 0
		if s.Kind == backend.Permits {
			goal = max(goal, min(h.Place.Want, s.share(h, h.Limit)))
		}
		for i := range s.Entries {
			if o := &s.Entries[i]; o != h && o.Units > 0 {
				holders++
			}
		}
		if holders > 0 {
			most = max(0, (h.Limit-goal)/holders)
		}
	}
	return func(e *Entry) int {
		if e == h {
			return backend.Unlimited
		}
		return most
	}
}

func (s *Shared) reply(e *Entry, req backend.ShareRequest, status backend.ShareStatus) backend.ShareReply {
	reply := backend.ShareReply{
		Status: status, Epoch: e.Epoch, Units: e.Units, Placed: e.Place.Order > 0, First: e.First, Last: e.First, May: s.allowance()(e),
	}
	switch {
	case s.Kind == backend.Permits:
		reply.Share = s.share(e, req.Limit)
	case e.Units == backend.AllUnits:
		reply.Last = s.Token
	}
	return reply
}

// Renew prolongs the lease of the units that an epoch of the session has under a token, and returns how many they are:
// 0 if it has none.
func (s *Shared) Renew(now Instant, session string, epoch uint64, under backend.Token, lease time.Duration) int {
	i := s.find(session)
	if i < 0 || now > s.Expires {
		return 0
	}
	e := &s.Entries[i]
	if e.Epoch != epoch || e.Under != under || e.Units == 0 || now > e.Until {
		return 0
	}
	e.lease(now, lease)
	s.save(now)
	return e.Units
}

// Force takes the units of all sessions that have some, for the head of the queue. A session that had units loses its place
// too: it would not learn that they were gone if it was granted more before it asks. It returns whether a session had
// any, or ErrWrongKind, and then changes nothing.
func (s *Shared) Force(now Instant, kind backend.ShareKind) (had bool, err error) {
	switch {
	case !s.InUse(now):
		return false, nil
	case s.Kind != kind:
		return false, ErrWrongKind
	}
	s.settle(now, "")
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Units > 0 {
			e.Units, e.First, e.Until, e.Place = 0, 0, 0, Place{}
			had = true
		}
	}
	if had {
		granted := s.serve(now, nil, 0)
		s.save(now)
		s.sendMessages(now, nil, granted)
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
				Session: e.Session, Epoch: e.Epoch, Units: e.Units, Under: e.Under, Limit: e.Limit, TTL: e.Until - now})
		}
		if p := e.Place; p.Order > 0 && now <= p.Deadline {
			st.Waiting = append(st.Waiting, backend.SharedWaiter{
				Session: e.Session, Epoch: e.Epoch, Want: p.Want, Least: p.Least, Limit: e.Limit})
		}
	}
	return st
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

// head returns the first entry in the queue, nil if there is none.
func (s *Shared) head() (h *Entry) {
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Place.Order > 0 && (h == nil || e.Place.Order < h.Place.Order) {
			h = e
		}
	}
	return h
}

func (s *Shared) lastOrder() (last uint64) {
	for _, e := range s.Entries {
		last = max(last, e.Place.Order)
	}
	return last
}

// others returns the number of units that the other sessions have.
func (s *Shared) others(e *Entry) (units int) {
	for i := range s.Entries {
		if o := &s.Entries[i]; o != e {
			units += o.Units
		}
	}
	return units
}

// share returns limit divided by the number of sessions that have units or a place, this one included.
func (s *Shared) share(e *Entry, limit int) int {
	sessions := 1
	for i := range s.Entries {
		if o := &s.Entries[i]; o != e && o.counts() {
			sessions++
		}
	}
	return limit / sessions
}

// counts reports whether the session has units or a place.
func (e *Entry) counts() bool { return e.Units > 0 || e.Place.Order > 0 }

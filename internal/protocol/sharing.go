package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
)

// A run is one execution of a verb that gives out the units of a shared name.
type run struct {
	*Shared
	now    Instant
	caller *Entry        // nil: none
	lease  time.Duration // of the caller's units
	news   []*Entry      // other sessions that had a place, and were granted or refused
	left   bool          // a place went without a grant, or asks for less than before
	lapsed bool          // the head's place has ended, and its session has units, for which it was not asked while it was the head
	asks   bool          // a try asks the holders
}

// settle removes what has expired: units past their lease, places past their deadline, entries past their memory. The
// caller's entry stays.
func (r *run) settle(caller string) {
	was := r.head()
	for i := range r.Entries {
		e := &r.Entries[i]
		if r.now > e.Until {
			e.Units, e.First, e.Asked = 0, 0, 0
		}
		if r.now > e.Place.Deadline {
			r.lapsed = r.lapsed || e == was && e.Units > 0
			r.leave(e)
		}
	}
	r.Entries = slices.DeleteFunc(r.Entries, func(e Entry) bool {
		return !e.counts() && r.now > e.Memory && e.Session != caller
	})
}

// leave takes the place of a session, if it has one, without a grant.
func (r *run) leave(e *Entry) {
	r.left = r.left || e.Place.Order > 0
	e.Place = Place{}
}

// lose takes the session's units and its place.
func (r *run) lose(e *Entry) {
	e.Units, e.First, e.Until, e.Asked = 0, 0, 0, 0
	r.leave(e)
}

// begin handles a new epoch of the caller: what the session keeps, which try it answers, and what it wants.
func (r *run) begin(req backend.ShareRequest) backend.ShareStatus {
	e, has := r.caller, r.caller.Units
	if e.Under != req.Under {
		has = 0
	}
	e.Epoch, e.Limit = req.Epoch, req.Limit
	if req.Keep > has {
		r.lose(e)
		return backend.ShareLost
	}
	r.keep(min(has, req.Keep), req)
	if e.Units == 0 || e.Asked == req.Answer {
		e.Asked = 0
	}
	r.queue(req)
	return backend.Shared
}

// keep leaves the caller the given number of its units, with a full lease. A writer that keeps fewer than all of them
// gives back the tokens that it did not use.
func (r *run) keep(units int, req backend.ShareRequest) {
	e := r.caller
	if e.Units == backend.AllUnits && units < backend.AllUnits && req.Kind == backend.ReadWrite {
		if e.First <= req.Tail && req.Tail < r.Token && e.Under == req.Under && req.Tail%2 == 0 {
			r.Token = req.Tail
		}
		e.First = r.Token
	}
	e.Units = units
	if units == 0 {
		e.First, e.Until = 0, 0
		return
	}
	e.prolong(r.now, req.Lease)
}

// queue gives the caller a place at the tail, updates the place that it has already, or takes the place away.
func (r *run) queue(req backend.ShareRequest) {
	e := r.caller
	if req.Want == req.Keep {
		r.leave(e)
		return
	}
	p := Place{Order: e.Place.Order, Since: e.Place.Since, Want: req.Want, Least: req.Least, Deadline: r.now + req.Patience,
		TTL: req.GrantTTL, Tokens: req.Tokens, Seen: req.Seen}
	if p.Order == 0 {
		r.Last++
		p.Order, p.Since = r.Last, r.now
	}
	r.left = r.left || p.Want < e.Place.Want
	e.Place = p
}

// serve grants the requests at the head of the queue for as long as they fit, and refuses a try that is over. It looks at
// each session once: thousands can be served in one run. A session whose tokens would be too far ahead keeps its place;
// its next copy returns the error.
func (r *run) serve() {
	line, units := r.line()
	for i, h := range line {
		had, free := h.Units, h.Limit-(units-h.Units)
		switch {
		case h.Place.Least <= free && !r.tooFar(r.now, h.Place.Tokens, h.Place.Seen):
			r.grant(h, free, i == len(line)-1)
			units += h.Units - had
		case h.Place.Try && r.over(h):
			r.leave(h)
		default:
			return
		}
		if h != r.caller {
			r.news = append(r.news, h)
		}
	}
}

// grant gives the head as many of the units that it wants as are free, but of permits no more than the head needs while others
// wait behind it. The head never loses units. The caller gets a full lease.
func (r *run) grant(h *Entry, free int, last bool) {
	p, n, lease := h.Place, min(h.Place.Want, free), h.Place.TTL
	if r.Kind == backend.Permits && !last {
		n = p.Least
	}
	if h == r.caller {
		lease = r.lease
	}
	h.Place = Place{}
	r.give(h, max(n, h.Units), p)
	h.prolong(r.now, lease)
}

// give grants units to a session: to a writer under a new block of tokens, to all others under the last token. If a
// reader has seen a higher token, the server has forgotten a write, and give issues a new last token.
func (r *run) give(e *Entry, units int, p Place) {
	had := e.Units
	e.Units, e.Got, e.Note = units, r.now, ""
	if r.Kind == backend.ReadWrite && units == backend.AllUnits {
		e.First = r.issue(r.now, p.Tokens, p.Seen)
	} else {
		if r.Token == 0 || r.Kind == backend.ReadWrite && p.Seen > r.Token {
			r.issue(r.now, 1, p.Seen)
		}
		e.First = r.Token
	}
	if had == 0 {
		e.Under = e.First
	}
}

// line returns the entries with a place, in order, and the number of units that all sessions have.
func (r *run) line() (places []*Entry, units int) {
	for i := range r.Entries {
		e := &r.Entries[i]
		units += e.Units
		if e.Place.Order > 0 {
			places = append(places, e)
		}
	}
	slices.SortFunc(places, func(a, b *Entry) int { return cmp.Compare(a.Place.Order, b.Place.Order) })
	return places, units
}

// try handles the caller's try, which does not fit. If the caller is the head, all other holders are asked, also those that
// have answered the caller's try of an earlier epoch. Behind others the try is refused at once.
func (r *run) try() {
	e := r.caller
	if r.head() != e {
		r.leave(e)
		return
	}
	for i := range r.Entries {
		if o := &r.Entries[i]; o != e && o.Units > 0 {
			o.Asked = e.Place.Order
		}
	}
	e.Place.Try, r.asks = true, true
}

// over reports whether a try at the head that does not fit is to be refused: all sessions that were asked have answered, or the
// caller has answered and keeps more units than the try leaves to all others.
func (r *run) over(h *Entry) bool {
	c := r.caller
	if c != nil && c != h && c.Asked != h.Place.Order && c.Units > h.Limit-h.Place.Least {
		return true
	}
	return r.Pending(h) == 0
}

// announce sends the messages of a run: grants and refusals to the sessions concerned, and to the others, if they must know,
// how many units they may keep. The caller gets no message, since its reply says the same. again says that the caller sent a
// copy.
func (r *run) announce(again bool) {
	h, may := r.head(), r.allowance(r.now)
	for _, e := range r.news {
		r.Publish(e.Session, Message{Kind: SharedGrant, Name: r.Name, Epoch: e.Epoch, Units: e.Units, First: e.First, Last: r.lastOf(e),
			May: may, TTL: max(0, e.Until-r.now), At: r.now})
	}
	repeats := again && h != nil && h == r.caller
	if r.heard(may, repeats) || repeats || r.asks {
		r.tell(h, may)
	}
}

// heard notes what sessions learn from this run about how many units they may keep. It reports whether all others must be told:
// some of them believe that they may keep more; or they may keep any number again, because the last session that waited has
// left, or asks for less and has that; or a session that has units is no longer the head.
func (r *run) heard(may int, repeats bool) bool {
	tell := may < r.Told || may < backend.Unlimited && r.lapsed || may == backend.Unlimited && r.left && r.Told < backend.Unlimited
	switch {
	case tell || may == backend.Unlimited:
		r.Told = may
	case repeats || r.asks || len(r.news) > 0 || r.caller != nil && r.caller.Units > 0:
		r.Told = max(r.Told, may)
	}
	return tell
}

// tell sends a message to the holders that have more units than they may keep, or have not answered the head's try, or, when no
// session waits any more, to all. The head and the caller get none. A session in r.news gets a message only about a try,
// because its grant does not name the try. While the head is a try, every message of tell names the try, so that no session
// believes that the head waits.
func (r *run) tell(h *Entry, may int) {
	news := map[*Entry]bool{}
	for _, e := range r.news {
		news[e] = true
	}
	try := h.try()
	for i := range r.Entries {
		e := &r.Entries[i]
		needs := try > 0 && e.Asked == try || !news[e] && (e.Units > may || h == nil)
		if e != h && e != r.caller && e.Units > 0 && needs {
			r.Publish(e.Session, Message{Kind: SharedWanted, Name: r.Name, May: may, Try: try})
		}
	}
}

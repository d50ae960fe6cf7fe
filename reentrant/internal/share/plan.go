package share

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// A demand is the next claim of a session: the units it keeps, those it wants in total, and the least it accepts.
type demand struct {
	keep, want, least int
	probe             bool // ask whether another session still waits
}

func only(units int) demand { return demand{keep: units, want: units} }

// plan decides what to send next. It reports whether to send n.claim now. If not, it returns when to look again, the
// zero time if only an event can change anything. n.mu is held.
func (n *Name) plan(now time.Time) (again time.Time, send bool) {
	for range 4 { // each iteration follows a race with a user who came in between; another user is another event
		st := n.tier.Look()
		d, at := n.next(st, now)
		switch {
		case d == nil && n.claim == nil && st.Once: // no command is sent, so no reply would end the try
			n.tier.EndTries(0)
		case d == nil:
			return n.pending(at, now)
		case n.begin(*d):
			return time.Time{}, true
		}
	}
	return now.Add(time.Millisecond), false
}

// pending is plan when there is no new claim. The present one is repeated when its time comes, unless it only gives
// back units that have expired by now.
func (n *Name) pending(at, now time.Time) (again time.Time, send bool) {
	c := n.claim
	if c == nil {
		return at, false
	}
	if c.want == 0 && now.After(n.giveUp) {
		n.claim, n.owes = nil, false
		return now, false
	}
	return earliest(at, c.again), !now.Before(c.again)
}

// next returns the demand that should replace the present claim, nil if there is none, and when that may change by
// itself.
func (n *Name) next(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	if n.claim != nil {
		return n.overtake(st), time.Time{}
	}
	d, at := n.forHead(st, now)
	if d == nil && at.IsZero() {
		d, at = n.giveBack(st, now)
	}
	switch {
	case d != nil || !n.owes:
		return d, at
	case now.After(n.giveUp):
		n.owes = false
		return nil, at
	case now.Before(n.retryOwed):
		return nil, earliest(at, n.retryOwed)
	}
	owed := only(n.units)
	return &owed, at
}

// ask returns the demand of the head of the local queue while the session keeps keep units, nil if those suffice.
func (n *Name) ask(st sharedqueue.State, keep int) *demand {
	if st.Head == 0 {
		return nil
	}
	want := st.Head
	if n.kind == backend.Permits {
		want = max(n.units, st.Head, min(st.Want, n.limit))
	}
	if want <= keep {
		return nil
	}
	return &demand{keep: keep, want: want, least: st.Head}
}

// asking returns ask's demand or, if there is none, the demand for the kept units alone.
func (n *Name) asking(st sharedqueue.State, keep int) *demand {
	if d := n.ask(st, keep); d != nil {
		return d
	}
	d := only(keep)
	return &d
}

// floor returns how many units the session keeps when another session waits.
func (n *Name) floor(st sharedqueue.State) int {
	if n.kind == backend.ReadWrite {
		return st.InUse
	}
	return max(st.InUse, min(n.units, n.may))
}

// overtake returns the demand that replaces the claim under way, nil if the claim stays.
func (n *Name) overtake(st sharedqueue.State) *demand {
	c := n.claim
	if !c.asks() && (c.tries == 0 || st.Head == 0) {
		return nil // units are given back before more are asked for, unless the server does not reply
	}
	keep := min(c.keep, n.units)
	if n.asked {
		keep = min(keep, n.floor(st))
	}
	if st.Head == 0 || keep < c.keep { // all local waiters have left, or another session waits
		return n.asking(st, keep)
	}
	switch {
	case !c.placed && c.tries == 0 || st.Head == c.least:
	case n.units < st.Head:
		return n.ask(st, min(n.units, c.keep, max(st.InUse, n.idleKeep())))
	case c.asks() && st.Head < c.least: // the waiter that needed this many has left
		return n.asking(st, keep)
	}
	return nil
}

// idleKeep returns how many idle units a session keeps while it waits for more: all permits, but no read unit.
func (n *Name) idleKeep() int {
	if n.kind == backend.Permits {
		return n.units
	}
	return 0
}

// forHead returns the demand of the local queue's head, if it waits, and when to look again.
func (n *Name) forHead(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	if st.Head == 0 {
		return nil, time.Time{}
	}
	if n.asked {
		if d, at, done := n.giveWay(st, now); done {
			return d, at
		}
		if n.units >= st.Head {
			return n.probe(st, now)
		}
	}
	switch {
	case n.units < st.Head:
		return n.ask(st, max(st.InUse, min(n.units, n.idleKeep()))), time.Time{}
	case n.kind == backend.ReadWrite:
		if st.Spent && st.InUse == 0 && st.Head == backend.AllUnits {
			return &demand{keep: 0, want: backend.AllUnits, least: backend.AllUnits}, time.Time{}
		}
	case st.InUse+st.Head > n.units:
		d := n.ask(st, n.units)
		if d == nil || st.Once || !now.Before(n.topUp) {
			return d, time.Time{}
		}
		return nil, n.topUp
	}
	return nil, time.Time{}
}

// probe asks whether the other session, for which the head is held back, still waits: at once if the head makes only
// one attempt, otherwise once per heartbeat.
func (n *Name) probe(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	if n.kind == backend.ReadWrite && n.units != 1 {
		return nil, time.Time{} // an owner of this session writes
	}
	if !st.Once && now.Before(n.topUp) {
		return nil, n.topUp
	}
	d := n.asking(st, n.units)
	d.probe = true
	return d, time.Time{}
}

// giveWay returns the demand with which a session gives units back to a waiting one. done is false if there are no
// units to give back, now or later.
func (n *Name) giveWay(st sharedqueue.State, now time.Time) (d *demand, at time.Time, done bool) {
	floor := n.floor(st)
	if floor >= n.units {
		return nil, time.Time{}, false
	}
	if n.inTurn(st) && now.Before(n.turnEnd) {
		return nil, n.turnEnd, true
	}
	return n.asking(st, floor), time.Time{}, true
}

// inTurn reports whether the session's turn goes on although another session waits: with a writer inside while another
// of its writers waits, with permits in use while any of its users waits.
func (n *Name) inTurn(st sharedqueue.State) bool {
	if st.TurnOver || st.Head == 0 {
		return false
	}
	if n.kind == backend.Permits {
		return st.InUse > 0
	}
	return n.units == backend.AllUnits && st.InUse > 0 && st.Writers > 0
}

// giveBack returns the demand that gives back units which no user needs.
func (n *Name) giveBack(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	if n.asked {
		if d, at, done := n.giveWay(st, now); done {
			return d, at
		}
	}
	if most := max(st.InUse, n.limit); n.units > most { // the limit was lowered
		d := only(most)
		return &d, time.Time{}
	}
	switch {
	case n.units == 0 || st.InUse > 0 && n.units != 1 || st.Head > 0:
		return nil, time.Time{}
	case n.kind == backend.Permits || n.units > 1 || n.closing:
		if st.InUse > 0 {
			return nil, time.Time{}
		}
		d := only(0)
		return &d, time.Time{}
	case n.rest.IsZero() || !now.Before(n.rest):
		if !n.rest.IsZero() && n.tier.Rest() {
			n.rest = time.Time{}
			d := only(0)
			return &d, time.Time{}
		}
		n.tier.Rest()
		n.rest = now.Add(n.room.env.Heartbeat)
	}
	return nil, n.rest
}

// begin makes d the claim under way. Units that are not kept are out of use before the claim is sent. It returns false,
// and makes no claim, if users who came in between need the units and no change is left to send.
func (n *Name) begin(d demand) bool {
	had := n.units
	kept, used := n.tier.Keep(min(d.keep, had))
	d.keep = max(d.keep, kept)
	d.want = max(d.want, d.keep)
	if d.want == d.keep {
		d.least = 0
		if kept == had && !n.owes && n.claim == nil && !d.probe {
			return false
		}
	}
	c := &claim{probe: d.probe, keep: d.keep, want: d.want, least: d.least, limit: max(n.limit, d.least), under: n.under, seen: n.room.env.Seen()}
	if n.kind == backend.ReadWrite && had == backend.AllUnits && kept < had {
		c.tail = used
		n.known = max(n.known, used)
	}
	if n.kind == backend.ReadWrite && d.want < backend.AllUnits {
		c.seen = n.known
	}
	n.last = n.room.env.Epoch(n.last)
	c.epoch = n.last
	if c.want > 0 || had > 0 || n.claim != nil || !n.owes { // else it gives back the same again, and prolongs nothing
		n.oweLocked()
	}
	n.claim = c
	n.haveLocked(kept)
	return true
}

// earliest returns the earlier of two times. The zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

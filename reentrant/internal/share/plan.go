package share

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// A demand is what the session is to say: what it keeps, what it wants in total, and the least that it is content with.
type demand struct {
	keep, want, least int
	hears             bool // the answer says whether another session still waits
}

func only(units int) demand { return demand{keep: units, want: units} }

// plan decides what is said next. It reports whether n.claim is to be sent now, and otherwise when to look again; the zero
// time if only an event can change anything. n.mu is held.
func (n *Name) plan(now time.Time) (again time.Time, send bool) {
	for range 4 { // each turn follows a race with a user who came in between; the next event tells of more
		st := n.tier.Look()
		d, at := n.next(st, now)
		switch {
		case d == nil && n.claim == nil && st.Once: // the server is not asked now, so no answer would end the try
			n.tier.EndTries(0)
		case d == nil:
			return n.pending(at, now)
		case n.begin(*d):
			return time.Time{}, true
		}
	}
	return now.Add(time.Millisecond), false
}

// pending is plan when there is nothing new to say: the claim is repeated at its time, unless it gives back what has expired
// by now.
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

// next is what the session should say that it has not said, nil if nothing; and when that may change by itself.
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
	case now.Before(n.hush):
		return nil, earliest(at, n.hush)
	}
	owed := only(n.units)
	return &owed, at
}

// ask is what the head of the local queue makes the session want, with so many units kept.
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

// asking is ask, or that the session wants no more than it keeps.
func (n *Name) asking(st sharedqueue.State, keep int) *demand {
	if d := n.ask(st, keep); d != nil {
		return d
	}
	d := only(keep)
	return &d
}

// floor is what the session keeps when it has been asked.
func (n *Name) floor(st sharedqueue.State) int {
	if n.kind == backend.ReadWrite {
		return st.InUse
	}
	return max(st.InUse, min(n.units, n.may))
}

// overtake is what takes the place of a claim that waits at the server.
func (n *Name) overtake(st sharedqueue.State) *demand {
	c := n.claim
	if !c.asks() && (c.tries == 0 || st.Head == 0) {
		return nil // what goes back does so first, unless the server is silent
	}
	keep := min(c.keep, n.units)
	if n.asked {
		keep = min(keep, n.floor(st))
	}
	if st.Head == 0 || keep < c.keep { // all who waited have left, or another session waits
		return n.asking(st, keep)
	}
	switch {
	case !c.placed && c.tries == 0 || st.Head == c.least:
	case n.units < st.Head:
		return n.ask(st, min(n.units, c.keep, max(st.InUse, n.idleKeep())))
	case c.asks() && st.Head < c.least: // whoever needed so much has left
		return n.asking(st, keep)
	}
	return nil
}

// idleKeep is how many idle units a session keeps while it waits for more: a semaphore's user all, a reader none.
func (n *Name) idleKeep() int {
	if n.kind == backend.Permits {
		return n.units
	}
	return 0
}

// forHead is what is asked for when the local queue has a head that has not been let in.
func (n *Name) forHead(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	if st.Head == 0 {
		return nil, time.Time{}
	}
	if n.asked {
		if d, at, done := n.giveWay(st, now); done {
			return d, at
		}
		if n.units >= st.Head {
			return n.hear(st, now)
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

// hear asks whether another session still waits, for whose sake the head is not let in: at once if the head makes one
// attempt only, and otherwise once in a heartbeat.
func (n *Name) hear(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	if n.kind == backend.ReadWrite && n.units != 1 {
		return nil, time.Time{} // an owner of this session writes
	}
	if !st.Once && now.Before(n.topUp) {
		return nil, n.topUp
	}
	d := n.asking(st, n.units)
	d.hears = true
	return d, time.Time{}
}

// giveWay is what a session gives back that was asked for it, and false if there is nothing to be given back or waited for.
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

// inTurn reports whether a session that was asked goes on for now: a writer's while another writer waits in it, a
// semaphore's while any user does.
func (n *Name) inTurn(st sharedqueue.State) bool {
	if st.TurnOver || st.Head == 0 {
		return false
	}
	if n.kind == backend.Permits {
		return st.InUse > 0
	}
	return n.units == backend.AllUnits && st.InUse > 0 && st.Writers > 0
}

// giveBack is what goes back because no user needs it.
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

// begin makes a demand the claim under way. What is not kept is out of use before it is said. It is false if users who came
// in between need what was to be given back, and nothing is left to be said.
func (n *Name) begin(d demand) bool {
	had := n.units
	kept, used := n.tier.Keep(min(d.keep, had))
	d.keep = max(d.keep, kept)
	d.want = max(d.want, d.keep)
	if d.want == d.keep {
		d.least = 0
		if kept == had && !n.owes && n.claim == nil && !d.hears {
			return false
		}
	}
	c := &claim{hears: d.hears, keep: d.keep, want: d.want, least: d.least, limit: max(n.limit, d.least), under: n.under, seen: n.room.env.Seen()}
	if n.kind == backend.ReadWrite && had == backend.AllUnits && kept < had {
		c.tail = used
		n.known = max(n.known, used)
	}
	if n.kind == backend.ReadWrite && d.want < backend.AllUnits {
		c.seen = n.known
	}
	n.last = n.room.env.Epoch(n.last)
	c.epoch = n.last
	n.claim = c
	n.haveLocked(kept)
	n.oweLocked()
	return true
}

// earliest is the earlier of two times, of which the zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

package share

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// A demand is the next claim of a session: the units it keeps, those it wants in total, and the least it accepts.
type demand struct {
	keep, want, least int
	limit             int
	try               bool   // for one attempt
	probe             bool   // ask whether another session still waits, or say that the units are in use
	answer            uint64 // the try that asked
}

func only(units int) *demand { return &demand{keep: units, want: units} }

// plan decides what to send next. It reports whether to send n.claim now. If not, it returns when to look again, the
// zero time if only an event can change anything. n.mu is held.
func (n *Name) plan(now time.Time) (again time.Time, send bool) {
	if c := n.claim; c != nil && c.try && c.placed && !now.Before(c.end) { // not all have answered
		n.tier.EndTries(0)
	}
	for range 4 { // each iteration follows a race with a user who came in between; another user is another event
		st := n.tier.Look()
		if n.limitLocked(st.Limit, now) {
			st = n.tier.Look()
		}
		d, at := n.next(st, now)
		switch {
		case d == nil && n.claim == nil && st.Once: // no command is sent, so no reply would end the try
			n.tier.EndTries(0)
		case d == nil:
			return n.pending(at, now)
		case n.begin(*d, st.Limit):
			return time.Time{}, true
		}
	}
	return now.Add(time.Millisecond), false
}

// limitLocked handles a lowered limit. All sessions together may have more units than that, and only a grant proves that
// they do not. Until then no unit is passed on: what falls free goes back. It reports whether that begins.
func (n *Name) limitLocked(limit int, now time.Time) (begins bool) {
	n.lowered = n.units > 0 && limit <= n.limit && (n.lowered || limit < n.limit)
	n.limit = limit
	if begins = n.lowered && !n.asked; begins {
		n.asked, n.may, n.turnEnd = true, 0, now
		n.tier.Ask(0, 0, 0)
	}
	return begins
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
	if n.answer > 0 && n.units > 0 {
		keep := st.InUse
		if n.kind == backend.ReadWrite && n.inTurn(st) { // a writer waits for readers of this session alone
			keep = n.units
		}
		return &demand{keep: keep, want: keep, probe: true, answer: n.answer}, time.Time{}
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
	return only(n.units), at
}

// ask returns the demand of the head of the local queue while the session keeps keep units, nil if those suffice, or if
// only a user of this session can give the head what it needs.
func (n *Name) ask(st sharedqueue.State, keep int) *demand {
	d := demand{keep: keep, want: st.Head, least: st.Head, limit: max(st.Limit, st.Head), try: st.Once}
	if n.kind == backend.Permits {
		d.least = st.InUse + st.Head
		d.want = max(keep, d.least, min(st.Want, d.limit))
	}
	if st.Head == 0 || d.want <= keep || d.least > d.limit {
		return nil
	}
	return &d
}

// asking returns ask's demand or, if there is none, the demand for the kept units alone.
func (n *Name) asking(st sharedqueue.State, keep int) *demand {
	if d := n.ask(st, keep); d != nil {
		return d
	}
	return only(keep)
}

// overtake returns the demand that replaces the claim under way, nil if the claim stays.
func (n *Name) overtake(st sharedqueue.State) *demand {
	c := n.claim
	switch {
	case !c.asks() && (c.tries == 0 || st.Head == 0):
		return nil // units are given back before more are asked for, unless the server does not reply
	case c.placed && n.answer > 0:
		d := n.asking(st, min(c.keep, n.units, st.InUse))
		d.answer = n.answer
		return d
	}
	keep := min(c.keep, n.units)
	if n.asked {
		keep = min(keep, st.InUse)
	}
	if st.Head == 0 || keep < c.keep { // all local waiters have left, or another session waits
		return n.asking(st, keep)
	}
	if !c.placed && c.tries == 0 {
		return nil
	}
	d := n.ask(st, min(keep, max(st.InUse, n.idleKeep())))
	switch {
	case d == nil && c.asks(): // the waiter that needed more has left
		return n.asking(st, keep)
	case d != nil && (d.least != c.least || d.limit != c.limit || d.try != c.try):
		return d
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
		if n.kind == backend.ReadWrite && n.units >= st.Head || st.InUse+st.Head <= n.units {
			return n.probe(st, now)
		}
	}
	switch {
	case n.kind == backend.Permits:
		return n.askForPermits(st, now)
	case n.units < st.Head:
		return n.ask(st, st.InUse), time.Time{}
	case st.Spent && st.InUse == 0 && st.Head == backend.AllUnits:
		return n.ask(st, 0), time.Time{}
	}
	return nil, time.Time{}
}

// askForPermits returns the demand of a semaphore's head. With its share of the permits a session leaves the head to its own
// users at first: most often one of them releases a permit before two turns are over.
func (n *Name) askForPermits(st sharedqueue.State, now time.Time) (*demand, time.Time) {
	d := n.ask(st, n.units)
	if patience := n.patience(st); d != nil && n.units >= n.share && now.Before(patience) {
		return nil, patience
	}
	return d, time.Time{}
}

// patience returns until when a semaphore's head waits for users of its own session.
func (n *Name) patience(st sharedqueue.State) time.Time {
	if st.Once || st.InUse == 0 {
		return time.Time{}
	}
	return n.room.session.Opened.Add(st.Since + 2*n.room.turn)
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

// giveWay returns the demand with which a session gives units back to a waiting one, or when its turn ends. done is false
// if there are no units to give back, now or later.
func (n *Name) giveWay(st sharedqueue.State, now time.Time) (d *demand, at time.Time, done bool) {
	idle := st.InUse < n.units
	switch {
	case (idle || n.kind == backend.Permits) && n.inTurn(st) && now.Before(n.turnEnd):
		return nil, n.turnEnd, true
	case idle && n.kind == backend.Permits && st.InUse >= n.share && now.Before(n.patience(st)):
		return only(st.InUse), time.Time{}, true
	case idle:
		return n.asking(st, st.InUse), time.Time{}, true
	}
	return nil, time.Time{}, false
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
	switch {
	case n.kind == backend.Permits && n.units > max(st.InUse, st.Limit): // the limit was lowered
		return only(max(st.InUse, st.Limit)), time.Time{}
	case n.units == 0 || st.Head > 0 || st.InUse == n.units && n.units > 1:
		return nil, time.Time{}
	case n.kind == backend.Permits && st.InUse > 0:
		return nil, time.Time{}
	case n.kind == backend.Permits || n.units > 1: // of a writer that went on as a reader, one unit is left
		return only(st.InUse), time.Time{}
	case n.closing && st.InUse > 0:
		return nil, time.Time{}
	case n.closing:
		return only(0), time.Time{}
	}
	return n.rested(now)
}

// rested returns the demand that gives back the unit of readers if none came for a heartbeat, and otherwise when to look
// again.
func (n *Name) rested(now time.Time) (*demand, time.Time) {
	if !n.rest.IsZero() && now.Before(n.rest) {
		return nil, n.rest
	}
	if idle := n.tier.Rest(); idle && !n.rest.IsZero() {
		n.rest = time.Time{}
		return only(0), time.Time{}
	}
	n.rest = now.Add(n.room.session.Config.Heartbeat)
	return nil, n.rest
}

// begin makes d the claim under way. Units that are not kept are out of use before the claim is sent. It returns false,
// and makes no claim, if users who came in between need the units and no change is left to send.
func (n *Name) begin(d demand, limit int) bool {
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
	c := &claim{
		probe: d.probe, try: d.try, answer: d.answer,
		keep: d.keep, want: d.want, least: d.least, limit: max(d.limit, limit), under: n.under, seen: backend.Token(n.room.session.SeenToken.Load()),
	}
	if d.answer != 0 || kept == 0 { // a session without units has answered
		n.answer = 0
	}
	if n.kind == backend.ReadWrite && had == backend.AllUnits && kept < had {
		c.tail = used
		n.known = max(n.known, used)
	}
	if n.kind == backend.ReadWrite && d.want < backend.AllUnits {
		c.seen = n.known
	}
	n.last = n.room.session.EpochAbove(n.last)
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

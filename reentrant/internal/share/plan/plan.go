package plan

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// A demand is the next claim of a session: the units it keeps, those it wants in total, and the least it accepts.
type demand struct {
	keep, want, least int
	limit             int
	try               bool   // the head makes one attempt, and does not wait
	probe             bool   // to ask whether another session still waits, or to say that the units are in use
	answer            uint64 // the try of another session that the claim answers; 0: none
}

func only(units int) *demand { return &demand{keep: units, want: units} }

// Next decides what to send next. send reports whether to send a copy of the claim now, with Send and Request. If not, lookAt
// is when to call Next again, the zero time if only an event can change anything.
func (p *Plan) Next(at *Moment) (lookAt time.Time, send bool) {
	p.endBase(at)
	for range 4 { // a user that comes in between makes another iteration necessary; a later one is another event
		st := at.Tier.Look()
		if p.newLimit(st.Limit, at) {
			st = at.Tier.Look()
		}
		d, then := p.next(st, at)
		switch {
		case d == nil && !p.claiming && st.Once: // no command is sent, so no reply would end the try
			at.Tier.EndTries(0)
		case d == nil:
			return p.pending(earliest(then, p.baseEnd(at)), at)
		case p.begin(at, *d, st.Limit):
			return time.Time{}, true
		}
	}
	return at.Now.Add(time.Millisecond), false
}

// newLimit handles a lowered limit. All sessions together may have more units than the new limit, and only a grant proves that
// they do not. Until then no unit is passed on: units that fall free go back to the server. newLimit reports whether this time
// begins now.
func (p *Plan) newLimit(limit int, at *Moment) (begins bool) {
	p.lowered = p.units > 0 && limit <= p.limit && (p.lowered || limit < p.limit)
	p.limit = limit
	if begins = p.lowered && !p.contended; begins {
		p.contended, p.keepAtMost, p.turnEnd, p.base = true, 0, at.Now, false
		at.Tier.Ask(0, 0, 0)
	}
	return begins
}

// pending returns the result of Next when there is no new claim. The present claim is repeated when its time comes, unless it
// only gives back units that have expired by now.
func (p *Plan) pending(then time.Time, at *Moment) (lookAt time.Time, send bool) {
	c := p.current()
	if c == nil {
		return then, false
	}
	if c.want == 0 && at.Now.After(p.giveUp) {
		p.end()
		p.unsettled = false
		return at.Now, false
	}
	return earliest(then, c.resendAt), !at.Now.Before(c.resendAt)
}

// next returns the demand that should replace the present claim, nil if there is none, and when that may change by
// itself.
func (p *Plan) next(st sharedqueue.State, at *Moment) (*demand, time.Time) {
	if p.claiming {
		return p.overtake(st, at), time.Time{}
	}
	if p.answer > 0 && p.units > 0 {
		keep := st.InUse
		if p.kind == backend.ReadWrite && p.inTurn(st) { // a writer in line waits for users of this session alone
			keep = p.units
		}
		return &demand{keep: keep, want: keep, probe: true, answer: p.answer}, time.Time{}
	}
	d, then := p.forHead(st, at)
	if d == nil && then.IsZero() {
		d, then = p.giveBack(st, at)
	}
	switch {
	case d != nil || !p.unsettled:
		return d, then
	case at.Now.After(p.giveUp):
		p.unsettled = false
		return nil, then
	case at.Now.Before(p.retryAt):
		return nil, earliest(then, p.retryAt)
	}
	return only(p.units), then
}

// demandOf returns the demand of the head of the local queue. keep is how many units the session keeps. The demand is nil if
// those suffice, or if only a user of this session can give the head what it needs.
func (p *Plan) demandOf(st sharedqueue.State, keep int) *demand {
	d := demand{keep: keep, want: st.Head, least: st.Head, limit: max(st.Limit, st.Head), try: st.Once}
	if p.kind == backend.Permits {
		d.least = st.InUse + st.Head
		d.want = max(keep, d.least, min(st.Want, d.limit))
	}
	if st.Head == 0 || d.want <= keep || d.least > d.limit {
		return nil
	}
	return &d
}

// demandOrKept returns demandOf's demand or, if there is none, the demand for the kept units alone.
func (p *Plan) demandOrKept(st sharedqueue.State, keep int) *demand {
	if d := p.demandOf(st, keep); d != nil {
		return d
	}
	return only(keep)
}

// overtake returns the demand that replaces the claim under way, nil if the claim stays.
func (p *Plan) overtake(st sharedqueue.State, at *Moment) *demand {
	c := &p.claim
	switch {
	case !c.asks() && (c.tries == 0 || st.Head == 0):
		return nil // units are given back before more are asked for, unless the server does not reply
	case c.placed && p.answer > 0:
		d := p.demandOrKept(st, min(c.keep, p.units, st.InUse))
		d.answer = p.answer
		return d
	}
	keep := min(c.keep, p.units)
	if p.contended {
		keep = min(keep, st.InUse)
	}
	// All local waiters have left, or another session waits, or a try comes after one that had no reply. So the reply that
	// the server would give to another copy of the claim may be out of date.
	if st.Head == 0 || keep < c.keep || c.try && c.tries > 0 {
		return p.demandOrKept(st, keep)
	}
	if !c.placed && c.tries == 0 {
		return nil
	}
	if p.servedMeanwhile(c, st, at) {
		return only(keep)
	}
	d := p.demandOf(st, min(keep, max(st.InUse, p.idleKeep())))
	switch {
	case d == nil && c.asks(): // the waiter that needed more has left
		return p.demandOrKept(st, keep)
	case d != nil && (d.least != c.least || d.limit != c.limit || d.try != c.try):
		return d
	}
	return nil
}

// idleKeep returns how many idle units a session keeps while it waits for more: all permits, but no read unit.
func (p *Plan) idleKeep() int {
	if p.kind == backend.Permits {
		return p.units
	}
	return 0
}

// forHead returns the demand of the local queue's head, if it waits, and when to look again.
func (p *Plan) forHead(st sharedqueue.State, at *Moment) (*demand, time.Time) {
	if st.Head == 0 {
		return nil, time.Time{}
	}
	if p.contended {
		if d, then, done := p.giveWay(st, at); done {
			return d, then
		}
		if p.kind == backend.ReadWrite && p.units >= st.Head || st.InUse+st.Head <= p.units {
			return p.probe(st, at)
		}
	}
	switch {
	case p.kind == backend.Permits:
		return p.askForPermits(st, at)
	case p.units < st.Head:
		return p.demandOf(st, st.InUse), time.Time{}
	case st.Spent && st.InUse == 0 && st.Head == backend.AllUnits:
		return p.demandOf(st, 0), time.Time{}
	}
	return nil, time.Time{}
}

// servedMeanwhile reports, when the placed claim c is to be repeated, whether the head that c was made for is inside with a
// permit of its own session. The next head came later, so it must not take over the place of c, but lines up behind the other
// sessions.
func (p *Plan) servedMeanwhile(c *claim, st sharedqueue.State, at *Moment) bool {
	return p.kind == backend.Permits && c.placed && !c.try && p.units >= p.share &&
		!at.Now.Before(c.resendAt) && at.Now.Before(p.patience(at, st))
}

// askForPermits returns the demand of a semaphore's head. In a session that has its share of the permits, the head at first
// waits for the session's own users, which most often release a permit soon. Even if they always do, the session asks once per
// heartbeat: the server does not report that permits are free, nor that other sessions keep permits which they do not use.
func (p *Plan) askForPermits(st sharedqueue.State, at *Moment) (*demand, time.Time) {
	d, patience := p.demandOf(st, p.units), p.patience(at, st)
	if d == nil || p.units < p.share || !at.Now.Before(patience) {
		return d, time.Time{}
	}
	if p.topUp.IsZero() {
		p.topUp = at.Now.Add(at.Heartbeat)
	}
	if at.Now.Before(p.topUp) {
		return nil, earliest(patience, p.topUp)
	}
	return d, time.Time{}
}

// patience returns until when a semaphore's head waits for users of its own session: for two turns or, if heads lately waited
// longer than one turn for a permit, for twice as long as they waited. A wait of more than longestPace turns does not count: a
// user that keeps its permit for so long is no reason to wait.
func (p *Plan) patience(at *Moment, st sharedqueue.State) time.Time {
	if st.Once || st.InUse == 0 {
		return time.Time{}
	}
	wait := at.Turn
	if st.Pace <= longestPace*at.Turn {
		wait = max(wait, st.Pace)
	}
	return at.Opened.Add(st.Since + 2*wait)
}

// probe asks whether the other session, for which the head is held back, still waits: immediately if the head makes only
// one attempt, otherwise once per heartbeat.
func (p *Plan) probe(st sharedqueue.State, at *Moment) (*demand, time.Time) {
	if p.kind == backend.ReadWrite && p.units != 1 {
		return nil, time.Time{} // an owner of this session writes
	}
	if !st.Once && at.Now.Before(p.topUp) {
		return nil, p.topUp
	}
	d := p.demandOrKept(st, p.units)
	d.probe = true
	return d, time.Time{}
}

// giveWay returns the demand with which a session gives units back to a waiting one, or the time at which its turn ends. done
// is false if there are no units to give back, now or later.
func (p *Plan) giveWay(st sharedqueue.State, at *Moment) (d *demand, then time.Time, done bool) {
	idle := st.InUse < p.units
	switch {
	case (idle || p.kind == backend.Permits) && p.inTurn(st) && at.Now.Before(p.turnEnd):
		return nil, p.turnEnd, true
	case idle && p.kind == backend.Permits && st.InUse >= p.share && at.Now.Before(p.patience(at, st)):
		return only(st.InUse), time.Time{}, true
	case idle:
		return p.demandOrKept(st, st.InUse), time.Time{}, true
	}
	return nil, time.Time{}, false
}

// inTurn reports whether the session's turn goes on although another session waits. The turn of a semaphore goes on while
// permits are in use and a user waits; that of a session with all units of a read-write lock, while a user is inside and a
// writer waits.
func (p *Plan) inTurn(st sharedqueue.State) bool {
	if st.TurnOver || st.Head == 0 {
		return false
	}
	if p.kind == backend.Permits {
		return st.InUse > 0
	}
	return p.units == backend.AllUnits && st.InUse > 0 && st.Writers > 0
}

// giveBack returns the demand that gives back units which no user needs.
func (p *Plan) giveBack(st sharedqueue.State, at *Moment) (*demand, time.Time) {
	if p.contended {
		if d, then, done := p.giveWay(st, at); done {
			return d, then
		}
	}
	switch {
	case p.kind == backend.Permits && p.units > max(st.InUse, st.Limit): // the limit was lowered
		return only(max(st.InUse, st.Limit)), time.Time{}
	case p.units == 0 || st.Head > 0 || st.InUse == p.units && p.units > 1:
		return nil, time.Time{}
	case p.kind == backend.Permits && st.InUse > 0:
		return nil, time.Time{}
	case p.kind == backend.Permits || p.units > 1: // if a writer went on as a reader, one unit is left
		return only(st.InUse), time.Time{}
	case p.closing && st.InUse > 0:
		return nil, time.Time{}
	case p.closing:
		return only(0), time.Time{}
	}
	return p.rested(at)
}

// rested returns the demand that gives back the unit of readers if no reader came for a heartbeat, and otherwise when to look
// again.
func (p *Plan) rested(at *Moment) (*demand, time.Time) {
	if !p.rest.IsZero() && at.Now.Before(p.rest) {
		return nil, p.rest
	}
	if idle := at.Tier.Rest(); idle && !p.rest.IsZero() {
		p.rest = time.Time{}
		return only(0), time.Time{}
	}
	p.rest = at.Now.Add(at.Heartbeat)
	return nil, p.rest
}

// begin makes d the claim under way. The tier gives up the units that are not kept before the claim is sent. begin returns
// false, and makes no claim, if users who came in between need the units and no change is left to send.
func (p *Plan) begin(at *Moment, d demand, limit int) bool {
	had := p.units
	kept, used := at.Tier.Keep(min(d.keep, had))
	d.keep = max(d.keep, kept)
	d.want = max(d.want, d.keep)
	if d.want == d.keep {
		d.least = 0
		if kept == had && !p.unsettled && !p.claiming && !d.probe {
			return false
		}
	}
	c := claim{
		probe: d.probe, try: d.try, answer: d.answer,
		keep: d.keep, want: d.want, least: d.least, limit: max(d.limit, limit), under: p.under, seen: at.Seen(),
	}
	if d.answer != 0 || kept == 0 { // a session without units has answered
		p.answer = 0
	}
	p.answered = max(p.answered, d.answer)
	if p.kind == backend.ReadWrite && had == backend.AllUnits && kept < had {
		c.tail = used
		p.known = max(p.known, used)
	}
	if p.kind == backend.ReadWrite && d.want < backend.AllUnits {
		c.seen = p.known
	}
	p.last = at.EpochAbove(p.last)
	c.epoch = p.last
	if c.want > 0 || had > 0 || p.claiming || !p.unsettled { // otherwise it gives back the same units again, and prolongs nothing
		p.markUnsettled(at)
	}
	p.claim, p.claiming = c, true
	p.have(kept)
	return true
}

// earliest returns the earlier of two times. The zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

package plan

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/lease"
	"github.com/relock-go/relock/sharedqueue"
)

// Send records that a copy of the claim under way is about to be sent. Request returns the copy.
func (p *Plan) Send(at *Moment) {
	p.claim.ahead, p.claim.repeat, p.hint, p.hintWaits = at.Ahead, false, backend.Unlimited, false
}

// Request returns the request for one copy of the claim.
func (p *Plan) Request(at *Moment, notAfter time.Time) backend.ShareRequest {
	c := &p.claim
	req := backend.ShareRequest{
		Kind: p.kind, Epoch: c.epoch, Keep: c.keep, Want: c.want, Least: c.least, Limit: c.limit, Under: c.under, Tail: c.tail,
		Seen: c.seen, Try: c.try, Answer: c.answer, Lease: at.Lease, GrantTTL: at.GrantTTL, Patience: at.Patience, NotAfter: notAfter,
		Memory: notAfter, // copies have the same time limit, so the server refuses all earlier copies by then
	}
	if p.kind == backend.ReadWrite {
		req.Tokens = turnAdmissions + 1
	}
	return req
}

// A Failure says what is known of a copy that failed.
type Failure struct {
	Refused      bool // the server refused, and would refuse another copy
	Unreplicated bool // the server refused after it had carried the copy out, because its replicas lag
	WrongKind    bool // the server refused because the name has another kind at the server
}

// Failed handles the failure of a copy of the claim under way (see Awaits): the server did not reply, or refused.
func (p *Plan) Failed(at *Moment, f Failure) {
	if f.Refused {
		p.refuse(at, f)
		return
	}
	c := &p.claim
	c.resendAt = at.Now.Add(at.Pause(c.tries, at.Heartbeat))
	c.tries++
	at.Tier.FailTries()
	c.hurry()
}

// refuse ends a claim that the server refuses.
func (p *Plan) refuse(at *Moment, f Failure) {
	want := p.claim.want
	p.end()
	if !f.Unreplicated { // if replicas lag, the units go back without a pause, since others wait for them
		p.retryAt = at.Now.Add(at.Heartbeat)
	}
	if want > 0 {
		p.markUnsettled(at) // earlier copies may have prolonged a lease or a place
	}
	if p.units == 0 && f.WrongKind {
		p.unsettled = false // this session has nothing under a name of another kind
	}
	at.Tier.Expel()
}

// Awaits reports whether the claim under way has the given epoch. Replies to copies of an earlier one are ignored.
func (p *Plan) Awaits(epoch uint64) bool { return p.claiming && p.claim.epoch == epoch }

// hurry makes the next copy due immediately if another copy was requested (see Repeat) since the latest one was sent.
func (c *claim) hurry() {
	if c.repeat {
		c.resendAt = time.Time{}
	}
}

// Replied handles the reply to a copy of the claim under way (see Awaits). sent is when the copy was sent, and ahead is how far
// the wall clock was ahead then.
func (p *Plan) Replied(at *Moment, r *backend.ShareReply, sent time.Time, ahead time.Duration) (s Step) {
	s.Notify = p.replied(at, &p.claim, r, lease.New(sent, ahead, at.Lease, false))
	p.claim.hurry()
	return s
}

// replied does the work of Replied. c is the claim under way, and t the lease of the units in the reply.
func (p *Plan) replied(at *Moment, c *claim, r *backend.ShareReply, t lease.Lease) (notify func()) {
	p.share, c.tries = r.Share, 0
	switch {
	case r.Status == backend.StaleShare: // the server ignored this claim
		p.last = max(p.last, r.Epoch)
		p.end()
		return nil
	case r.Status == backend.ShareLost:
		epoch := c.epoch
		notify = p.lose(at, "the server no longer had it")
		p.end()
		p.unsettled, p.epoch = false, epoch
		return notify
	case r.Placed:
		return p.placed(at, c, r, t)
	case r.Units > 0 && (!t.Trusted(at.Now) || lease.Napped(c.ahead, at.Ahead)): // the reply came too late to be trusted
		c.resendAt = at.Now
		return nil
	case c.asks() && r.Units < c.least && r.Units >= c.keep && c.keep > 0: // refused, or the place or the grant has expired
		was := *c
		notify = p.confirm(at, c, r, t)
		p.end()
		p.epoch = was.epoch
		p.refused(at, &was)
		return notify
	}
	notify = p.finishClaim(at, *c, grant{r.Units, r.First, r.Last, min(r.May, p.hint), waits(r), r.Try > 0}, t)
	p.tried(r.Try)
	return notify
}

// waits reports whether a reply says that another session waits for units that this one has.
func waits(r *backend.ShareReply) bool { return r.May < r.Units && r.Try == 0 }

// tried makes the session answer the try that a reply names, because the message about that try may have been lost.
func (p *Plan) tried(try uint64) {
	if p.units > 0 && try > p.answered {
		p.answer = try
	}
}

// placed handles the reply that the claim waits at the server.
func (p *Plan) placed(at *Moment, c *claim, r *backend.ShareReply, t lease.Lease) (notify func()) {
	c.placed = true
	c.resendAt = p.beat(at, c, r)
	if c.try {
		p.placedTry(at, c, t)
	} else {
		at.Tier.EndTries(c.least)
	}
	notify = p.confirm(at, c, r, t)
	p.limitKept(at, r)
	if !c.try {
		at.Tier.NotePlaced()
	}
	return notify
}

// placedTry handles the reply that a try is not decided yet: the server has asked the other sessions for their unused units,
// and not all of them have answered. The message that grants the try can be lost. So another copy is sent after a heartbeat,
// and the reply to that copy ends the try.
func (p *Plan) placedTry(at *Moment, c *claim, t lease.Lease) {
	if c.end.IsZero() {
		c.end = t.Sent.Add(at.Heartbeat)
	}
	if c.resendAt = c.end; !at.Now.Before(c.end) {
		at.Tier.EndTries(0)
	}
}

// limitKept handles how many units the session may keep while it waits: all of them if its place is at the head of the queue,
// unless a message that has overtaken the reply says otherwise.
func (p *Plan) limitKept(at *Moment, r *backend.ShareReply) {
	switch keepAtMost := min(r.May, p.hint); {
	case keepAtMost == backend.Unlimited:
		p.unask(at)
	case keepAtMost < p.units:
		p.contend(at, keepAtMost)
		if waits(r) {
			p.noteWaiter(at)
		}
	}
	p.tried(r.Try)
}

// refused ends the try of users whose claim c was not granted by the server.
func (p *Plan) refused(at *Moment, c *claim) {
	if c.try {
		at.Tier.EndTries(0)
	}
}

// beat returns when to repeat a waiting claim: at the next heartbeat, with jitter, and early enough to renew the units that the
// claim keeps. The head of a semaphore's queue repeats its claim once when backend.ShareGrace is over.
func (p *Plan) beat(at *Moment, c *claim, r *backend.ShareReply) time.Time {
	wait := at.Heartbeat
	if c.keep > 0 {
		wait = min(wait, at.Lease/3)
	}
	if p.kind == backend.Permits && r.May == backend.Unlimited && !c.pressed {
		c.pressed = true
		return at.Now.Add(min(wait, backend.ShareGrace+time.Millisecond))
	}
	return at.Now.Add(wait - at.Jitter(wait/8))
}

// confirm handles the units in a reply that grants nothing: the server still has those that the claim keeps, or
// has lost them.
func (p *Plan) confirm(at *Moment, c *claim, r *backend.ShareReply, t lease.Lease) (notify func()) {
	switch {
	case c.keep == 0:
	case r.Units < c.keep:
		return p.lose(at, "the server no longer had it")
	case p.units > 0:
		p.epoch = c.epoch
		p.extend(at, t)
	}
	return nil
}

// A grant is the units that end a claim, from a reply or a push.
type grant struct {
	units       int
	first, last backend.Token
	keepAtMost  int
	waits       bool // a reply said that another session waits; false for a push
	tries       bool // a reply said that the other session only tries; false for a push
}

// tier returns g as the terms of the local tier: a writer gets its block of tokens, readers the last token that a writer
// used.
func (g grant) tier(until time.Duration) sharedqueue.Terms {
	t := sharedqueue.Terms{Units: g.units, Until: until}
	if g.units == sharedqueue.All {
		t.First, t.Last = uint64(g.first), uint64(g.last)
	} else {
		t.Token = uint64(g.first)
	}
	return t
}

// finishClaim ends the claim c: the session has g.units. The users that wait are admitted before the session starts to turn
// newcomers away for another session. A grant does not restore trust that has ended, because the place can have outlived the
// units that the session keeps; then another session can have had them in between.
func (p *Plan) finishClaim(at *Moment, c claim, g grant, t lease.Lease) (notify func()) {
	switch {
	case g.units < c.keep:
		return p.lose(at, "the server no longer had it")
	case p.lapsed(at):
		return p.lose(at, notRenewed)
	}
	p.end()
	p.epoch, p.unsettled = c.epoch, false
	if p.contended && g.units == p.units && g.keepAtMost < g.units && (c.probe || p.kind == backend.Permits && g.units == c.keep) {
		p.stillContended(at, &g, t)
		return nil
	}
	p.contended, p.topUp = false, time.Time{}
	p.lowered = p.lowered && (g.units == c.keep || c.limit > p.limit)
	p.have(g.units)
	if g.units > 0 {
		if c.keep == 0 {
			p.under = g.first
		}
		p.admit(at, g, t)
	}
	granted := c.asks() && g.units >= c.least
	if g.keepAtMost < p.units {
		p.contend(at, g.keepAtMost)
		if g.waits || p.hintWaits || !g.tries && granted && g.keepAtMost < p.hint { // otherwise the other session may only try
			p.noteWaiter(at)
		}
	}
	if !granted { // ends only a try that the claim was for: for a try that came in since, there will be another claim
		p.refused(at, &c)
	}
	return nil
}

// stillContended handles a reply that says another session still waits. It admits no user and starts no new turn.
func (p *Plan) stillContended(at *Moment, g *grant, t lease.Lease) {
	p.topUp = at.Now.Add(at.Heartbeat)
	p.extend(at, t)
	p.contend(at, g.keepAtMost)
	if g.waits {
		p.noteWaiter(at)
	}
	at.Tier.EndTries(0)
}

// admit hands the granted units to the users who wait.
func (p *Plan) admit(at *Moment, g grant, t lease.Lease) {
	p.trust = t
	at.Saw(g.last)
	if g.units < backend.AllUnits {
		g.first = max(g.first, p.known) // the server can have forgotten a write
	}
	p.known, p.block = max(p.known, g.first), g.last
	at.Tier.Settle(g.tier(t.Until().Sub(at.Opened)))
}

// Pushed handles a grant that the server pushed. If the claim keeps units, the reply to another copy of the claim has to
// confirm the grant: if the session believed a forged grant, its users would soon lose all units, also those that they really
// have.
func (p *Plan) Pushed(at *Moment, g *backend.ShareGrant) (s Step) {
	switch c := &p.claim; {
	case !p.Awaits(g.Epoch) || !c.asks():
	case c.try && g.Units < c.least && (!c.placed || g.Units != c.keep): // refused, but the reply has not come yet
		c.resendAt, c.repeat = time.Time{}, true
		s.Look = true
	case c.try && g.Units < c.least: // the others use what they have
		was := *c
		p.end()
		p.epoch, p.unsettled = was.epoch, false
		p.refused(at, &was)
		s.Look = true
	default:
		t := lease.Pushed(g.NotBefore, c.ahead, g.TTL)
		if c.keep > 0 || g.NotBefore.IsZero() || lease.Napped(c.ahead, at.Ahead) || t.Remaining(at.Now) < g.TTL/2 ||
			!check.ShareGrant(p.kind, g, c.least, c.want, at.GrantTTL) {
			c.resendAt, c.repeat = time.Time{}, true // another copy confirms the grant, also if the reply to an earlier copy is on its way
		} else {
			s.Notify = p.finishClaim(at, *c, grant{g.Units, g.First, g.Last, min(g.May, p.hint), false, false}, t)
		}
		s.Look = true
	}
	return s
}

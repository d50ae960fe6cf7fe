package share

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
	"github.com/relock-go/relock/sharedqueue"
)

// exchange sends one copy of the claim and handles the reply.
func (n *Name) exchange() {
	s := n.room.session
	sent, ahead := time.Now(), s.Ahead()
	n.mu.Lock()
	if n.claim == nil {
		n.mu.Unlock()
		return
	}
	n.claim.ahead, n.claim.repeat, n.hint = ahead, false, backend.Unlimited
	req := n.requestLocked(sent.Add(s.Config.CommandTimeout))
	waiter := n.claim.waiter()
	n.mu.Unlock()

	s.Counts.Commands.Add(1)
	ctx, cancel := context.WithDeadline(n.room.quit, req.NotAfter)
	reply, err := n.sharer.Share(ctx, req)
	cancel()
	if err == nil {
		err = check.Share(&req, &reply)
	}
	err = core.WrapUnavailable(context.Background(), err)

	n.mu.Lock()
	notify := func() {}
	if c := n.claim; c != nil && c.epoch == req.Epoch {
		if err != nil {
			n.failedLocked(c, err)
		} else {
			notify = n.repliedLocked(c, &reply, lease.New(sent, ahead, s.Config.Lease, false))
		}
		if c.repeat {
			c.again = time.Time{}
		}
	}
	n.mu.Unlock()
	notify()
	if _, waiting := n.tier.Usage(); waiting == 0 {
		waiter = core.NoWaiter // those that only tried have their error
	}
	s.NoteServed(n.name, err, waiter)
}

// requestLocked returns the request for one copy of the claim.
func (n *Name) requestLocked(notAfter time.Time) backend.ShareRequest {
	s, c := n.room.session, n.claim
	req := backend.ShareRequest{
		Kind: n.kind, Epoch: c.epoch, Keep: c.keep, Want: c.want, Least: c.least, Limit: c.limit, Under: c.under, Tail: c.tail,
		Seen: c.seen, Try: c.try, Answer: c.answer, Lease: s.Config.Lease, GrantTTL: s.Config.GrantTTL, Patience: s.Config.Patience, NotAfter: notAfter,
		Memory: notAfter, // copies have one time limit, so each is refused later than those before
	}
	if n.kind == backend.ReadWrite {
		req.Tokens = passes + 1
	}
	return req
}

// failedLocked handles the failure of a copy of the claim: the server did not reply, or refused.
func (n *Name) failedLocked(c *claim, err error) {
	if backend.OutcomeUnknown(n.err) && !backend.OutcomeUnknown(err) {
		err = backend.WithOutcomeUnknown(err) // a copy before it may have been carried out
	}
	n.err = err
	if backend.Refused(err) {
		n.claim, n.reason = nil, err
		if !errors.Is(err, backend.ErrNotReplicated) { // then the server has carried it out, and others wait for what it gave
			n.retryOwed = time.Now().Add(n.room.session.Config.Heartbeat)
		}
		if c.want > 0 {
			n.oweLocked() // earlier copies may have prolonged a lease or a place
		}
		if n.units == 0 && errors.Is(err, backend.ErrWrongKind) {
			n.owes = false // the name has another kind at the server, so this session has no units of it
		}
		n.tier.Expel()
		return
	}
	c.again = time.Now().Add(core.RetryPause(c.tries, n.room.session.Config.Heartbeat))
	c.tries++
	n.tier.EndTries(0)
}

// repliedLocked handles the reply to a copy of the claim. t is the lease of the units in the reply.
func (n *Name) repliedLocked(c *claim, r *backend.ShareReply, t lease.Lease) (notify func()) {
	notify = func() {}
	now, s := time.Now(), n.room.session
	n.err, n.lastReply, n.share, c.tries = nil, now, r.Share, 0
	switch {
	case r.Status == backend.StaleShare: // the server ignored this claim
		n.last = max(n.last, r.Epoch)
		n.claim = nil
		return notify
	case r.Status == backend.ShareLost:
		notify = n.loseLocked("the server no longer had it")
		n.claim, n.owes, n.epoch = nil, false, c.epoch
		return notify
	case r.Placed:
		c.placed = true
		c.again = n.beat(now, c, r)
		if c.try { // it ends by then
			c.end = t.Sent.Add(s.Config.Heartbeat)
			c.again = c.end
		} else {
			n.tier.EndTries(c.least)
		}
		notify = n.confirmLocked(c, r, t)
		n.mayLocked(r.May)
		return notify
	case r.Units > 0 && (!t.Trusted(now) || lease.Napped(c.ahead, s.Ahead())): // the reply came too late to be trusted
		c.again = now
		return notify
	case c.asks() && r.Units < c.least && r.Units >= c.keep && c.keep > 0: // refused, or the place or the grant has expired
		notify = n.confirmLocked(c, r, t)
		n.claim, n.epoch = nil, c.epoch
		n.refusedLocked(c)
		return notify
	}
	return n.settleLocked(c, terms{r.Units, r.First, r.Last, min(r.May, n.hint)}, t)
}

// mayLocked handles how many units the session may keep while it waits: with its place at the head of the queue all, unless
// a message has overtaken the reply.
func (n *Name) mayLocked(may int) {
	if may = min(may, n.hint); may == backend.Unlimited {
		n.unaskLocked()
	} else if may < n.units {
		n.askLocked(may)
	}
}

// refusedLocked ends the try that the claim was for, if the server did not grant it.
func (n *Name) refusedLocked(c *claim) {
	if c.try {
		n.tier.EndTries(0)
	}
}

// beat returns when to repeat a waiting claim: at the next heartbeat, with jitter, and early enough to renew the units
// it keeps. The head of a semaphore's queue repeats it once when its grace is over.
func (n *Name) beat(now time.Time, c *claim, r *backend.ShareReply) time.Time {
	s := n.room.session
	wait := s.Config.Heartbeat
	if c.keep > 0 {
		wait = min(wait, s.Config.Lease/3)
	}
	if n.kind == backend.Permits && r.May == backend.Unlimited && !c.pressed {
		c.pressed = true
		return now.Add(min(wait, backend.ShareGrace+time.Millisecond))
	}
	return now.Add(wait - s.Config.Jitter(wait/8))
}

// confirmLocked handles the units in a reply that grants nothing: the server still has those that the claim keeps, or
// has lost them.
func (n *Name) confirmLocked(c *claim, r *backend.ShareReply, t lease.Lease) (notify func()) {
	switch {
	case c.keep == 0:
	case r.Units < c.keep:
		return n.loseLocked("the server no longer had it")
	case n.units > 0:
		n.epoch = c.epoch
		n.trustLocked(t)
	}
	return func() {}
}

// terms are the units that end a claim, from a reply or a push.
type terms struct {
	units       int
	first, last backend.Token
	may         int
}

// tier converts x for the local tier: a writer gets its block of tokens, readers the last token that a writer used.
func (x terms) tier(until time.Duration) sharedqueue.Terms {
	t := sharedqueue.Terms{Units: x.units, Until: until}
	if x.units == sharedqueue.All {
		t.First, t.Last = uint64(x.first), uint64(x.last)
	} else {
		t.Token = uint64(x.first)
	}
	return t
}

// settleLocked ends the claim: the session has x.units. The users who wait are admitted before the session starts to
// turn newcomers away for another session.
func (n *Name) settleLocked(c *claim, x terms, t lease.Lease) (notify func()) {
	notify = func() {}
	now := time.Now()
	if x.units < c.keep || n.units > 0 && !n.trust.Trusted(now) {
		return n.loseLocked("the server no longer had it")
	}
	n.claim, n.epoch, n.owes = nil, c.epoch, false
	if n.asked && x.units == n.units && x.may < x.units && (c.probe || n.kind == backend.Permits && x.units == c.keep) {
		n.stillAskedLocked(x.may, t)
		return notify
	}
	n.asked, n.topUp = false, time.Time{}
	n.lowered = n.lowered && (x.units == c.keep || c.limit > n.limit)
	n.haveLocked(x.units)
	if x.units > 0 {
		if c.keep == 0 {
			n.under = x.first
		}
		n.admitLocked(x, t)
	}
	if x.may < n.units {
		n.askLocked(x.may)
	}
	if c.asks() && x.units >= c.least {
		n.tier.EndTries(c.least)
	} else {
		n.refusedLocked(c)
	}
	return notify
}

// stillAskedLocked handles a reply that says another session still waits. It admits no user and starts no new turn.
func (n *Name) stillAskedLocked(may int, t lease.Lease) {
	n.topUp = time.Now().Add(n.room.session.Config.Heartbeat)
	n.trustLocked(t)
	n.askLocked(may)
	n.tier.EndTries(0)
}

// admitLocked hands the granted units to the users who wait.
func (n *Name) admitLocked(x terms, t lease.Lease) {
	n.trust = t
	until := t.Until().Sub(n.room.session.Opened)
	n.until.Store(int64(until))
	n.room.session.SawToken(x.last)
	if x.units < backend.AllUnits {
		x.first = max(x.first, n.known) // the server can have forgotten a write
	}
	n.known, n.block = max(n.known, x.first), x.last
	n.tier.Settle(x.tier(until))
	n.room.keeper.expect(t.Wake())
}

// pushed handles a grant that the server pushed. A claim that keeps units has it confirmed by a copy: if the message was
// forged, its users would lose what they have with what they do not have.
func (n *Name) pushed(g backend.ShareGrant) {
	n.mu.Lock()
	notify := func() {}
	switch c := n.claim; {
	case c == nil || c.epoch != g.Epoch || !c.asks():
	case c.try && g.Units < c.least && (!c.placed || g.Units != c.keep): // refused, but the reply has not come yet
		c.again, c.repeat = time.Time{}, true
		n.wakeLocked()
	case c.try && g.Units < c.least: // the others use what they have
		n.claim, n.epoch, n.owes = nil, c.epoch, false
		n.refusedLocked(c)
		n.wakeLocked()
	default:
		t := lease.Pushed(g.NotBefore, c.ahead, g.TTL)
		if c.keep > 0 || g.NotBefore.IsZero() || lease.Napped(c.ahead, n.room.session.Ahead()) || time.Until(t.Until()) < g.TTL/2 ||
			!check.ShareGrant(n.kind, &g, c.least, c.want, n.room.session.Config.GrantTTL) {
			c.again, c.repeat = time.Time{}, true // a copy confirms it, also if the reply to an earlier one is on its way
		} else {
			notify = n.settleLocked(c, terms{g.Units, g.First, g.Last, min(g.May, n.hint)}, t)
		}
		n.wakeLocked()
	}
	n.mu.Unlock()
	notify()
}

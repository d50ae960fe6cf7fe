package share

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// exchange sends one copy of the claim and takes in the answer.
func (n *Name) exchange() {
	env := &n.room.env
	sent, ahead := time.Now(), env.Ahead()
	n.mu.Lock()
	if n.claim == nil {
		n.mu.Unlock()
		return
	}
	n.claim.ahead, n.claim.repeat, n.hint = ahead, false, backend.Unlimited
	req := n.requestLocked(sent.Add(env.Command))
	n.mu.Unlock()

	env.Count(1, 0)
	ctx, cancel := context.WithDeadline(n.room.quit, req.NotAfter)
	reply, err := n.sharer.Share(ctx, req)
	cancel()
	if err == nil {
		err = check(&req, &reply)
	}
	err = env.Asked(err)

	n.mu.Lock()
	tell := func() {}
	if c := n.claim; c != nil && c.epoch == req.Epoch {
		if err != nil {
			n.failedLocked(c, err)
		} else {
			tell = n.answeredLocked(c, &reply, lease.New(sent, ahead, env.Lease, false))
		}
		if c.repeat {
			c.again = time.Time{}
		}
	}
	n.mu.Unlock()
	tell()
}

// requestLocked is a copy of the claim.
func (n *Name) requestLocked(notAfter time.Time) backend.ShareRequest {
	env, c := &n.room.env, n.claim
	req := backend.ShareRequest{
		Kind: n.kind, Epoch: c.epoch, Keep: c.keep, Want: c.want, Least: c.least, Limit: c.limit, Under: c.under, Tail: c.tail,
		Seen: c.seen, Lease: env.Lease, GrantTTL: env.GrantTTL, Patience: env.Patience, NotAfter: notAfter,
		Memory: notAfter, // copies have one time limit, so each is refused later than those before
	}
	if n.kind == backend.ReadWrite {
		req.Tokens = env.Passes + 1
	}
	return req
}

// failedLocked takes in that a copy of the claim was not answered, or refused.
func (n *Name) failedLocked(c *claim, err error) {
	if backend.OutcomeUnknown(n.err) && !backend.OutcomeUnknown(err) {
		err = backend.WithOutcomeUnknown(err) // a copy before it may have been carried out
	}
	n.err = err
	if backend.Refused(err) {
		n.claim, n.reason = nil, err
		n.hush = time.Now().Add(n.room.env.Heartbeat)
		if n.units == 0 && errors.Is(err, backend.ErrWrongKind) {
			n.owes = false // the server has nothing of this kind, so nothing of this session's
		}
		n.tier.Expel()
		return
	}
	c.again = time.Now().Add(min(time.Millisecond<<min(c.tries, 10), n.room.env.Heartbeat))
	c.tries++
	n.tier.EndTries(0)
}

// answeredLocked takes in an answer to the claim, which came with so much trust.
func (n *Name) answeredLocked(c *claim, r *backend.ShareReply, t lease.Lease) (tell func()) {
	tell = func() {}
	now := time.Now()
	n.err, n.heard, n.share, c.tries = nil, now, r.Share, 0
	switch {
	case r.Status == backend.StaleShare: // nothing that this claim said counts
		n.last = max(n.last, r.Epoch)
		n.claim = nil
		return tell
	case r.Status == backend.ShareLost:
		tell = n.loseLocked("the server no longer had it")
		n.claim, n.owes, n.epoch = nil, false, c.epoch
		return tell
	case r.Placed:
		c.placed = true
		c.again = n.beat(now, c)
		tell = n.confirmLocked(c, r, t)
		n.tier.EndTries(c.least)
		return tell
	case r.Units > 0 && (!t.Trusted(now) || lease.Napped(c.ahead, n.room.env.Ahead())): // too late to be believed
		c.again = now
		return tell
	case c.asks() && r.Units < c.least && r.Units >= c.keep && c.keep > 0: // the place, or the grant, has lapsed
		tell = n.confirmLocked(c, r, t)
		n.claim, n.epoch = nil, c.epoch
		return tell
	}
	return n.settleLocked(c, terms{r.Units, r.First, r.Last, min(r.May, n.hint)}, t)
}

// beat is when a waiting claim is repeated: at the next heartbeat, with jitter, and in time for what it keeps.
func (n *Name) beat(now time.Time, c *claim) time.Time {
	env := &n.room.env
	wait := env.Heartbeat
	if c.keep > 0 {
		wait = min(wait, env.Lease/3)
	}
	return now.Add(wait - env.Jitter(wait/8))
}

// confirmLocked takes in that the server has what a claim keeps, or has not.
func (n *Name) confirmLocked(c *claim, r *backend.ShareReply, t lease.Lease) (tell func()) {
	switch {
	case c.keep == 0:
	case r.Units < c.keep:
		return n.loseLocked("the server no longer had it")
	case n.units > 0:
		n.trustLocked(t)
	}
	return func() {}
}

// terms are what a settling says.
type terms struct {
	units       int
	first, last backend.Token
	may         int
}

// settleLocked ends the claim: the session has so many units. The batch that waits is let in first, and only then those who
// come are turned away because another session waits.
func (n *Name) settleLocked(c *claim, x terms, t lease.Lease) (tell func()) {
	tell = func() {}
	now := time.Now()
	if x.units < c.keep || n.units > 0 && !n.trust.Trusted(now) {
		return n.loseLocked("the server no longer had it")
	}
	env := &n.room.env
	n.claim, n.epoch, n.owes = nil, c.epoch, false
	if c.hears && n.asked && x.units == n.units && x.may < x.units {
		n.stillAskedLocked(x.may, t)
		return tell
	}
	n.asked, n.topUp = false, time.Time{}
	n.haveLocked(x.units)
	if x.units > 0 {
		if c.keep == 0 {
			n.under = x.first
		}
		n.admitLocked(x, t)
	}
	if x.units < c.want && x.units >= n.share {
		n.topUp = now.Add(env.Heartbeat)
	}
	if x.may < n.units {
		n.askLocked(x.may)
	}
	if c.asks() && x.units >= c.least {
		n.tier.EndTries(c.least)
	}
	return tell
}

// stillAskedLocked takes in that another session still waits: nobody is let in, and there is no other turn.
func (n *Name) stillAskedLocked(may int, t lease.Lease) {
	n.topUp = time.Now().Add(n.room.env.Heartbeat)
	n.trustLocked(t)
	n.askLocked(may)
	n.tier.EndTries(0)
}

// admitLocked hands what was granted to the users who wait.
func (n *Name) admitLocked(x terms, t lease.Lease) {
	n.trust = t
	until := t.Until().Sub(n.room.env.Opened)
	n.until.Store(int64(until))
	n.room.env.Saw(x.last)
	n.known, n.block = max(n.known, x.first), x.last
	n.tier.Settle(x.tier(until))
	n.room.keeper.expect(t.Wake())
}

// pushed takes in a grant.
func (n *Name) pushed(g backend.ShareGrant) {
	n.mu.Lock()
	tell := func() {}
	if c := n.claim; c != nil && c.epoch == g.Epoch && c.asks() {
		t := lease.New(g.NotBefore, c.ahead, g.TTL, false)
		if g.NotBefore.IsZero() || lease.Napped(c.ahead, n.room.env.Ahead()) || !possible(n.kind, g.Units, g.First, g.Last) || time.Until(t.Until()) < g.TTL/2 {
			c.again = time.Time{} // a copy confirms it
		} else {
			if n.trust.Until().After(t.Until()) && c.keep > 0 {
				t = n.trust
			}
			tell = n.settleLocked(c, terms{g.Units, g.First, g.Last, min(g.May, n.hint)}, t)
		}
		n.wakeLocked()
	}
	n.mu.Unlock()
	tell()
}

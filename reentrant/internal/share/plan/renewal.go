package plan

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// Slept shortens the lease if the machine was suspended.
func (p *Plan) Slept(at *Moment) (s Step) {
	if p.units == 0 {
		return s
	}
	t := p.trust.Slept(at.Now, at.Ahead)
	if t.Until().Before(p.trust.Until()) {
		at.Tier.Trust(t.Until().Sub(at.Opened))
		if p.claiming {
			p.claim.resendAt = at.Now
			s.Look = true
		}
	}
	p.trust = t
	return s
}

// Due returns when the lease of the units must be renewed or given up, the zero time without units. renew reports whether to
// renew the lease now: it is due, or it began before the time stale and its last renewal did not fail. While a claim is under
// way, copies of the claim renew the lease, if the server replies to them in time.
func (p *Plan) Due(now, stale time.Time) (at time.Time, renew bool) {
	if p.units == 0 {
		return time.Time{}, false
	}
	early := !p.renewalFailed && p.isSettled() // otherwise the renewal is a retry, or may have to be repeated as one
	return p.trust.Wake(), p.trust.Due(now, early) || !p.renewalFailed && p.trust.Sent.Before(stale)
}

// A Renewed is the reply to a renewal.
type Renewed struct {
	Epoch  uint64
	Had    int  // units that the session had when the renewal was sent
	Failed bool // the server did not reply, or refused
	Gone   bool // the server has no units of the session
	Units  int  // how many units of the session the server has, if not Gone
	Sent   time.Time
	Ahead  time.Duration // how far the wall clock was ahead of the monotonic one when the renewal was sent
}

// Renewed handles the reply to a renewal. While a later claim is under way only a success counts: the server has not
// carried that claim out yet, so the units that the claim keeps are among those renewed. After any other reply the server may
// have carried the claim out, which is not known before the reply to the claim. The server must have found r.Had units, not
// p.units: the session may have been granted more since the renewal was sent.
func (p *Plan) Renewed(at *Moment, r Renewed) (s Step, c lease.Change) {
	switch {
	case p.units == 0 || p.epoch != r.Epoch:
	case r.Failed:
		p.trust, c = p.trust.Retried(at.Now), lease.ChangeBy(p.renewalFailed, true)
		p.renewalFailed = true
	case !p.isSettled() && (r.Gone || r.Units < r.Had):
		p.trust = p.trust.Retried(at.Now)
	case r.Gone || r.Units < r.Had:
		s = p.Lose(at, "the server no longer had it at renewal")
	default:
		c, p.renewalFailed = lease.ChangeBy(p.renewalFailed, false), false
		p.extend(at, lease.New(r.Sent, r.Ahead, at.Lease, false))
	}
	return s, c
}

// Renewal returns the renewal of the units that is to be sent, and how many units the session has.
func (p *Plan) Renewal(remote backend.Remote, length time.Duration) (r backend.Renewal, had int) {
	return backend.Renewal{Remote: remote, Epoch: p.epoch, Under: p.under, Lease: length}, p.units
}

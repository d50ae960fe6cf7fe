package main

import (
	"fmt"
	"time"
)

// A deadline is the time until which relock may let the command run. It is arithmetic on local monotonic times:
//
//	Redis was asked        TERM                 KILL                         Redis may give the lock away
//	│                      │◀───── grace ──────▶│◀─── room ───▶│◀── margin ─▶│
//	│◀──────────────── rest of the lease, by Redis's reply ─────────────────▶│
//
// Redis counts the rest of the lease from its reply, which is later than the request. So the lock is kept at least for
// that rest, counted from before the request. The margin is the library's, for clocks that run at different speeds. The
// room lets the KILL take effect on a busy machine.
type deadline struct {
	lease time.Duration
	grace time.Duration
	until time.Time // no other session has the lock before this time
}

// graceShare limits the grace to a third of the lease. The lock is renewed every third of its lease, so two thirds of a
// healthy lease are left; the second of these is for a renewal that must be repeated.
const graceShare = 3

// newDeadline checks the flags. A nil grace is a fifth of the lease.
func newDeadline(lease time.Duration, grace *time.Duration) (deadline, error) {
	d := deadline{lease: lease, grace: lease / 5}
	if grace != nil {
		d.grace = *grace
	}
	switch {
	case lease < minLease:
		return d, fmt.Errorf("--lease %v: at least %v", lease, minLease)
	case d.grace < 0:
		return d, fmt.Errorf("--grace %v: must not be negative", d.grace)
	case d.grace > lease/graceShare:
		return d, fmt.Errorf("--grace %v does not fit into --lease %v: the command has to be dead before the lease ends; "+
			"a lease of %v would do", d.grace, lease, graceShare*d.grace)
	}
	return d, nil
}

// minLease is long enough for a KILL that comes a moment late.
const minLease = time.Second

// room returns the time between the KILL and the end of the trust.
func (d deadline) room() time.Duration { return d.lease / 20 }

// margin returns the part of a lease that package reentrant does not trust.
func (d deadline) margin() time.Duration { return d.lease/100 + 2*time.Millisecond }

// poll returns the interval between two looks at Redis.
func (d deadline) poll() time.Duration { return d.lease / 10 }

// renewed reports whether a lease with this rest is new, or was renewed in time: the session renews it when a third of it is
// over. A negative rest means that the lease has no end.
func (d deadline) renewed(left time.Duration) bool { return left < 0 || left > d.lease*3/5 }

// confirmed returns the deadline after a request that was sent at asked, to which Redis replied with the rest of the
// lease.
func (d deadline) confirmed(asked time.Time, left time.Duration) deadline {
	if left < 0 { // another program removed the key's TTL
		left = d.lease
	}
	if until := asked.Add(left - d.margin()); until.After(d.until) {
		d.until = until
	}
	return d
}

// term returns when to send TERM to the command unless another reply comes.
func (d deadline) term() time.Time {
	return d.kill().Add(-d.grace)
}

// kill returns when to send KILL.
func (d deadline) kill() time.Time {
	return d.until.Add(-d.room())
}

package main

import (
	"fmt"
	"time"
)

// A deadline is until when this process may let the command run. It is arithmetic over local monotonic times:
//
//	Redis was asked        TERM                  KILL           Redis may give the lock away
//	 │                      │◀────── grace ─────▶│◀─── room ───▶│
//	 │◀──────────────── what Redis said was left of the lease ───────────────▶│
//	                                                            ╰─ margin ────╯
//
// Redis counts the lease from when it answers, which is after it was asked; so the lock is kept at least for what it
// said was left, counted from before the question. The margin is for clocks that run at different speeds and is the
// library's; the room is for the KILL to take effect on a busy machine.
type deadline struct {
	lease time.Duration
	grace time.Duration
	until time.Time // nobody else has the lock before
}

// graceShare is how much of the lease the grace may be at most. The lock is renewed every third of its lease, so a
// healthy one has two thirds left; of these the rest is for a renewal that must be tried again.
const graceShare = 3

// newDeadline checks the flags. A grace of zero or less asks for a fifth of the lease.
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

// minLease leaves room for a KILL that is a moment late.
const minLease = time.Second

// room is left between the KILL and the end.
func (d deadline) room() time.Duration { return d.lease / 20 }

// margin is what package reentrant takes off a lease.
func (d deadline) margin() time.Duration { return d.lease/100 + 2*time.Millisecond }

// poll is how often Redis is asked.
func (d deadline) poll() time.Duration { return d.lease / 10 }

// renewed reports whether so much is left of a lease that was full or has been renewed in time: the session renews it every
// third. A negative time has no end.
func (d deadline) renewed(left time.Duration) bool { return left < 0 || left > d.lease*3/5 }

// confirmed is the deadline after Redis, asked at a moment, said how much was left of the lease.
func (d deadline) confirmed(asked time.Time, left time.Duration) deadline {
	if left < 0 { // somebody made the key stay for ever
		left = d.lease
	}
	if until := asked.Add(left - d.margin()); until.After(d.until) {
		d.until = until
	}
	return d
}

// term is when the command must be told to end, if nothing more is heard.
func (d deadline) term() time.Time {
	return d.kill().Add(-d.grace)
}

// kill is when it must be killed.
func (d deadline) kill() time.Time {
	return d.until.Add(-d.room())
}

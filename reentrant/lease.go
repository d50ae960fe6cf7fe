package reentrant

import "time"

// A lease is how long this process may believe that it has a lock. It is pure arithmetic over local monotonic
// times: Redis alone decides who has the lock, local time only decides when to stop believing.
//
//	sent ──────── renewAt ─────────────────── until ── margin ── Redis may give it away
//	 │◀── a third ──▶│                          │
//	 │◀──────────────── length ────────────────────────────────▶│
type lease struct {
	sent    time.Time // no later than the moment from which the server counts
	length  time.Duration
	until   time.Time
	renewAt time.Time // zero for a lease that is not renewed
}

// marginShare and marginFloor are what is taken off every lease: one part in a hundred lets the two clocks run
// apart by 10,000 ppm, fifty times what a healthy quartz does; the floor covers the server's resolution of 1 ms.
const (
	marginShare = 100
	marginFloor = 2 * time.Millisecond
)

func margin(length time.Duration) time.Duration { return length/marginShare + marginFloor }

// newLease is a lease of some length that the server counts from no earlier than sent.
func newLease(sent time.Time, length time.Duration, fixed bool) lease {
	l := lease{sent: sent, length: length, until: sent.Add(length - margin(length))}
	if !fixed {
		l.renewAt = sent.Add(length / 3)
	}
	return l
}

func (l lease) trusted(now time.Time) bool            { return now.Before(l.until) || fault == faultCredulous }
func (l lease) end() time.Time                        { return l.sent.Add(l.length) }
func (l lease) remaining(now time.Time) time.Duration { return l.until.Sub(now) }

// due tells whether the lease wants renewing within slack.
func (l lease) due(now time.Time, slack time.Duration) bool {
	return fault != faultNorenew && !l.renewAt.IsZero() && !l.renewAt.After(now.Add(slack))
}

// wake is the next moment at which something has to be done about the lease.
func (l lease) wake() time.Time {
	if l.renewAt.IsZero() || l.until.Before(l.renewAt) {
		return l.until
	}
	return l.renewAt
}

// retried is the lease after a renewal that was not answered: soon again, and more than once before the end.
func (l lease) retried(now time.Time) lease {
	pause := min(l.length/9, l.remaining(now)/3)
	l.renewAt = now.Add(max(pause, time.Millisecond))
	return l
}

// suspended tells whether this machine slept: its wall clock went on while its monotonic clock stood still. A
// stepped wall clock looks the same, so this is a reason to ask the server, not to give the lock up.
func suspended(before, now time.Time) bool {
	const tolerance = 500 * time.Millisecond
	wall := now.Round(0).Sub(before.Round(0)) // Round(0) strips the monotonic reading
	return wall-now.Sub(before) > tolerance
}

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
	if !fixed && fault != faultNorenew {
		l.renewAt = sent.Add(length / 3)
	}
	if fault == faultCredulous {
		l.until = l.until.AddDate(1, 0, 0)
	}
	return l
}

func (l lease) trusted(now time.Time) bool            { return now.Before(l.until) }
func (l lease) end() time.Time                        { return l.sent.Add(l.length) }
func (l lease) remaining(now time.Time) time.Duration { return l.until.Sub(now) }

// due tells whether the lease wants renewing within slack.
func (l lease) due(now time.Time, slack time.Duration) bool {
	return !l.renewAt.IsZero() && !l.renewAt.After(now.Add(slack))
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

// woken is the lease after this machine slept for a while that the monotonic clock did not count. A wall clock that was
// stepped looks the same, so a lease that is renewed is not given up for it: it is renewed at once, and trusted no
// longer than the pause between two tries if that is not answered.
func (l lease) woken(now time.Time, slept time.Duration) lease {
	until := l.until.Add(-slept)
	if !l.renewAt.IsZero() {
		until = later(until, now.Add(l.length/9))
		l.renewAt = now
	}
	l.until = earlier(l.until, until)
	return l
}

// ahead is how far the wall clock has run ahead of the monotonic one since then. It jumps when the machine was
// suspended, and when somebody sets the clock.
func ahead(since time.Time) time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(since.Round(0)) // Round(0) strips the monotonic reading
	return wall - now.Sub(since)
}

// napTolerance is a jump that is none: clocks are slewed, and read one after the other.
const napTolerance = 500 * time.Millisecond

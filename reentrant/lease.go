package reentrant

import "time"

// A lease is how long this process may believe that it has a lock. It is pure arithmetic over local monotonic
// times: Redis alone decides who has the lock, local time only decides when to stop believing.
//
//	sent ──────── renew ───────────────────── until ── margin ── Redis may give it away
//	 │◀── a third ──▶│                          │
//	 │◀──────────────── length ────────────────────────────────▶│
type lease struct {
	sent   time.Time // no later than the moment from which the server counts
	length time.Duration
	trust  time.Duration // how long it is believed
	renew  time.Duration // when it is to be renewed; 0: never
	ahead  time.Duration // how far the wall clock was ahead of the monotonic one at first, or when that last mattered
}

// marginShare and marginFloor are what is taken off every lease: one part in a hundred lets the two clocks run
// apart by 10,000 ppm, fifty times what a healthy quartz does; the floor covers the server's resolution of 1 ms.
const (
	marginShare = 100
	marginFloor = 2 * time.Millisecond
)

func margin(length time.Duration) time.Duration { return length/marginShare + marginFloor }

// newLease is a lease of some length that the server counts from no earlier than sent; the wall clock was so far ahead
// then.
func newLease(sent time.Time, ahead, length time.Duration, fixed bool) lease {
	l := lease{sent: sent, length: length, trust: length - margin(length), ahead: ahead}
	if !fixed {
		l.renew = length / 3
	}
	return l
}

func (l lease) until() time.Time                      { return l.sent.Add(l.trust) }
func (l lease) trusted(now time.Time) bool            { return now.Before(l.until()) }
func (l lease) end() time.Time                        { return l.sent.Add(l.length) }
func (l lease) remaining(now time.Time) time.Duration { return l.until().Sub(now) }
func (l lease) fixed() bool                           { return l.renew == 0 }

// due tells whether the lease wants renewing within slack.
func (l lease) due(now time.Time, slack time.Duration) bool {
	return !l.fixed() && now.Sub(l.sent)+slack >= l.renew
}

// wake is the next moment at which something has to be done about the lease.
func (l lease) wake() time.Time {
	if l.fixed() {
		return l.until()
	}
	return l.sent.Add(min(l.renew, l.trust))
}

// left is the lease, given what is left of it in Redis as a command was told that was sent at some moment. The clock by
// which it ends may have been stepped, or be another server's: it may end sooner than it was believed, and is then to be
// renewed at once. It is never believed for longer.
func (l lease) left(sent, now time.Time, ttl time.Duration) lease {
	trust := sent.Sub(l.sent) + ttl - margin(ttl)
	if trust >= l.trust || sent.Before(l.sent) { // in the second case it has been renewed since
		return l
	}
	l.trust, l.length = trust, min(l.length, trust+margin(ttl))
	if !l.fixed() {
		l.renew = max(now.Sub(l.sent), 1)
	}
	return l
}

// retried is the lease after a renewal that was not answered: soon again, and more than once before the end.
func (l lease) retried(now time.Time) lease {
	pause := min(l.length/9, l.remaining(now)/3)
	l.renew = now.Sub(l.sent) + max(pause, time.Millisecond)
	return l
}

// slept is the lease, with what is known of this machine's sleep since it began: a suspended machine's monotonic clock
// stands still, so the wall clock is further ahead. A wall clock that was set back says nothing.
func (l lease) slept(now time.Time, ahead time.Duration) lease {
	nap := ahead - l.ahead
	if napped(l.ahead, ahead) {
		l = l.woken(now, nap)
	}
	if nap < 0 || nap > napTolerance {
		l.ahead = ahead
	}
	return l
}

// woken is the lease after a nap. A wall clock that was stepped looks the same, so a lease that is renewed is not given
// up for it: it is renewed at once, and trusted no longer than the pause between two tries if that is not answered.
func (l lease) woken(now time.Time, nap time.Duration) lease {
	trust := l.trust - nap
	if age := now.Sub(l.sent); !l.fixed() {
		trust = max(trust, age+l.length/9)
		l.renew = max(age, 1)
	}
	l.trust = min(l.trust, trust)
	return l
}

// ahead is how far the wall clock has run ahead of the monotonic one since then. It jumps when the machine was
// suspended, and when somebody sets the clock.
func ahead(since time.Time) time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(since.Round(0)) // Round(0) strips the monotonic reading
	return wall - now.Sub(since)
}

// napped tells whether the machine slept between two moments at which the wall clock was so far ahead.
func napped(before, after time.Duration) bool {
	return after-before > napTolerance
}

// ahead is how far the session's wall clock is ahead.
func (s *session) ahead() time.Duration { return s.config.ahead(s.opened) }

// napTolerance is a jump that is none: clocks are slewed, and read one after the other.
const napTolerance = 500 * time.Millisecond

// Package lease says how long a process may believe that it has a lock, and remembers the holds that it lost.
package lease

import "time"

// A Lease is how long this process may believe that it has a lock. It is pure arithmetic over local monotonic
// times: Redis alone decides who has the lock, local time only decides when to stop believing.
//
//	sent ──────── renew ───────────────────── until ── margin ── Redis may give it away
//	 │◀── a third ──▶│                          │
//	 │◀──────────────── length ────────────────────────────────▶│
type Lease struct {
	Sent   time.Time // no later than the moment from which the server counts
	Length time.Duration
	Trust  time.Duration // how long it is believed
	renew  time.Duration // when it is to be renewed; 0: never
	ahead  time.Duration // how far the wall clock was ahead of the monotonic one at first, or when that last mattered
}

// marginShare and marginFloor are what is taken off every lease: one part in a hundred lets the two clocks run
// apart by 10,000 ppm, fifty times what a healthy quartz does; the floor covers the server's resolution of 1 ms.
const (
	marginShare = 100
	marginFloor = 2 * time.Millisecond
)

// Min keeps the margin a small part of the lease.
const Min = 20 * time.Millisecond

func margin(length time.Duration) time.Duration { return length/marginShare + marginFloor }

// New is a lease of some length that the server counts from no earlier than sent; the wall clock was so far ahead
// then.
func New(sent time.Time, ahead, length time.Duration, fixed bool) Lease {
	l := Lease{Sent: sent, Length: length, Trust: length - margin(length), ahead: ahead}
	if !fixed {
		l.renew = length / 3
	}
	return l
}

// Until is the end of the trust.
func (l Lease) Until() time.Time { return l.Sent.Add(l.Trust) }

// Trusted reports whether the lease is believed at a moment.
func (l Lease) Trusted(now time.Time) bool { return now.Before(l.Until()) }

// End is the moment from which Redis may give the lock away.
func (l Lease) End() time.Time { return l.Sent.Add(l.Length) }

// Remaining is how much trust is left.
func (l Lease) Remaining(now time.Time) time.Duration { return l.Until().Sub(now) }

// Fixed reports whether the lease is never renewed.
func (l Lease) Fixed() bool { return l.renew == 0 }

// Due reports whether the lease wants renewing within slack.
func (l Lease) Due(now time.Time, slack time.Duration) bool {
	return !l.Fixed() && now.Sub(l.Sent)+slack >= l.renew
}

// Wake is the next moment at which something has to be done about the lease.
func (l Lease) Wake() time.Time {
	if l.Fixed() {
		return l.Until()
	}
	return l.Sent.Add(min(l.renew, l.Trust))
}

// Left is the lease, given what is left of it in Redis as a command was told that was sent at some moment. The clock by
// which it ends may have been stepped, or be another server's: it may end sooner than it was believed, and is then to be
// renewed at once. It is never believed for longer.
func (l Lease) Left(sent, now time.Time, ttl time.Duration) Lease {
	trust := sent.Sub(l.Sent) + ttl - margin(ttl)
	if trust >= l.Trust || sent.Before(l.Sent) { // in the second case it has been renewed since
		return l
	}
	l.Trust, l.Length = trust, min(l.Length, trust+margin(ttl))
	if !l.Fixed() {
		l.renew = max(now.Sub(l.Sent), 1)
	}
	return l
}

// Retried is the lease after a renewal that was not answered: soon again, and more than once before the end.
func (l Lease) Retried(now time.Time) Lease {
	pause := min(l.Length/9, l.Remaining(now)/3)
	l.renew = now.Sub(l.Sent) + max(pause, time.Millisecond)
	return l
}

// Slept is the lease, with what is known of this machine's sleep since it began: a suspended machine's monotonic clock
// stands still, so the wall clock is further ahead. A wall clock that was set back says nothing.
func (l Lease) Slept(now time.Time, ahead time.Duration) Lease {
	nap := ahead - l.ahead
	if Napped(l.ahead, ahead) {
		l = l.woken(now, nap)
	}
	if nap < 0 || nap > napTolerance {
		l.ahead = ahead
	}
	return l
}

// woken is the lease after a nap. A wall clock that was stepped looks the same, so a lease that is renewed is not given
// up for it: it is renewed at once, and trusted no longer than the pause between two tries if that is not answered.
func (l Lease) woken(now time.Time, nap time.Duration) Lease {
	trust := l.Trust - nap
	if age := now.Sub(l.Sent); !l.Fixed() {
		trust = max(trust, age+l.Length/9)
		l.renew = max(age, 1)
	}
	l.Trust = min(l.Trust, trust)
	return l
}

// Ahead is how far the wall clock has run ahead of the monotonic one since then. It jumps when the machine was
// suspended, and when its clock is set.
func Ahead(since time.Time) time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(since.Round(0)) // Round(0) strips the monotonic reading
	return wall - now.Sub(since)
}

// Napped reports whether the machine slept between two moments at which the wall clock was so far ahead.
func Napped(before, after time.Duration) bool {
	return after-before > napTolerance
}

// napTolerance is a jump that is none: clocks are slewed, and read one after the other.
const napTolerance = 500 * time.Millisecond

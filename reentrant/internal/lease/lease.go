// Package lease computes how long a process may trust that it has a lock, and records the holds that it lost.
package lease

import "time"

// A Lease is how long this process may trust that it has a lock. It is pure arithmetic on local monotonic times: Redis
// alone decides which session has the lock, and local time only decides when the trust ends.
//
//	sent ──────── renew ───────────────────── until ── margin ── Redis may give it away
//	 │◀── a third ──▶│                          │
//	 │◀──────────────── length ────────────────────────────────▶│
type Lease struct {
	Sent   time.Time // no later than the moment from which the server counts the lease
	Length time.Duration
	Trust  time.Duration // how long it is trusted, from Sent
	renew  time.Duration // when to renew it, from Sent; 0: never
	ahead  time.Duration // how far the wall clock was ahead of the monotonic one at Sent, or at the last jump
}

// marginShare and marginFloor give the margin, the last part of every lease, which is not trusted. One part in a hundred lets
// the clocks of client and server drift apart by 10,000 ppm, fifty times the drift of a healthy quartz. The floor covers the
// server's resolution of 1 ms.
const (
	marginShare = 100
	marginFloor = 2 * time.Millisecond
)

// Min is the shortest lease allowed. It keeps the margin a small part of the lease.
const Min = 20 * time.Millisecond

func margin(length time.Duration) time.Duration { return length/marginShare + marginFloor }

// New returns a lease of the given length. The server counts it from no earlier than sent, when the wall clock was ahead of the
// monotonic one by the given duration. A fixed lease is never renewed.
func New(sent time.Time, ahead, length time.Duration, fixed bool) Lease {
	l := Lease{Sent: sent, Length: length, Trust: length - margin(length), ahead: ahead}
	if !fixed {
		l.renew = length / 3
	}
	return l
}

// Pushed returns the lease of a pushed grant. The server made the grant no earlier than notBefore. The lease is short, so it is
// renewed after a tenth of its length and not after a third: a slow server still has most of the lease to reply. Holds that end
// before then need no renewal.
func Pushed(notBefore time.Time, ahead, length time.Duration) Lease {
	l := New(notBefore, ahead, length, false)
	l.renew = length / 10
	return l
}

// Kept returns the lease of a hold that its session keeps between owners. The lease is short. It is renewed after half of its
// length, if an owner still needs the hold then.
func Kept(sent time.Time, ahead, length time.Duration) Lease {
	l := New(sent, ahead, length, false)
	l.renew = length / 2
	return l
}

// Until returns the end of the trust.
func (l Lease) Until() time.Time { return l.Sent.Add(l.Trust) }

// Trusted reports whether the lease is trusted at the given time.
func (l Lease) Trusted(now time.Time) bool { return now.Sub(l.Sent) < l.Trust }

// End returns the moment from which Redis may give the lock away.
func (l Lease) End() time.Time { return l.Sent.Add(l.Length) }

// Remaining returns how long the lease is still trusted.
func (l Lease) Remaining(now time.Time) time.Duration { return l.Trust - now.Sub(l.Sent) }

// Fixed reports whether the lease is never renewed.
func (l Lease) Fixed() bool { return l.renew == 0 }

// Due reports whether the lease is to be renewed now. If early is true, so that renewals share a batch, the renewal is due
// before its time: by a tenth of the lease's length, or by a third of the time from Sent to the renewal if that is less.
func (l Lease) Due(now time.Time, early bool) bool {
	slack := time.Duration(0)
	if early {
		slack = min(l.Length/10, l.renew/3)
	}
	return !l.Fixed() && now.Sub(l.Sent)+slack >= l.renew
}

// Wake returns the next moment at which the lease must be renewed or given up.
func (l Lease) Wake() time.Time {
	if l.renew == 0 {
		return l.Until()
	}
	return l.Sent.Add(min(l.renew, l.Trust))
}

// Left returns the lease after Redis has replied that ttl is left of it. sent is when the command with this reply was sent. The
// server's clock may have been stepped, or another server may have replied. If the lease ends sooner in Redis than it was
// trusted here, the trust is shortened and the lease is to be renewed at once. The trust is never prolonged.
func (l Lease) Left(sent, now time.Time, ttl time.Duration) Lease {
	trust := sent.Sub(l.Sent) + ttl - margin(ttl)
	if trust >= l.Trust || sent.Before(l.Sent) { // the second condition: the lease was renewed after the command was sent
		return l
	}
	l.Trust, l.Length = trust, min(l.Length, trust+margin(ttl))
	if !l.Fixed() {
		l.renew = max(now.Sub(l.Sent), 1)
	}
	return l
}

// Retried returns the lease after a renewal that failed: the next renewal is soon, and before Until there is time for
// several.
func (l Lease) Retried(now time.Time) Lease {
	pause := min(l.Length/9, l.Remaining(now)/3)
	l.renew = now.Sub(l.Sent) + max(pause, time.Millisecond)
	return l
}

// Slept returns the lease, shortened if this machine was suspended since the lease began. A suspended machine's
// monotonic clock stands still, so the wall clock is further ahead afterwards. A wall clock that was set back proves
// nothing.
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

// woken returns the lease after a nap. A wall clock that was stepped forward looks like a nap, so a lease that is not fixed is
// not given up: it is due for renewal at once, and the nap does not shorten its trust below the pause between two tries.
func (l Lease) woken(now time.Time, nap time.Duration) Lease {
	trust := l.Trust - nap
	if age := now.Sub(l.Sent); !l.Fixed() {
		trust = max(trust, age+l.Length/9)
		l.renew = max(age, 1)
	}
	l.Trust = min(l.Trust, trust)
	return l
}

// Ahead returns how far the wall clock has run ahead of the monotonic one since the given time. The difference jumps when the
// machine is suspended, and when the wall clock is set.
func Ahead(since time.Time) time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(since.Round(0)) // Round(0) strips the monotonic reading
	return wall - now.Sub(since)
}

// Napped reports whether the machine was suspended between two readings of Ahead.
func Napped(before, after time.Duration) bool {
	return after-before > napTolerance
}

// napTolerance is the largest difference that does not count as a nap: clocks are slewed, and are read one after the
// other.
const napTolerance = 500 * time.Millisecond

package machine

import (
	"time"

	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A session without cohorts that lingers keeps a lock with which it has been alone. The head then asks for it as the
// session's, with a block of tokens and a short lease, that of a grant; after an unlock the hold is idle, and the next owner
// inherits it. Of one such epoch:
//
//	sent ─── no copy later ─── renewed, if held ─── idle no longer ─── until ── Redis may give it away
//	 │◀── a third of it ──▶│                          │
//	 │◀───────── half of it ─────────▶│               │
//	 │◀────────────────────── short lease ───────────────────────────────────────▶│
//
// The first renewal is of an owner that needs the lock for longer, and asks for the full lease. It must be the last to set
// the lease in Redis: a copy of the attempt that came after it would shorten what the session trusts. So it is sent when
// copies are refused. One that must be sent sooner, since a clock has jumped, gives the session no more than the short lease
// from then on, which is what such a copy leaves. No renewal ever asks for the short lease, and one that was late would
// shorten the next: an idle hold is not renewed, and one that was renewed is not kept. If this process dies, others wait for
// an idle hold no longer than for a short lease.

// aloneAfter is how often in a row a session must have had the lock with no other waiting before it keeps it. To be wrong costs
// a command and two messages, as much as a hold of the usual kind saves; of two sessions that come at random, one has three
// in a row in one of eight cases. maxWary is how often the number doubles while the session is asked for what it keeps before
// that was worth it.
const aloneAfter, maxWary = 3, 6

// needs returns how often in a row the session must have had the lock now.
func (m *Machine[K]) needs() uint8 { return aloneAfter << m.wary }

// judge notes, when a hold ends that the session kept, or is asked for, whether that was worth it: whether as many owners have
// inherited it as it cost commands.
func (m *Machine[K]) judge(asked bool) {
	switch worth := m.hold.token >= m.hold.first+aloneAfter; {
	case worth && !asked:
		m.wary = 0
	case !worth && asked:
		m.wary = min(m.wary+1, maxWary)
	}
	if m.hold.token == m.hold.first {
		m.run = 0
	}
}

// begins counts the last hold, if it was released and no other session waited, and reports whether the session is to keep
// the lock that the head wants. A head that was handed the lock must be able to let another session go first.
func (m *Machine[K]) begins(h *Head[K], handed bool) (alone bool) {
	if m.prior.Freed {
		m.Retaken()
	}
	return m.run >= m.needs() && (h.Waits || !handed)
}

// together notes that the session is not alone with the lock, or that Redis is too far away to keep it for a short time.
// If the head wants it alone, its next copy is of the usual kind: under a new epoch, so that copies with the short lease
// are refused.
func (m *Machine[K]) together(at *Moment) {
	m.run = 0
	if m.hold.alone {
		m.hold.cohort, m.hold.alone, m.hold.span = false, false, at.Lease
	}
}

// phaseOfNext returns the phase in which the next copy of an attempt is sent: under a new epoch if it was for a hold that the
// session would have kept.
func phaseOfNext(alone bool) Phase {
	if alone {
		return Begun
	}
	return Parked
}

// settled is when no copy of the attempt can set the short lease any more.
func (m *Machine[K]) settled(at *Moment) time.Time { return m.hold.lease.Sent.Add(at.GrantTTL / 3) }

// extended returns the lease of the hold after a renewal.
func (m *Machine[K]) extended(at *Moment, r *Renewed) lease.Lease {
	h := &m.hold
	if h.alone && h.lease.Length < at.Lease && r.Sent.Before(m.settled(at)) {
		return lease.Kept(r.Sent, r.Ahead, at.GrantTTL)
	}
	return lease.New(r.Sent, r.Ahead, h.span, false)
}

// idleUntil returns the session's age until which a hold may be idle that lingers from the given age on. One that the
// session keeps for itself is idle only while the next owner could inherit it.
func (m *Machine[K]) idleUntil(o *Options, age time.Duration) time.Duration {
	idle := o.Linger
	if l := &m.hold.lease; m.hold.alone {
		idle = min(idle, l.Until().Sub(o.Opened)-l.Length/3-age)
	}
	return age + idle
}

// Retaken counts a hold that was left to a release, and that the next owner took over before that: no owner waited for it
// when it was unlocked.
func (m *Machine[K]) Retaken() { m.run = min(m.run+1, m.needs()) }

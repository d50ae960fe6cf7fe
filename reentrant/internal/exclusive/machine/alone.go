package machine

import (
	"time"

	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A session without cohorts, but with the option to linger, keeps a lock alone if no other session has waited for it lately.
// The head then asks for the lock in the session's name, with a block of tokens and a short lease, as long as that of a grant.
// After an unlock the hold is idle, and the next owner inherits it. The times of a hold that is kept alone:
//
//	sent ─── no copy later ─── renewed, if held ─── idle no longer ─── until ── Redis may give it away
//	 │◀── a third of it ──▶│                          │
//	 │◀───────── half of it ─────────▶│               │
//	 │◀────────────────────── short lease ───────────────────────────────────────▶│
//
// The first renewal is for an owner that needs the lock for longer, and asks for the full lease. The renewal must be the last
// command to set the lease in Redis: a copy of the attempt that came later would shorten the lease that the session trusts. So
// the renewal is sent only once Redis refuses such copies. If the renewal must be sent sooner because a clock has jumped, the
// session then trusts no more than a short lease, which is what a late copy would leave; a later renewal gives the hold the
// full lease. No renewal ever asks for the short lease, since a late copy of such a renewal would shorten the next lease: an
// idle hold is not renewed, and a hold that was renewed is not kept. If this process dies, other sessions wait for an idle hold
// no longer than for a short lease.

// aloneAfter is how often in a row a session must have had the lock, with no other session waiting, before it keeps the lock.
// Keeping it in vain costs a command and two messages, about as much as one inherited hold saves; if two sessions come at
// random, a session has the lock three times in a row in one of eight cases. The number that is needed doubles each time that
// another session asks for the lock before keeping it has paid, but at most maxWary times.
const aloneAfter, maxWary = 3, 6

// needs returns how often in a row the session must now have had the lock before it keeps the lock. judge changes the number.
func (m *Machine[K]) needs() uint8 { return aloneAfter << m.wary }

// judge notes whether keeping the hold has paid. It is called when the hold ends, and, with asked set, when another session
// asks for the hold. Keeping it has paid if aloneAfter owners have inherited the hold.
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

// begins reports whether the session is to keep the lock that the head wants. First it counts the last hold, if the hold was
// released while no other session waited. If the head was handed the lock, the session is to keep it only if the head waits,
// since another session may have to go first.
func (m *Machine[K]) begins(h *Head[K], handed bool) (alone bool) {
	if m.prior.Freed {
		m.Retaken()
	}
	return m.run >= m.needs() && (h.Waits || !handed)
}

// together notes that the session is not alone with the lock, or that Redis is too far away for a short lease. If the head
// wanted to keep the lock alone, its next copy is of the usual kind, under a new epoch, so that Redis refuses copies with
// the short lease.
func (m *Machine[K]) together(at *Moment) {
	m.run = 0
	if m.hold.alone {
		m.hold.cohort, m.hold.alone, m.hold.span = false, false, at.Lease
	}
}

// phaseOfNext returns the phase from which the next copy of an attempt is sent: Begun, and so under a new epoch, if the session
// would have kept the lock alone, and otherwise Parked.
func phaseOfNext(alone bool) Phase {
	if alone {
		return Begun
	}
	return Parked
}

// settled returns the time from which no copy of the attempt can set the short lease any more.
func (m *Machine[K]) settled(at *Moment) time.Time { return m.hold.lease.Sent.Add(at.GrantTTL / 3) }

// extended returns the lease of the hold after a renewal.
func (m *Machine[K]) extended(at *Moment, r *Renewed) lease.Lease {
	h := &m.hold
	if h.alone && h.lease.Length < at.Lease && r.Sent.Before(m.settled(at)) {
		return lease.Kept(r.Sent, r.Ahead, at.GrantTTL)
	}
	return lease.New(r.Sent, r.Ahead, h.span, false)
}

// idleUntil returns the age of the session up to which a hold may be idle that becomes idle at the given age. A hold that is
// kept alone may be idle only while enough of its lease is left for the next owner to inherit it.
func (m *Machine[K]) idleUntil(o *Options, age time.Duration) time.Duration {
	idle := o.Linger
	if l := &m.hold.lease; m.hold.alone {
		idle = min(idle, l.Until().Sub(o.Opened)-l.Length/3-age)
	}
	return age + idle
}

// Retaken counts a hold that no owner waited for when it was unlocked. The driver calls Retaken for a hold that the next owner
// took over before a clean-up could release the hold; begins calls Retaken for a hold that was released.
func (m *Machine[K]) Retaken() { m.run = min(m.run+1, m.needs()) }

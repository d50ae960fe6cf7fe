package memory

import (
	"slices"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// An instant is a moment by the server's clock, counted from its start. The clock is the server's alone: sessions
// map their times to it.
type instant = time.Duration

// keep is how long a lock's record outlives its last change and its lease.
const keep = time.Hour

// A lock is what the server keeps for one name. Every method is one verb, executed as a whole.
type lock struct {
	name    string
	hold    hold
	record  record
	queue   []waiter // longest first; some may be dead
	publish func(to string, m pushed)

	conditions map[string]*condition
}

// A hold is the lock's hash: one field at most, and its TTL.
type hold struct {
	session, owner string
	count          int     // 0: nobody has the lock
	expires        instant // the lease; it is still good at that very moment
}

// A record is what the server remembers of a lock beyond its holds.
type record struct {
	first, last reentrant.Token // the block of the last grant
	session     string          // whose attempt was last given the lock,
	epoch       uint64          // and which
	op          uint64          // the last re-entry within that epoch
	pushed      bool            // given to a waiter who has perhaps not accepted it yet
	tombs       []tombstone
	keep        time.Duration
	expires     instant
}

// A tombstone refuses a session's attempts up to an epoch until a moment: copies of them may still be under way.
type tombstone struct {
	session string
	epoch   uint64
	until   instant
}

// A waiter is a session's place in the queue, with the attempt that it is for.
type waiter struct {
	session, owner string
	epoch          uint64
	deadline       instant // it is dead after that
	ttl            time.Duration
	holds, tokens  int
	seen           reentrant.Token
	keep           time.Duration
}

// pushed is what a session is told: of a grant, of a signal, or that its lock is wanted.
type pushed struct {
	grant
	signal bool // epoch is the ticket
	placed bool
	wanted bool // epoch is what another session asked for
	taken  bool // epoch is what another session took up
}

// A grant is the message to a waiter that it has been given the lock.
type grant struct {
	name        string
	epoch       uint64
	first, last reentrant.Token
	ttl         time.Duration
	at          instant
}

// acquire makes, repeats or refreshes an attempt. late: this copy came after the time up to which it may be executed.
func (l *lock) acquire(now instant, session string, req reentrant.AcquireRequest, notAfter instant) (_ reentrant.AcquireReply, late bool) {
	if now > notAfter {
		return reentrant.AcquireReply{}, true
	}
	l.expire(now)
	mine, last := l.heldBy(session), l.record.lastOf(session)
	switch {
	case l.record.entombed(session, req.Epoch, now):
		return stale, false
	case req.Epoch < last, req.Epoch == last && !mine:
		return stale, false // given up, or it has had its turn
	case mine && req.Epoch == last:
		return l.confirm(now, req), false
	case mine:
		return l.takeOver(now, session, req), false
	case l.held():
		return l.wait(now, session, req, l.hold.expires-now), false
	default:
		return l.takeFree(now, session, req), false
	}
}

var stale = reentrant.AcquireReply{Status: reentrant.Stale}

// confirm answers a copy of the attempt that has the lock: a resend, a beat after the grant, or its acceptance.
func (l *lock) confirm(now instant, req reentrant.AcquireRequest) reentrant.AcquireReply {
	if !req.Fixed || l.record.pushed {
		l.hold.expires = now + req.Lease
	}
	if l.record.pushed {
		l.record.pushed = false
		l.save(now)
	}
	return l.granted(now, req)
}

// takeOver gives what a session has to its newer attempt, or with Yield to the first waiter.
func (l *lock) takeOver(now instant, session string, req reentrant.AcquireRequest) reentrant.AcquireReply {
	if req.Yield {
		if next, ok := l.firstWaiter(now); ok {
			l.hold = hold{}
			l.place(now, session, req) // before the grant, so that the message is the last that happens
			l.grant(now, next)
			return waiting(next.ttl)
		}
	}
	expires := now + req.Lease
	if req.KeepTTL {
		expires = l.hold.expires
	}
	l.hold = hold{session: session, owner: req.Owner, count: req.Holds, expires: expires}
	l.issue(now, session, req.Epoch, req.Tokens, req.Seen, keepFor(req))
	l.save(now)
	return l.granted(now, req)
}

// takeFree is for a lock that nobody has: it goes to the first waiter, or to this attempt if there is none, if the
// first is the session's own, or if it barges.
func (l *lock) takeFree(now instant, session string, req reentrant.AcquireRequest) reentrant.AcquireReply {
	next, ok := l.firstWaiter(now)
	if ok && next.session != session && !req.Barge {
		if req.Queue && !l.place(now, session, req) {
			return stale
		}
		l.grant(now, next)
		return waiting(next.ttl)
	}
	if i := l.placeOf(session); i >= 0 { // it has served its purpose
		if l.queue[i].epoch > req.Epoch {
			return stale
		}
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	l.hold = hold{session: session, owner: req.Owner, count: req.Holds, expires: now + req.Lease}
	l.issue(now, session, req.Epoch, req.Tokens, req.Seen, keepFor(req))
	l.save(now)
	if len(l.queue) > 0 {
		l.ask(session, req.Owner)
	}
	return l.granted(now, req)
}

// ask tells a session that others wait for what it has, if it is one that may have a lock without needing it.
func (l *lock) ask(session, owner string) {
	if owner == reentrant.LingeringOwner {
		l.publish(session, pushed{grant: grant{name: l.name, epoch: l.record.lastOf(session)}, wanted: true})
	}
}

// wait answers an attempt that cannot have the lock now.
func (l *lock) wait(now instant, session string, req reentrant.AcquireRequest, ttl time.Duration) reentrant.AcquireReply {
	if req.Queue && !l.place(now, session, req) {
		return stale
	}
	l.ask(l.hold.session, l.hold.owner)
	return waiting(ttl)
}

// place gives the session a place at the end of the queue, or renews the one it has for this attempt. It answers
// false if the place is a newer attempt's.
func (l *lock) place(now instant, session string, req reentrant.AcquireRequest) bool {
	w := waiter{
		session: session, owner: req.Owner, epoch: req.Epoch, deadline: now + req.Patience, ttl: req.GrantTTL,
		holds: req.Holds, tokens: req.Tokens, seen: req.Seen, keep: keepFor(req),
	}
	switch i := l.placeOf(session); {
	case i < 0:
		l.queue = append(l.queue, w)
	case l.queue[i].epoch > req.Epoch:
		return false
	default:
		l.queue[i] = w
	}
	return true
}

// reenter sets the hold count of the attempt that has the lock.
func (l *lock) reenter(now instant, session string, req reentrant.ReenterRequest) reentrant.ReenterReply {
	l.expire(now)
	if !l.heldBy(session) || l.hold.owner != req.Owner || l.record.lastOf(session) != req.Epoch {
		return reentrant.ReenterReply{Gone: true}
	}
	if req.Op <= l.record.op {
		return reentrant.ReenterReply{Holds: l.hold.count}
	}
	if req.Holds > l.hold.count && req.Lease > 0 {
		l.hold.expires = max(l.hold.expires, now+req.Lease)
	}
	l.hold.count = req.Holds
	l.record.op = req.Op
	l.save(now)
	return reentrant.ReenterReply{Holds: req.Holds}
}

// release gives up what a session's attempts up to an epoch have, and gives a free lock to the first waiter. doubt is
// for how long from now a copy of such an attempt may still be under way.
func (l *lock) release(now instant, session string, req reentrant.ReleaseRequest, doubt time.Duration) reentrant.ReleaseResult {
	l.expire(now)
	result, changed := reentrant.Nothing, false
	if l.heldBy(session) && l.record.lastOf(session) <= req.Epoch {
		result = reentrant.Released
		l.hold = hold{}
		if l.record.lastOf(session) == req.Epoch && l.record.first <= req.Used && req.Used < l.record.last {
			l.record.last, changed = req.Used, true // the unused tail of the block
		}
	} else if i := l.placeOf(session); i >= 0 && l.queue[i].epoch <= req.Epoch {
		result = reentrant.Withdrawn
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	if doubt > 0 {
		l.record.entomb(session, req.Epoch, now+doubt, now)
		l.record.keep, changed = max(l.record.keep, keep), true
	}
	if !l.held() {
		if next, ok := l.firstWaiter(now); ok {
			l.grant(now, next)
			return result
		}
	}
	if changed {
		l.save(now)
	}
	return result
}

// renew prolongs the lease of the attempt that has the lock, and tells whether it has it.
func (l *lock) renew(now instant, session string, epoch uint64, lease time.Duration) bool {
	l.expire(now)
	if !l.heldBy(session) || l.record.lastOf(session) != epoch {
		return false
	}
	l.hold.expires = now + lease
	l.save(now)
	return true
}

// force takes the lock from whoever has it, for the first waiter.
func (l *lock) force(now instant) bool {
	l.expire(now)
	if !l.held() {
		return false
	}
	l.hold = hold{}
	if next, ok := l.firstWaiter(now); ok {
		l.grant(now, next)
	}
	return true
}

func (l *lock) inspect(now instant) reentrant.State {
	l.expire(now)
	st := reentrant.State{Token: l.record.last}
	if l.held() {
		st.Locked, st.Session, st.Owner, st.Holds = true, l.hold.session, l.hold.owner, l.hold.count
		st.TTL = l.hold.expires - now
		st.Epoch = l.record.lastOf(l.hold.session)
	}
	for _, w := range l.queue {
		if w.alive(now) {
			st.Waiting = append(st.Waiting, w.session)
		}
	}
	return st
}

// expire forgets what is over.
func (l *lock) expire(now instant) {
	if now > l.hold.expires {
		l.hold = hold{}
	}
	if now > l.record.expires {
		l.record = record{}
	}
}

func (l *lock) held() bool                 { return l.hold.count > 0 }
func (l *lock) heldBy(session string) bool { return l.held() && l.hold.session == session }

func (l *lock) granted(now instant, req reentrant.AcquireRequest) reentrant.AcquireReply {
	reply := reentrant.AcquireReply{Status: reentrant.Granted, First: l.record.first, Last: l.record.last}
	if req.Fixed {
		reply.TTL = l.hold.expires - now
	}
	return reply
}

func waiting(ttl time.Duration) reentrant.AcquireReply {
	return reentrant.AcquireReply{Status: reentrant.Waiting, TTL: ttl}
}

// issue gives the record to an attempt, with a new block of tokens: above every one of this lock, above the clock
// (so that they rise although the record was lost) and above what the session has seen.
func (l *lock) issue(now instant, session string, epoch uint64, tokens int, seen reentrant.Token, keep time.Duration) {
	r := &l.record
	r.first = max(r.last+1, clockToken(now), seen+1)
	r.last = r.first + reentrant.Token(tokens) - 1
	r.session, r.epoch, r.op, r.pushed = session, epoch, 0, false
	r.keep = max(r.keep, keep)
}

// clockToken is the server's clock as a token.
func clockToken(now instant) reentrant.Token { return reentrant.Token(max(0, now.Microseconds())) }

// save keeps the record from now on, and for longer by as much as its tokens have run ahead of the clock: tokens
// that start from the clock again do not fall behind.
func (l *lock) save(now instant) {
	ahead := instant(l.record.last)*time.Microsecond - now
	l.record.expires = now + l.record.keep + max(0, ahead)
}

func keepFor(req reentrant.AcquireRequest) time.Duration { return keep + req.Lease }

// firstWaiter is the longest waiting session that is alive; the dead before it lose their places.
func (l *lock) firstWaiter(now instant) (waiter, bool) {
	for len(l.queue) > 0 && !l.queue[0].alive(now) {
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		return waiter{}, false
	}
	return l.queue[0], true
}

// grant gives a free lock to the first waiter, and tells it.
func (l *lock) grant(now instant, w waiter) {
	l.queue = l.queue[1:]
	l.hold = hold{session: w.session, owner: w.owner, count: w.holds, expires: now + w.ttl}
	l.issue(now, w.session, w.epoch, w.tokens, w.seen, w.keep)
	l.record.pushed = true
	l.save(now)
	l.publish(w.session, pushed{grant: grant{
		name: l.name, epoch: w.epoch, first: l.record.first, last: l.record.last, ttl: w.ttl, at: now,
	}})
	if len(l.queue) > 0 {
		l.ask(w.session, w.owner)
	}
}

func (w waiter) alive(now instant) bool { return now <= w.deadline }

// leave takes a session out of the queue.
func (l *lock) leave(session string) {
	l.queue = slices.DeleteFunc(l.queue, func(w waiter) bool { return w.session == session })
}

// placeOf is the index of a session's place, -1 if it has none.
func (l *lock) placeOf(session string) int {
	return slices.IndexFunc(l.queue, func(w waiter) bool { return w.session == session })
}

// lastOf is the epoch with which a session was given the lock, 0 if another session had it since.
func (r *record) lastOf(session string) uint64 {
	if r.session != session {
		return 0
	}
	return r.epoch
}

// entombed tells whether an attempt was given up while a copy of it might still be under way.
func (r *record) entombed(session string, epoch uint64, now instant) bool {
	return slices.ContainsFunc(r.tombs, func(t tombstone) bool {
		return t.session == session && epoch <= t.epoch && now <= t.until
	})
}

// entomb refuses a session's attempts up to an epoch, and forgets the tombstones that are over.
func (r *record) entomb(session string, epoch uint64, until, now instant) {
	grave := tombstone{session, epoch, until}
	r.tombs = slices.DeleteFunc(r.tombs, func(t tombstone) bool {
		if t.session == session {
			grave.epoch, grave.until = max(grave.epoch, t.epoch), max(grave.until, t.until)
		}
		return t.session == session || now > t.until
	})
	r.tombs = append(r.tombs, grave)
}

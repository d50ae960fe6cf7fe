// Package protocol is the server's part of each verb in plain Go. The scripts of redisbackend do the same in Lua. The server of
// package memory consists of this code, and redisbackend.WithoutScripts runs the code in the client.
package protocol

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
)

// An Instant is a moment by the server's clock, counted from the clock's own zero. The clock is the server's alone:
// sessions map their times to it.
type Instant = time.Duration

// A Lock is what the server keeps for one name. Every method is one verb, executed as a whole.
type Lock struct {
	Name   string
	Hold   Hold
	Record Record
	Note   Note
	Queue  []Waiter // longest waiter first; some may be dead

	Conditions map[string]*Condition

	Batch   int                        // the most waiters of a condition that one Signal wakes; 0: no limit
	Keep    time.Duration              // how long the record outlives its last change, or twice a lease if that is longer
	Brief   time.Duration              // the Keep of a lock that was free and for which no session waited
	Publish func(to string, m Message) // sends a message to a session
}

// A Hold says who has the lock. In Redis it is a hash with one field at most, and its TTL.
type Hold struct {
	Session, Owner string
	Count          int     // 0: the lock is free
	Expires        Instant // the end of the lease, inclusive
}

// A Record is what the server remembers of a lock beyond its holds.
type Record struct {
	First, Last backend.Token // the block of the last grant
	Session     string        // the session that got the lock last
	Epoch       uint64        // the attempt with which that session got the lock
	Op          uint64        // the last re-entry or signal within the attempt
	Pushed      bool          // the lock was granted to a waiter that has not confirmed the grant yet
	Watched     bool          // the holder's session gets a message when another session queues up
	Tombs       []Tombstone
	Keep        time.Duration
	Expires     Instant
}

// A Note is a hold's note. It belongs to the hold with its Token, whichever session has that hold.
type Note struct {
	Token   backend.Token
	Text    string
	Expires Instant
}

// A Tombstone refuses a session's attempts up to an epoch, until a given time, because copies of these attempts may still be
// under way.
type Tombstone struct {
	Session string
	Epoch   uint64
	Until   Instant
}

// A Waiter is a session's place in the queue, with the attempt that it is for.
type Waiter struct {
	Session, Owner string
	Epoch          uint64
	Deadline       Instant // the place, or the ticket, is dead after this moment
	TTL            time.Duration
	Holds, Tokens  int
	Seen           backend.Token
	Keep           time.Duration
}

// A Message is a message to a session.
type Message struct {
	Kind        MessageKind
	Name        string
	Epoch       uint64        // of the attempt, or the ticket
	First, Last backend.Token // of a grant, like TTL and At
	TTL         time.Duration
	At          Instant
	Placed      bool   // of a signal: the session was given a place for it
	Units       int    // of a grant of a shared name
	May         int    // of a shared name
	Try         uint64 // of a SharedWanted: the order of the try that asks, 0 for none
}

// MessageKind says what a Message is about.
type MessageKind int8

// The zero kind is a grant.
const (
	Granted      MessageKind = iota
	Signalled                // the ticket was signalled
	Wanted                   // another session asked for the lock
	Taken                    // another session has taken up the hold
	SharedGrant              // units of a shared name
	SharedWanted             // another session waits for units of a shared name
)

// Acquire makes, repeats or refreshes an attempt. It returns ErrLate if now is after notAfter, or ErrFarToken.
func (l *Lock) Acquire(now Instant, session string, req backend.AcquireRequest, notAfter Instant) (backend.AcquireReply, error) {
	if now > notAfter {
		return backend.AcquireReply{}, ErrLate
	}
	l.expire(now)
	mine, last := l.heldBy(session), l.Record.lastOf(session)
	switch {
	case l.Record.entombed(session, req.Epoch, now):
		return stale, nil
	case req.Epoch < last, req.Epoch == last && !mine:
		return stale, nil // the attempt was given up, or had the lock before
	case l.Record.tooFar(now, req.Tokens, req.Seen):
		return backend.AcquireReply{}, ErrFarToken
	case mine && req.Epoch == last:
		return l.confirm(now, req), nil
	case mine:
		return l.takeOver(now, session, req, notAfter), nil
	case l.held():
		return l.wait(now, session, req, l.Hold.Expires-now), nil
	default:
		return l.takeFree(now, session, req, notAfter), nil
	}
}

var stale = backend.AcquireReply{Status: backend.Stale}

// confirm handles a copy of the attempt that has the lock: a resend, a heartbeat after the grant, or the grant's
// confirmation.
func (l *Lock) confirm(now Instant, req backend.AcquireRequest) backend.AcquireReply {
	if !req.Fixed || l.Record.Pushed {
		l.Hold.Expires = now + req.Lease
	}
	if keep := l.keepFor(max(req.Lease, req.GrantTTL)); l.Record.Pushed || l.Record.Keep < keep {
		l.Record.Pushed, l.Record.Keep = false, max(l.Record.Keep, keep)
		l.save(now)
	}
	return l.granted(now, req)
}

// takeOver passes a session's hold to its newer attempt, or with Yield to the first waiter.
func (l *Lock) takeOver(now Instant, session string, req backend.AcquireRequest, notAfter Instant) backend.AcquireReply {
	keep := l.briefly(now, req.Lease, notAfter)
	if req.Yield {
		if next, ok := l.firstWaiter(now); ok {
			l.Hold = Hold{}
			if req.Queue {
				l.place(now, session, req) // before the grant, so that the message comes last
			}
			l.grant(now, next)
			return waiting(next.TTL)
		}
		keep = l.keepFor(max(req.Lease, req.GrantTTL))
	}
	expires := now + req.Lease
	if req.KeepTTL {
		expires = l.Hold.Expires
	}
	l.Hold = Hold{Session: session, Owner: req.Owner, Count: req.Holds, Expires: expires}
	l.issue(now, session, req.Epoch, req.Tokens, req.Seen, keep)
	l.save(now)
	if len(l.Queue) > 0 { // an earlier message named the previous attempt, not this one
		l.wanted(false)
	}
	return l.granted(now, req)
}

// takeFree handles an attempt on a free lock. The lock goes to this attempt if no session waits, if the first waiter is this
// session, or if the attempt barges; otherwise it goes to the first waiter.
func (l *Lock) takeFree(now Instant, session string, req backend.AcquireRequest, notAfter Instant) backend.AcquireReply {
	keep := l.keepFor(max(req.Lease, req.GrantTTL))
	if l.vacant(now, req) {
		keep = l.briefly(now, req.Lease, notAfter)
	}
	next, ok := l.firstWaiter(now)
	if ok && next.Session != session && !req.Barge {
		if req.Queue && !l.place(now, session, req) {
			return stale
		}
		l.grant(now, next)
		return waiting(next.TTL)
	}
	if i := l.placeOf(session); i >= 0 { // the place has served its purpose
		if l.Queue[i].Epoch > req.Epoch {
			return stale
		}
		l.Queue = slices.Delete(l.Queue, i, i+1)
	}
	l.Hold = Hold{Session: session, Owner: req.Owner, Count: req.Holds, Expires: now + req.Lease}
	l.issue(now, session, req.Epoch, req.Tokens, req.Seen, keep)
	l.save(now)
	if len(l.Queue) > 0 {
		l.wanted(false)
	}
	return l.granted(now, req)
}

// vacant reports whether only the clock and the attempt decide about a free lock: no session waits, no copy of an attempt that
// was given up may be under way, and the token comes from the clock. The lock's record is then needed only for a short time.
func (l *Lock) vacant(now Instant, req backend.AcquireRequest) bool {
	return len(l.Queue) == 0 && len(l.Record.Tombs) == 0 && req.Tokens == 1 && max(l.Record.Last, req.Seen) < clockToken(now)
}

// briefly returns how long to keep the record of a lock that was vacant: at least until late copies of the attempt are refused.
func (l *Lock) briefly(now Instant, lease time.Duration, notAfter Instant) time.Duration {
	return max(l.Brief, 2*lease, notAfter-now)
}

// wanted sends the holder's session the message that another session asks for the lock. It does so if the holder's owner is
// LingeringOwner, or if the hold is watched and queues says that the other session queues up.
func (l *Lock) wanted(queues bool) {
	if l.Hold.Owner == backend.LingeringOwner || queues && l.Record.Watched {
		l.Publish(l.Hold.Session, Message{Kind: Wanted, Name: l.Name, Epoch: l.Record.lastOf(l.Hold.Session)})
	}
}

// wait handles an attempt that cannot have the lock now.
func (l *Lock) wait(now Instant, session string, req backend.AcquireRequest, ttl time.Duration) backend.AcquireReply {
	if req.Queue && !l.place(now, session, req) {
		return stale
	}
	l.wanted(req.Queue)
	reply := waiting(ttl)
	reply.Lingers = l.Hold.Owner == backend.LingeringOwner
	return reply
}

// place gives the session a place at the end of the queue, or renews the place that the session has for this attempt. It
// returns false if the session's place is for a newer attempt.
func (l *Lock) place(now Instant, session string, req backend.AcquireRequest) bool {
	w := Waiter{
		Session: session, Owner: req.Owner, Epoch: req.Epoch, Deadline: now + req.Patience, TTL: req.GrantTTL,
		Holds: req.Holds, Tokens: req.Tokens, Seen: req.Seen, Keep: l.keepFor(max(req.Lease, req.GrantTTL)),
	}
	switch i := l.placeOf(session); {
	case i < 0:
		l.Queue = append(l.Queue, w)
	case l.Queue[i].Epoch > req.Epoch:
		return false
	default:
		l.Queue[i] = w
	}
	return true
}

// Reenter sets the hold count of the attempt that has the lock.
func (l *Lock) Reenter(now Instant, session string, req backend.ReenterRequest) backend.ReenterReply {
	l.expire(now)
	if !l.heldBy(session) || l.Hold.Owner != req.Owner || l.Record.lastOf(session) != req.Epoch {
		return backend.ReenterReply{Gone: true}
	}
	if req.Op <= l.Record.Op {
		return backend.ReenterReply{Holds: l.Hold.Count, First: l.Record.First}
	}
	if req.Holds > l.Hold.Count && req.Lease > 0 {
		l.Hold.Expires = max(l.Hold.Expires, now+req.Lease)
	}
	l.Hold.Count = req.Holds
	l.Record.Op = req.Op
	l.save(now)
	return backend.ReenterReply{Holds: req.Holds, First: l.Record.First}
}

// Release gives up what a session's attempts up to an epoch have, and gives a free lock to the first waiter. doubt is for how
// long from now a copy of one of these attempts may still be under way. stays is for how long from now no session gets the
// lock.
func (l *Lock) Release(now Instant, session string, req backend.ReleaseRequest, doubt, stays time.Duration) backend.ReleaseResult {
	l.expire(now)
	result, changed := backend.Nothing, false
	if l.heldBy(session) && l.Record.lastOf(session) <= req.Epoch {
		result = backend.Released
		if l.Hold = l.Hold.unlocked(now, stays); stays > 0 {
			l.Record.Watched, changed = false, l.Record.Keep > 0 // the session gets no more messages about waiters
		}
		if l.Record.lastOf(session) == req.Epoch && l.Record.First <= req.Used && req.Used < l.Record.Last {
			l.Record.Last, changed = req.Used, true // the unused tail of the block is free again
		}
	} else if i := l.placeOf(session); i >= 0 && l.Queue[i].Epoch <= req.Epoch {
		result = backend.Withdrawn
		l.Queue = slices.Delete(l.Queue, i, i+1)
	}
	if doubt > 0 {
		l.Record.entomb(session, req.Epoch, now+doubt, now)
		l.Record.Keep, changed = max(l.Record.Keep, l.Keep), true
	}
	if !l.held() {
		if next, ok := l.firstWaiter(now); ok {
			l.grant(now, next)
			return result
		}
	}
	if changed {
		l.save(now)
		if result == backend.Released { // Inspect reads the record while the lock stays taken
			l.Record.Expires = max(l.Record.Expires, now+stays+l.Record.Keep)
		}
	}
	return result
}

// NoSession is the session of a hold that was released and stays for a time. No session has that id.
const NoSession = "!"

// unlocked returns what stays of a hold that is released: a hold of NoSession, whose owner names the session and the owner that
// had it. Every session finds that another session has this hold, and every owner that another owner has it.
func (h Hold) unlocked(now Instant, stays time.Duration) Hold {
	if stays <= 0 {
		return Hold{}
	}
	return Hold{Session: NoSession, Owner: h.Session + ":" + h.Owner, Count: h.Count, Expires: now + stays}
}

// HolderOf returns the session and the owner that have a hold, from what the server has stored. unlocked says that the hold was
// released and stays for a time; then HolderOf returns the session and the owner that had it.
func HolderOf(session, owner string) (by, of string, unlocked bool) {
	if session != NoSession {
		return session, owner, false
	}
	by, of, _ = strings.Cut(owner, ":")
	return by, of, true
}

// Renew prolongs the lease of the attempt that has the lock, and returns the first token of its block; 0 if it does not
// have the lock.
func (l *Lock) Renew(now Instant, session string, epoch uint64, lease time.Duration) backend.Token {
	l.expire(now)
	if !l.heldBy(session) || l.Record.lastOf(session) != epoch {
		return 0
	}
	l.Hold.Expires = now + lease
	l.save(now)
	return l.Record.First
}

// Force takes the lock from its holder and grants it to the first waiter. It reports whether there was a holder. It
// returns ErrLate if now is after notAfter.
func (l *Lock) Force(now, notAfter Instant) (bool, error) {
	if now > notAfter {
		return false, ErrLate
	}
	l.expire(now)
	if !l.held() {
		return false, nil
	}
	l.Hold = Hold{}
	if next, ok := l.firstWaiter(now); ok {
		l.grant(now, next)
	}
	return true, nil
}

// Given returns the local time at which a token was given out. now is the server's present time, since tokens come from the
// server's clock. A token that is ahead of the clock shows no time: for it Given returns the zero time.
func Given(t backend.Token, now Instant) time.Time {
	age := now - Instant(min(t, math.MaxInt64/1000))*time.Microsecond
	if age < 0 || t == 0 {
		return time.Time{}
	}
	return time.Now().Add(-age)
}

// Inspect returns the state of the lock.
func (l *Lock) Inspect(now Instant) backend.State {
	l.expire(now)
	st := backend.State{Token: l.Record.Last}
	if l.held() {
		st.Locked, st.Holds, st.TTL = true, l.Hold.Count, l.Hold.Expires-now
		st.Session, st.Owner, st.Unlocked = HolderOf(l.Hold.Session, l.Hold.Owner)
		st.Epoch = l.Record.lastOf(st.Session)
		if st.Session == l.Record.Session {
			st.First = l.Record.First
			st.Since, st.Note = Given(l.Record.First, now), l.note(now)
		}
	}
	for _, w := range l.Queue {
		if w.alive(now) {
			st.Waiting = append(st.Waiting, w.Session)
		}
	}
	return st
}

// expire forgets a hold and a record that have expired.
func (l *Lock) expire(now Instant) {
	if now > l.Hold.Expires {
		l.Hold = Hold{}
	}
	if now > l.Record.Expires {
		l.Record = Record{}
	}
}

// idleAfter is for how long the name of a Lock that is not in use keeps its kind.
const idleAfter = 30 * time.Second

// Disuse forgets the record of a lock that no session has or waits for, if the record was not written for idleAfter and refuses
// no attempt any more. Then the name is free for another kind. Disuse returns the last token, above which the next tokens of
// the name are to be; 0 if the record stays.
func (l *Lock) Disuse(now Instant) (last backend.Token) {
	l.expire(now)
	tombs := slices.ContainsFunc(l.Record.Tombs, func(t Tombstone) bool { return now <= t.Until })
	if l.held() || len(l.Queue) > 0 || tombs || l.Record.Expires > l.retention(now)-idleAfter {
		return 0
	}
	last, l.Record = l.Record.Last, Record{}
	return last
}

// InUse reports whether the server has a hold or a record of the lock.
func (l *Lock) InUse(now Instant) bool {
	l.expire(now)
	return l.held() || l.Record.Keep > 0
}

func (l *Lock) held() bool                 { return l.Hold.Count > 0 }
func (l *Lock) heldBy(session string) bool { return l.held() && l.Hold.Session == session }

func (l *Lock) granted(now Instant, req backend.AcquireRequest) backend.AcquireReply {
	reply := backend.AcquireReply{Status: backend.Granted, First: l.Record.First, Last: l.Record.Last}
	if req.Fixed {
		reply.TTL = l.Hold.Expires - now
	}
	return reply
}

func waiting(ttl time.Duration) backend.AcquireReply {
	return backend.AcquireReply{Status: backend.Waiting, TTL: ttl}
}

// issue gives the record to an attempt, with a new block of tokens: above every token of this lock, not below the clock
// (so that tokens rise although the record was lost) and above what the session has seen. The block ends at the Horizon.
func (l *Lock) issue(now Instant, session string, epoch uint64, tokens int, seen backend.Token, keep time.Duration) {
	r := &l.Record
	r.First = max(r.Last+1, clockToken(now), seen+1)
	r.Last = max(r.First, min(r.First+backend.Token(tokens)-1, clockToken(now+Horizon)))
	r.Session, r.Epoch, r.Op, r.Pushed, r.Watched = session, epoch, 0, false, false
	r.Keep = max(r.Keep, keep)
}

// clockToken returns the server's clock as a token.
func clockToken(now Instant) backend.Token { return backend.Token(max(0, now.Microseconds())) }

// save keeps the record for its Keep from now on, and longer by as much as its tokens are ahead of the clock: when the tokens
// start from the clock again, they do not fall.
func (l *Lock) save(now Instant) { l.Record.Expires = l.retention(now) }

// prolong makes the record, if there is one, expire no earlier than if it were saved now.
func (l *Lock) prolong(now Instant) {
	if l.Record.Keep > 0 {
		l.Record.Expires = max(l.Record.Expires, l.retention(now))
	}
}

// retention returns when the record expires if it is saved now.
func (l *Lock) retention(now Instant) Instant {
	ahead := Instant(min(l.Record.Last, clockToken(now+Farthest)))*time.Microsecond - now
	return now + l.Record.Keep + max(0, ahead)
}

// keepFor returns how long to keep the record for an attempt with the given lease, so that the record outlives the hold.
func (l *Lock) keepFor(lease time.Duration) time.Duration { return max(l.Keep, 2*lease) }

// firstWaiter returns the longest waiting session that is alive. The dead sessions before it lose their places.
func (l *Lock) firstWaiter(now Instant) (Waiter, bool) {
	for len(l.Queue) > 0 && !l.Queue[0].alive(now) {
		l.Queue = l.Queue[1:]
	}
	if len(l.Queue) == 0 {
		return Waiter{}, false
	}
	return l.Queue[0], true
}

// grant gives a free lock to the first waiter, w, and sends w's session the message. A waiter whose token would be too far
// ahead keeps its place; its next attempt returns the error.
func (l *Lock) grant(now Instant, w Waiter) {
	if l.Record.tooFar(now, w.Tokens, w.Seen) {
		if l.Record.Keep > 0 { // there is a record
			l.save(now)
		}
		return
	}
	l.Queue = l.Queue[1:]
	l.Hold = Hold{Session: w.Session, Owner: w.Owner, Count: w.Holds, Expires: now + w.TTL}
	l.issue(now, w.Session, w.Epoch, w.Tokens, w.Seen, w.Keep)
	l.Record.Pushed = true
	l.save(now)
	l.Publish(w.Session, Message{
		Name: l.Name, Epoch: w.Epoch, First: l.Record.First, Last: l.Record.Last, TTL: w.TTL, At: now,
	})
	if len(l.Queue) > 0 {
		l.wanted(false)
	}
}

func (w Waiter) alive(now Instant) bool { return now <= w.Deadline }

// leave removes a session from the queue.
func (l *Lock) leave(session string) {
	l.Queue = slices.DeleteFunc(l.Queue, func(w Waiter) bool { return w.Session == session })
}

// placeOf returns the index of a session's place, -1 if it has none.
func (l *Lock) placeOf(session string) int {
	return slices.IndexFunc(l.Queue, func(w Waiter) bool { return w.Session == session })
}

// lastOf returns the epoch with which a session got the lock, 0 if another session has got it since.
func (r *Record) lastOf(session string) uint64 {
	if r.Session != session {
		return 0
	}
	return r.Epoch
}

// entombed reports whether an attempt was given up while a copy of it might still be under way.
func (r *Record) entombed(session string, epoch uint64, now Instant) bool {
	return slices.ContainsFunc(r.Tombs, func(t Tombstone) bool {
		return t.Session == session && epoch <= t.Epoch && now <= t.Until
	})
}

// entomb adds a tombstone for a session's attempts up to an epoch, and removes those that have expired.
func (r *Record) entomb(session string, epoch uint64, until, now Instant) {
	grave := Tombstone{session, epoch, until}
	r.Tombs = slices.DeleteFunc(r.Tombs, func(t Tombstone) bool {
		if t.Session == session {
			grave.Epoch, grave.Until = max(grave.Epoch, t.Epoch), max(grave.Until, t.Until)
		}
		return t.Session == session || now > t.Until
	})
	r.Tombs = append(r.Tombs, grave)
}

// Package plan decides what a session does about one read-write lock or semaphore: what it asks of the server, what it trusts,
// and when it gives units back. It has no mutex, channel, context, goroutine or clock. Its driver has a mutex, under which the
// driver calls one method of a [Plan] for each event, and then carries out the [Step] that the method returned.
//
// The local tier belongs to the driver. A plan calls the tier while it handles an event, so that what the tier hands out and
// what the plan believes that the session has change together.
package plan

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
	"github.com/relock-go/relock/sharedqueue"
)

// A Tier is the part of a local tier that a plan uses: the users of one session that are inside or wait.
type Tier interface {
	// Settle replaces the units and tokens that the session has, and admits the waiters for which they suffice.
	Settle(t sharedqueue.Terms)
	// Trust sets the end of the trust in the units.
	Trust(until time.Duration)
	// Ask begins a turn, or changes keepAtMost in it: another session waits or tries, and this one may keep keepAtMost units.
	// The turn ends after so many admissions, or at turnEnd.
	Ask(keepAtMost, admissions int, turnEnd time.Duration)
	// Unask ends the turn: no other session waits any more.
	Unask()
	// NoteWaiter says that the session for which Ask was called waits, and does not only try. The tier believes so until the
	// given time, because the server sends no message when that session gets its units from a third one.
	NoteWaiter(until time.Duration)
	// NotePlaced says that the first user in line waits at the server.
	NotePlaced()
	// Keep lowers the units to the given number or, if more are in use, to the number in use, and returns how many are left.
	// used is the last token that was used, 0 if none is known.
	Keep(units int) (kept int, used backend.Token)
	// Lose takes the units from all users. The returned function notifies the users; it is called without any mutex.
	Lose(why string) (notify func())
	// EndTries ends the waits that last for one attempt only and need this many units or more.
	EndTries(need int)
	// FailTries ends all waits that last for one attempt only: the server did not reply.
	FailTries()
	// Expel ends the present waits.
	Expel()
	Look() sharedqueue.State
	// Rest reports whether no user is inside or in line, and no user was admitted since the last call. Of a read-write lock
	// only the admissions of readers count.
	Rest() bool
}

// Options are what a plan needs to know of its session. All names of a session have the same Options.
type Options struct {
	Opened time.Time // when the session was opened; the times of the local tiers count from this moment

	Lease, Heartbeat, CommandTimeout, Patience, GrantTTL time.Duration

	Turn       time.Duration                                   // how long a turn is
	Jitter     func(most time.Duration) time.Duration          // returns a random time shorter than most
	Pause      func(try int, most time.Duration) time.Duration // returns how long to wait after a copy that failed
	EpochAbove func(least uint64) uint64                       // returns a new epoch, higher than least
	Seen       func() backend.Token                            // returns the highest token that a user of the session got
	Saw        func(backend.Token)                             // raises what Seen returns, before a user gets the token
}

// A Moment is what the driver knows at the moment of an event.
type Moment struct {
	*Options
	Now   time.Time
	Ahead time.Duration // how far the wall clock has got ahead of the monotonic one
	Tier  Tier
}

// A Step is what the driver carries out after an event.
type Step struct {
	Look   bool   // call Next
	Notify func() // notifies the users that lost their units; nil if none did
}

// A Plan is what a session has and wants of one shared name. Its methods are its only transitions. A Plan is comparable, and
// a copy of it is independent of the original.
type Plan struct {
	kind    backend.ShareKind // immutable
	closing bool

	// The units that the session has.
	units         int           // never more than the tier hands out
	epoch         uint64        // of the claim that settled them
	under         backend.Token // First of the reply or push that gave the session the first of these units; the server checks it
	trust         lease.Lease
	renewalFailed bool // the last renewal got no reply

	// Of a read-write lock: the highest token under which users of this session can have read or written, and the last one
	// of the present block. Later readers get a higher version, even if the server has forgotten the write.
	known, block backend.Token

	contended  bool // another session waits or tries, and this one may keep keepAtMost units
	keepAtMost int
	turnEnd    time.Time
	hint       int       // the lowest keepAtMost of the messages since the latest copy was sent
	hintWaits  bool      // one of these messages was about a session that waits
	share      int       // of a semaphore: the session's share, from the last reply
	limit      int       // of a semaphore: its limit at the latest look
	lowered    bool      // the limit was lowered, and the server has granted nothing under the new one yet
	answer     uint64    // the try that asked whether the units are in use; 0: none
	answered   uint64    // the latest try that a claim for these units has answered
	base       bool      // of a semaphore: the tier keeps more than keepAtMost for a while
	topUp      time.Time // when to ask whether another session still waits, or for more permits than the session's share
	rest       time.Time // when to check whether read units are idle

	// The session's claim.
	claim     claim
	claiming  bool      // the claim is under way
	last      uint64    // the latest epoch that was used
	unsettled bool      // the server may have units or a place of the session that the plan does not count on
	retryAt   time.Time // unsettled units are not given back again before this: the server refused
	giveUp    time.Time // when all that the server may still have of the session has expired
}

// A claim is what the session keeps and wants from one epoch on.
type claim struct {
	epoch             uint64
	keep, want, least int
	limit             int
	under, tail, seen backend.Token
	probe             bool          // to answer a try, or ask whether another session still waits; sent even if nothing changes
	try               bool          // it is refused, and not queued, if others use the units
	answer            uint64        // the try of another session that the claim answers; 0: none
	ahead             time.Duration // how far the wall clock was ahead before the latest copy was sent
	placed            bool          // the last reply said that the claim waits at the server
	pressed           bool          // the copy at the end of backend.ShareGrace was scheduled
	tries             int           // consecutive copies without a reply
	resendAt          time.Time
	end               time.Time // of a try that is placed: when its last copy is sent, even if not all sessions have answered
	repeat            bool      // another copy was asked for (see Repeat) since the latest one was sent
}

// New returns the plan of a name of which the session has nothing.
func New(kind backend.ShareKind) Plan { return Plan{kind: kind} }

func (c *claim) asks() bool { return c.want > c.keep }

// current returns the claim under way, nil if there is none.
func (p *Plan) current() *claim {
	if !p.claiming {
		return nil
	}
	return &p.claim
}

// end ends the claim.
func (p *Plan) end() { p.claim, p.claiming = claim{}, false }

// Idle reports whether the session has nothing of the name and, as far as the session knows, the server has nothing of the
// session.
func (p *Plan) Idle() bool { return p.units == 0 && !p.claiming && !p.unsettled }

// Claims reports whether a claim is under way.
func (p *Plan) Claims() bool { return p.claiming }

// Waits reports whether the server has said that the claim under way waits there.
func (p *Plan) Waits() bool { return p.claiming && p.claim.placed }

// Claimed reports whether the claim under way asks for units, and returns how many of its latest copies had no reply.
func (p *Plan) Claimed() (asks bool, tries int) { return p.claiming && p.claim.asks(), p.claim.tries }

// Closing reports whether Close has been called.
func (p *Plan) Closing() bool { return p.closing }

// Known returns the highest token under which users of this session can have read or written.
func (p *Plan) Known() backend.Token { return p.known }

// Recall sets what Known returns, in a plan that is new.
func (p *Plan) Recall(known backend.Token) { p.known = known }

// Settled returns the units that the server should have for this session. settled is false if the server may have them under a
// later epoch: while a claim is under way, and after one that was refused although a copy may have been carried out.
func (p *Plan) Settled() (h backend.SharedHolder, settled bool) {
	return backend.SharedHolder{Epoch: p.epoch, Units: p.units, Under: p.under}, p.isSettled()
}

func (p *Plan) isSettled() bool { return !p.claiming && !p.unsettled }

// Until returns the end of the trust in the units and the next moment at which the lease must be renewed or given up, zero
// times without units.
func (p *Plan) Until() (until, wake time.Time) {
	if p.units == 0 {
		return time.Time{}, time.Time{}
	}
	return p.trust.Until(), p.trust.Wake()
}

// Expire takes the units from their users if the trust in them has ended.
func (p *Plan) Expire(at *Moment) (s Step) {
	if p.lapsed(at) {
		s = p.Lose(at, notRenewed)
	}
	return s
}

const notRenewed = "the lease was not renewed in time"

// lapsed reports whether the trust in the units has ended, and the users still have them.
func (p *Plan) lapsed(at *Moment) bool { return p.units > 0 && !p.trust.Trusted(at.Now) }

// Refute takes the units from their users because the server no longer has them, unless a later claim was sent. It reports
// whether it took them.
func (p *Plan) Refute(at *Moment, epoch uint64, why string) (s Step, lost bool) {
	if lost = p.units > 0 && p.isSettled() && p.epoch == epoch; lost {
		s = p.Lose(at, why)
	}
	return s, lost
}

// Lose takes the units from all users.
func (p *Plan) Lose(at *Moment, why string) Step { return Step{Look: true, Notify: p.lose(at, why)} }

// Close makes the session give back what its users no longer need.
func (p *Plan) Close() Step {
	p.closing = true
	return Step{Look: true}
}

// Repeat requests one more copy of the claim. It is sent after the copy that is under way, if there is one.
func (p *Plan) Repeat() (s Step) {
	if p.claiming {
		p.claim.resendAt, p.claim.repeat, s.Look = time.Time{}, true, true
	}
	return s
}

// Wanted handles the message that another session waits (try is 0) or tries (try is not 0) or, if keepAtMost is Unlimited and
// try is 0, that none waits any more. The message may be about units whose grant has not come in yet.
func (p *Plan) Wanted(at *Moment, keepAtMost int, try uint64) (s Step) {
	if keepAtMost == backend.Unlimited && try == 0 {
		s.Look = p.unask(at)
		return s
	}
	p.hint, p.hintWaits = min(p.hint, keepAtMost), p.hintWaits || try == 0
	if p.units > keepAtMost {
		p.contend(at, keepAtMost)
		if try == 0 {
			p.noteWaiter(at)
		}
	}
	if p.units > 0 || p.claiming { // the units may be under way
		p.answer = try
		s.Look = true
	}
	return s
}

// unask ends what contend began.
func (p *Plan) unask(at *Moment) (look bool) {
	p.hint, p.hintWaits, p.answer = backend.Unlimited, false, 0
	if look = p.contended; look {
		p.contended, p.keepAtMost = false, 0
		at.Tier.Unask()
	}
	return look
}

// contend begins a turn, or changes how many units may be kept in it.
func (p *Plan) contend(at *Moment, keepAtMost int) {
	if p.contended && keepAtMost == p.keepAtMost {
		return
	}
	if !p.contended {
		p.turnEnd, p.topUp = at.Now.Add(at.Turn), at.Now.Add(at.Heartbeat)
	}
	p.contended, p.keepAtMost = true, keepAtMost
	p.askTier(at)
}

// askTier has the tier keep keepAtMost units while another session waits. For baseTurns turns after the session's own turn, the
// tier may keep the session's base, if that is more: the session's share less one unit. The units that the other session then
// lacks come from sessions that have more than their base.
func (p *Plan) askTier(at *Moment) {
	keep := p.keepAtMost
	p.base = keep < p.share-1 && !p.lowered && at.Now.Before(p.turnEnd.Add(baseTurns*at.Turn))
	if p.base {
		keep = p.share - 1
	}
	at.Tier.Ask(keep, turnAdmissions, p.turnEnd.Sub(at.Opened))
}

// baseEnd returns the end of the time for which the session keeps its base, the zero time if it keeps none.
func (p *Plan) baseEnd(at *Moment) time.Time {
	if !p.contended || !p.base {
		return time.Time{}
	}
	return p.turnEnd.Add(baseTurns * at.Turn)
}

// endBase has the tier keep no more than keepAtMost, once the time of the base is over.
func (p *Plan) endBase(at *Moment) {
	if end := p.baseEnd(at); !end.IsZero() && !at.Now.Before(end) {
		p.askTier(at)
	}
}

// noteWaiter records that the other session waits, and does not only try. Sessions that wait repeat their message at each
// heartbeat.
func (p *Plan) noteWaiter(at *Moment) {
	at.Tier.NoteWaiter(at.Now.Add(at.Heartbeat + at.Heartbeat/4).Sub(at.Opened))
}

// turnAdmissions is how many of its callers a session admits in a turn, while another session waits.
const turnAdmissions = 64

// Times of a semaphore, in turns.
const (
	baseTurns   = 15 // for how long after its own turn a session keeps its base (see askTier) although another session waits
	longestPace = 10 // the longest pace of a session's users for which its head waits (see patience)
)

// extend sets the lease of the units, unless the present one is longer. Trust that has ended begins anew if the users still
// have the units, because the server has had them all the time.
func (p *Plan) extend(at *Moment, t lease.Lease) {
	if p.trust.Until().After(t.Until()) {
		return
	}
	p.trust = t
	at.Tier.Trust(t.Until().Sub(at.Opened))
}

// have sets how many units the session has. Without units there is no lease.
func (p *Plan) have(units int) {
	if p.units = units; units == 0 {
		p.trust, p.under, p.renewalFailed, p.rest = lease.Lease{}, 0, false, time.Time{}
		p.contended, p.keepAtMost, p.answered = false, 0, 0
	}
}

// lose takes the units from all users. The returned function notifies the users; the driver calls it without a mutex. Units
// that the server may still have are unsettled. A claim that keeps units is over.
func (p *Plan) lose(at *Moment, why string) (notify func()) {
	notify = at.Tier.Lose(why)
	if p.units > 0 {
		p.markUnsettled(at)
	}
	if p.units == backend.AllUnits {
		p.known = max(p.known, p.block) // it is not known which tokens of the block were used
	}
	p.have(0)
	if p.claiming && p.claim.keep > 0 {
		p.end()
		p.markUnsettled(at)
	}
	return notify
}

// markUnsettled records that the server may have units or a place of the session that the plan does not count on.
func (p *Plan) markUnsettled(at *Moment) {
	p.unsettled = true
	p.giveUp = at.Now.Add(at.Lease + at.Patience + at.CommandTimeout)
}

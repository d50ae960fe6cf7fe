package share

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Name is one shared name in one session.
type Name struct {
	room   *Room
	name   string
	kind   backend.ShareKind
	remote backend.Remote // the same as sharer; immutable, as all above
	sharer backend.Sharer
	tier   Tier
	wake   chan struct{} // 1-buffered: run must look again
	ref    *Ref          // immutable

	refs int // calls that use the name; guarded by room.mu

	// until is when trust ends, in nanoseconds since the session was opened; 0 without units. Written under mu.
	until atomic.Int64

	// retired says that the room has forgotten the name; no call or claim begins any more. Written under room.mu and
	// mu.
	retired atomic.Bool

	mu      sync.Mutex // guards what follows
	running bool       // run is at work
	halted  bool       // the room has stopped: run never starts again
	closing bool

	// The units that the session has.
	units         int           // never more than the tier hands out
	epoch         uint64        // of the claim that settled them
	under         backend.Token // First of the reply or push with which it got the first of them; the server checks it
	trust         lease.Lease
	renewalFailed bool // the last renewal got no reply

	// Of a read-write lock: the highest token under which users of this session can have read or written, and the last one
	// of the present block. Later readers get a higher version, even if the server has forgotten the write.
	known, block backend.Token

	asked   bool // another session waits, and this one may keep may units
	may     int
	turnEnd time.Time
	hint    int       // the lowest may of the messages since the latest copy was sent
	share   int       // of a semaphore: the session's share, from the last reply
	limit   int       // of a semaphore: its limit at the latest plan
	lowered bool      // the limit was lowered, and the server has granted nothing under the new one yet
	answer  uint64    // the try that asked whether the units are in use; 0: none
	topUp   time.Time // when to ask whether another session still waits
	rest    time.Time // when to check whether read units are idle

	// The session's claim.
	claim     *claim    // the claim under way; nil if there is none
	last      uint64    // the latest epoch that was used
	owes      bool      // the server may have units or a place of the session that it does not count on
	retryOwed time.Time // owed units are not given back again before this: the server refused
	giveUp    time.Time // when everything owed has expired
	err       error     // of the latest copy that failed; nil after a reply
	lastReply time.Time // when the latest reply came
	reason    error     // the error for expelled waiters
}

// A Ref is what a handle keeps of a name. It is empty once the room has forgotten the name, so that the handles of names
// that are not in use are small.
type Ref struct{ name atomic.Pointer[Name] } // written with Name.retired

// Name returns the name, nil if the room has forgotten it. The next Join makes a new Name.
func (r *Ref) Name() *Name { return r.name.Load() }

// A claim is what the session keeps and wants from one epoch on.
type claim struct {
	epoch             uint64
	keep, want, least int
	limit             int
	under, tail, seen backend.Token
	probe             bool          // it asks whether another session still waits, or answers a try, and asks for nothing
	try               bool          // it is refused, and not queued, if others use the units
	answer            uint64        // the try that it answers
	ahead             time.Duration // how far the wall clock was ahead before the latest copy was sent
	placed            bool          // the last reply said that it waits at the server
	pressed           bool          // the beat after the grace was scheduled
	tries             int           // consecutive copies without a reply
	again             time.Time
	end               time.Time // of a try that is placed: it ends then, though not all have answered
	repeat            bool      // the session was reconnected since the latest copy was sent
}

func (c *claim) asks() bool { return c.want > c.keep }

// waiter says for whom the next copy is sent.
func (c *claim) waiter() core.Waiter {
	switch {
	case !c.asks():
		return core.NoWaiter
	case c.tries > 0:
		return core.OldWaiter
	}
	return core.NewWaiter
}

// Wake makes the session look at what its users want. Callers call it after a method of the tier has returned look
// true.
func (n *Name) Wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakeLocked()
}

func (n *Name) wakeLocked() {
	switch {
	case n.running:
		select {
		case n.wake <- struct{}{}:
		default:
		}
	case !n.retired.Load() && !n.halted:
		n.running = true
		n.room.actors.Go(n.run)
	}
}

func (n *Name) halt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.halted = true
}

// run sends the claims of the name. It ends when there is neither a claim to send nor a time to wait for.
func (n *Name) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		n.mu.Lock()
		now := time.Now()
		again, send := n.plan(now)
		if send {
			n.mu.Unlock()
			n.exchange()
			continue
		}
		if again.IsZero() || n.room.quit.Err() != nil {
			n.running = false
			n.mu.Unlock()
			n.room.mu.Lock()
			n.room.retireLocked(n)
			n.room.mu.Unlock()
			return
		}
		n.mu.Unlock()
		timer.Reset(again.Sub(now))
		select {
		case <-n.wake:
		case <-timer.C:
		case <-n.room.quit.Done():
		}
	}
}

// Unheard returns the error of a wait that began at since and got no units: the error of the last command, or an
// unknown outcome if the server has not replied since. It returns nil if the server has replied that other sessions
// have the units, or if no command was needed because owners of this session have them.
func (n *Name) Unheard(since time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil && n.claim != nil && n.lastReply.Before(since) {
		return backend.WithOutcomeUnknown(fmt.Errorf("no reply yet: %w", backend.ErrUnavailable))
	}
	return n.err
}

// Err returns the error of the latest command, nil if it got a reply. It is that of a try that ended with Busy, because
// a try ends so by a reply, a failure, or without a command.
func (n *Name) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Silent reports whether the server has not replied since the given time and no command has failed.
func (n *Name) Silent(since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err == nil && n.lastReply.Before(since)
}

// Reason returns why a wait was expelled, nil if the session is being closed.
func (n *Name) Reason() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return nil
	}
	return n.reason
}

func (n *Name) refusal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if backend.Refused(n.err) {
		return fmt.Errorf("%q: %w", n.name, n.err)
	}
	return nil
}

// Tier returns the name's tier, made by Join's argument.
func (n *Name) Tier() Tier { return n.tier }

// Kind returns the kind given to Join.
func (n *Name) Kind() backend.ShareKind { return n.kind }

// Ref returns the name's Ref, always the same.
func (n *Name) Ref() *Ref { return n.ref }

// Until returns when the trust in the units ends unless they are renewed.
func (n *Name) Until() time.Time { return n.room.session.Opened.Add(time.Duration(n.until.Load())) }

// Check takes the units from their users if the trust in them has ended, without waiting for the keeper.
func (n *Name) Check() {
	until := n.until.Load()
	if until == 0 || int64(time.Since(n.room.session.Opened)) < until {
		return
	}
	n.expire()
}

// expire takes the units from their users if the trust in them has ended.
func (n *Name) expire() {
	n.mu.Lock()
	notify := func() {}
	if n.units > 0 && !n.trust.Trusted(time.Now()) {
		notify = n.loseLocked("the lease was not renewed in time")
		n.wakeLocked()
	}
	n.mu.Unlock()
	notify()
}

// Refute takes the units from their users because the server no longer has them, unless a later claim was sent. It
// reports whether it did.
func (n *Name) Refute(epoch uint64, why string) (lost bool) {
	n.mu.Lock()
	notify := func() {}
	if lost = n.units > 0 && n.settledLocked() && n.epoch == epoch; lost {
		notify = n.loseLocked(why)
		n.wakeLocked()
	}
	n.mu.Unlock()
	notify()
	return lost
}

// Settled returns the units that the server should have for this session. settled is false if it may have them under a later
// epoch: while a claim is under way, and after one that was refused although a copy may have been carried out.
func (n *Name) Settled() (h backend.SharedHolder, settled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return backend.SharedHolder{Epoch: n.epoch, Units: n.units, Under: n.under}, n.settledLocked()
}

func (n *Name) settledLocked() bool { return n.claim == nil && !n.owes }

func (n *Name) abandon() bool {
	n.mu.Lock()
	had := n.tier.Look().InUse > 0
	notify := n.loseLocked("the session was closed")
	n.wakeLocked()
	n.mu.Unlock()
	notify()
	return had
}

// shut expels the waiters and later claims, and reports whether no user was inside or waited.
func (n *Name) shut() (idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	idle = n.tier.Idle()
	n.closing = true
	n.tier.Shut()
	n.wakeLocked()
	return idle
}

// repeat sends one more copy of the claim, after the copy under way if there is one.
func (n *Name) repeat() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.claim != nil {
		n.claim.again, n.claim.repeat = time.Time{}, true
		n.wakeLocked()
	}
}

// wanted handles the message that another session waits, or tries if try is not 0, or waits no more if may is Unlimited.
// It may refer to units whose grant has not come in yet.
func (n *Name) wanted(may int, try uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if may == backend.Unlimited && try == 0 {
		n.unaskLocked()
		return
	}
	n.hint = min(n.hint, may)
	if n.units > may {
		n.askLocked(may)
	}
	if n.units > 0 || n.claim != nil { // the units may be under way
		n.answer = try
		n.wakeLocked()
	}
}

// unaskLocked ends what askLocked began.
func (n *Name) unaskLocked() {
	n.hint, n.answer = backend.Unlimited, 0
	if n.asked {
		n.asked, n.may = false, 0
		n.tier.Unask()
		n.wakeLocked()
	}
}

// askLocked begins a turn, or changes how many units may be kept in it.
func (n *Name) askLocked(may int) {
	if n.asked && may == n.may {
		return
	}
	if !n.asked {
		now := time.Now()
		n.turnEnd, n.topUp = now.Add(n.room.turn), now.Add(n.room.session.Config.Heartbeat)
	}
	n.asked, n.may = true, may
	n.tier.Ask(may, passes, n.turnEnd.Sub(n.room.session.Opened))
}

// trustLocked sets the lease of the units, unless the present one is longer.
func (n *Name) trustLocked(t lease.Lease) {
	if n.trust.Until().After(t.Until()) {
		return
	}
	n.trust = t
	until := t.Until().Sub(n.room.session.Opened)
	n.until.Store(int64(until))
	n.tier.Trust(until)
	n.room.keeper.expect(t.Wake())
}

// haveLocked sets how many units the session has. Without units there is no lease.
func (n *Name) haveLocked(units int) {
	if n.units = units; units == 0 {
		n.trust, n.under, n.renewalFailed, n.rest = lease.Lease{}, 0, false, time.Time{}
		n.asked, n.may = false, 0
		n.until.Store(0)
	}
}

// loseLocked takes the units from all users. The caller calls the returned function without a mutex; it notifies the
// users. Units that the server may still have are owed. A claim that keeps units is over.
func (n *Name) loseLocked(why string) (notify func()) {
	notify = n.tier.Lose(why)
	if n.units > 0 {
		n.oweLocked()
	}
	if n.units == backend.AllUnits {
		n.known = max(n.known, n.block) // it is not known which of them were used
	}
	n.haveLocked(0)
	if n.claim != nil && n.claim.keep > 0 {
		n.claim = nil
		n.oweLocked()
	}
	return notify
}

// oweLocked notes that the server may have units or a place of the session that it does not count on.
func (n *Name) oweLocked() {
	n.owes = true
	n.giveUp = time.Now().Add(n.room.session.Config.Lease + n.room.session.Config.Patience + n.room.session.Config.CommandTimeout)
}

package share

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
)

// A Name is one shared name in one session: a read-write lock or a semaphore.
type Name struct {
	room   *Room
	name   string
	kind   backend.ShareKind
	remote backend.Remote // the same value as sharer; immutable, like the fields above
	sharer backend.Sharer
	tier   Tier
	wake   chan struct{} // capacity 1; has a value if run must look again
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
	plan    plan.Plan

	note    note
	err     error     // of the latest copy that failed; nil after a reply
	failed  error     // of the latest copy that failed; a reply does not clear it
	asked   time.Time // when the copy under way was sent; zero if none is
	denied  time.Time // when a reply last said that others have, or wait for, what users of this session want
	replied time.Time // when a claim last got a reply
	reason  error     // the error for expelled waiters
	calls   []lastCall
}

// A lastCall waits for one more reply of the server after the time of a wait is up. heard gets the result of the first copy
// that is not sent before the time in the field at: nil for a reply, or the error of a copy that failed.
type lastCall struct {
	at    time.Time
	heard chan error // 1-buffered
}

// A Ref is what a handle keeps of a name. It is empty once the room has forgotten the name, so that the handles of names
// that are not in use are small.
type Ref struct{ name atomic.Pointer[Name] } // written with Name.retired

// Name returns the name, nil if the room has forgotten it. The next Join makes a new Name.
func (r *Ref) Name() *Name { return r.name.Load() }

// moment returns what the plan is to know of the present moment.
func (n *Name) moment() plan.Moment {
	return plan.Moment{Options: &n.room.options, Now: time.Now(), Ahead: n.room.session.Ahead(), Tier: n.tier}
}

// carry carries a step out. The caller calls the returned function, which may be nil, without a mutex. n.mu is held.
func (n *Name) carry(s plan.Step) (notify func()) {
	n.trustLocked()
	if s.Look {
		n.wakeLocked()
	}
	return s.Notify
}

// trustLocked publishes when the trust in the units ends.
func (n *Name) trustLocked() {
	until, wake := n.plan.Until()
	if until.IsZero() {
		n.until.Store(0)
		return
	}
	if end := int64(until.Sub(n.room.session.Opened)); n.until.Swap(end) != end {
		n.room.keeper.WakeBy(wake)
	}
}

// event handles an event: f is a method of the plan.
func (n *Name) event(f func(p *plan.Plan, at *plan.Moment) plan.Step) {
	n.mu.Lock()
	at := n.moment()
	notify := n.carry(f(&n.plan, &at))
	n.noteLocked()
	n.mu.Unlock()
	call(notify)
}

func call(notify func()) {
	if notify != nil {
		notify()
	}
}

// waiter returns what kind of waiter the next copy is sent for. asks says that the claim asks for units, and tries is how many
// of its latest copies had no reply.
func waiter(asks bool, tries int) core.Waiter {
	switch {
	case !asks:
		return core.NoWaiter
	case tries > 0:
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
		at := n.moment()
		lookAt, send := n.plan.Next(&at)
		n.trustLocked()
		if send {
			n.mu.Unlock()
			n.exchange()
			continue
		}
		if lookAt.IsZero() || n.room.quit.Err() != nil {
			n.running = false
			n.mu.Unlock()
			n.room.mu.Lock()
			n.room.retireLocked(n)
			n.room.mu.Unlock()
			return
		}
		n.mu.Unlock()
		timer.Reset(lookAt.Sub(at.Now))
		select {
		case <-n.wake:
		case <-timer.C:
		case <-n.room.quit.Done():
		}
	}
}

// Unheard returns the error of a wait that got no units: the error of the last command, or an unknown outcome if the server has
// not replied since the wait began, at the time since. It returns nil if the server has replied that other sessions have the
// units, or if no command was needed because owners of this session have them. A reply about anything else, such as what the
// session gave back, does not count. While a claim waits at the server and no copy of the claim is under way, that counts as a
// reply, also for users who came in behind the one for whom the claim was made.
func (n *Name) Unheard(since time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unheardLocked(since, n.denied)
}

// Interrupted is like Unheard, but for a wait that its context has ended. Any reply to a claim since the wait began counts.
func (n *Name) Interrupted(since time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unheardLocked(since, n.replied)
}

func (n *Name) unheardLocked(since, heard time.Time) error {
	waits := n.plan.Waits() && n.asked.IsZero()
	if n.err == nil && n.plan.Claims() && heard.Before(since) && !waits {
		return backend.WithOutcomeUnknown(fmt.Errorf("%w: no reply yet", backend.ErrUnavailable))
	}
	return n.err
}

// Failed returns the error of the latest copy that failed, nil if none did. It is the error of a try that had no reply.
func (n *Name) Failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// Silent reports whether the latest copy has not failed, and the server has not said since the given time that others have the
// units. unanswered is for how long a copy has been under way, zero if none is: a session that waits in line sends the next
// copy only after a heartbeat.
func (n *Name) Silent(since time.Time) (silent bool, unanswered time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.asked.IsZero() {
		unanswered = time.Since(n.asked)
	}
	return n.err == nil && n.denied.Before(since), unanswered
}

// LastCall asks the server once more for a wait whose time is up, and which began at the time since. The returned channel gets
// nil when the server has replied, or the error of the command. LastCall sends nothing, and returns nil, if the session does
// not ask for units, or if the server has not said since the wait began that others have them.
func (n *Name) LastCall(since time.Time) (heard <-chan error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if asks, _ := n.plan.Claimed(); !asks || n.denied.Before(since) {
		return nil
	}
	heard = n.callLocked(time.Now())
	n.carry(n.plan.Repeat())
	return heard
}

// NextWord returns a channel like that of LastCall, but sends nothing. It returns nil if the session does not ask for units, or
// if the server has answered since the given time.
func (n *Name) NextWord(since time.Time) (heard <-chan error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if asks, _ := n.plan.Claimed(); !asks || n.unheardLocked(since, n.denied) == nil {
		return nil
	}
	return n.callLocked(n.asked) // for the copy under way or, if there is none, the next one
}

// callLocked adds a lastCall for the copies that are sent at the given time or later, and returns its channel. n.mu is held.
func (n *Name) callLocked(at time.Time) <-chan error {
	c := lastCall{at, make(chan error, 1)}
	n.calls = append(n.calls, c)
	return c.heard
}

// heardLocked hands the result of a copy to each lastCall that waits for it. sent is when the copy was sent. err is nil if the
// server has replied to the copy, and otherwise says why the copy failed. n.mu is held.
func (n *Name) heardLocked(sent time.Time, err error) {
	n.calls = slices.DeleteFunc(n.calls, func(c lastCall) bool {
		heard := !sent.Before(c.at)
		if heard {
			c.heard <- err
		}
		return heard
	})
}

// Reason returns why a wait was expelled, nil if the session is being closed.
func (n *Name) Reason() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.plan.Closing() {
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

// Ref returns the name's Ref. A Name has one Ref for its whole life.
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
func (n *Name) expire() { n.event((*plan.Plan).Expire) }

// Refute takes the units from their users because the server no longer has them, unless a later claim was sent. It reports
// whether it took them.
func (n *Name) Refute(epoch uint64, why string) (lost bool) {
	n.event(func(p *plan.Plan, at *plan.Moment) (s plan.Step) {
		s, lost = p.Refute(at, epoch, why)
		return s
	})
	return lost
}

// Settled returns the units that the server should have for this session. settled is false if the server may have them under a
// later epoch: while a claim is under way, and after one that was refused although a copy may have been carried out.
func (n *Name) Settled() (h backend.SharedHolder, settled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.plan.Settled()
}

func (n *Name) abandon() (had bool) {
	n.event(func(p *plan.Plan, at *plan.Moment) plan.Step {
		had = n.tier.Look().InUse > 0
		return p.Lose(at, "the session was closed")
	})
	return had
}

// shut expels the waiters and later claims, and reports whether no user was inside or waited.
func (n *Name) shut() (idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	idle = n.tier.Idle()
	s := n.plan.Close()
	n.tier.Shut()
	n.carry(s)
	return idle
}

// repeat sends one more copy of the claim, after the copy under way if there is one.
func (n *Name) repeat() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note.doubt = n.note.text != "" // another server may have taken over, which does not have the note
	n.carry(n.plan.Repeat())
	n.noteLocked()
}

// wanted handles the message that another session waits (try is 0) or tries (try is not 0) or, if keepAtMost is Unlimited and
// try is 0, that none waits any more.
func (n *Name) wanted(keepAtMost int, try uint64) {
	n.event(func(p *plan.Plan, at *plan.Moment) plan.Step { return p.Wanted(at, keepAtMost, try) })
}

// pushed handles a grant that the server pushed.
func (n *Name) pushed(g backend.ShareGrant) {
	n.event(func(p *plan.Plan, at *plan.Moment) plan.Step { return p.Pushed(at, &g) })
}

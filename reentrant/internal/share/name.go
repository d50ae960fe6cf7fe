package share

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
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
	wake   chan struct{} // 1-buffered: there is something for run to look at

	refs int // room.mu: callers inside

	// until is when trust ends, in nanoseconds since the session was opened; 0 without units. Written under mu.
	until atomic.Int64

	// retired says that the room has forgotten the name; nothing is begun any more. Written under room.mu and mu.
	retired atomic.Bool

	mu      sync.Mutex // guards what follows
	limit   int        // a semaphore's permits, as the latest caller said
	running bool       // run is at work
	halted  bool       // the room has stopped: run never starts again
	closing bool

	// What the session has.
	units int           // never more than the tier hands out
	epoch uint64        // that settled them
	under backend.Token // First of the answer or push since which it has had some: the server knows them by that
	trust lease.Lease
	shaky bool // the last renewal was not answered

	// Of a read-write lock: the highest token under which users of this session can have read or written, and the last one
	// of the present block. Later readers come above that, although the server forgot the write.
	known, block backend.Token

	asked   bool // another session waits, and this one is to keep may units
	may     int
	turnEnd time.Time
	hint    int       // the least that was said to be kept since the latest copy was sent
	share   int       // of a semaphore: the session's share, as the last answer said
	topUp   time.Time // when to ask once more what the server did not give, or whether another session still waits
	rest    time.Time // when to look whether read units are idle

	// What it says.
	claim  *claim    // the share under way; nil: all is settled
	last   uint64    // the latest epoch that was sent
	owes   bool      // the server may have more of the session than units, or a place
	hush   time.Time // until then what is owed is not said again: the server refused it
	giveUp time.Time // when everything that is owed has expired
	err    error     // of the latest copy that was not carried out; nil after an answer
	heard  time.Time // when the latest answer came
	reason error     // why waiters were expelled
}

// A claim is one epoch: what the session keeps and wants.
type claim struct {
	epoch             uint64
	keep, want, least int
	limit             int
	under, tail, seen backend.Token
	hears             bool          // it asks whether another session still waits, and gives nothing back
	ahead             time.Duration // how far the wall clock was ahead before the latest copy was sent
	placed            bool          // the last answer said that it waits at the server
	tries             int           // copies without an answer, one after the other
	again             time.Time
	repeat            bool // the session was reconnected since the latest copy was sent
}

func (c *claim) asks() bool { return c.want > c.keep }

// Wake has the session look at what its users want. It is called after a call to the tier that reports so.
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

// run sends what there is to say, and ends when there is nothing to say and nothing to wait for.
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

// Limit sets the permits of a semaphore.
func (n *Name) Limit(permits int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.limit = permits
}

// Unheard is why a wait that began at some moment has ended in vain: the error of the last command, or that the server has
// not answered since, and then the session may have been given what was asked for. It is nil if the server has said that the
// units are others', or had not to be asked because owners of this session have them.
func (n *Name) Unheard(since time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil && n.claim != nil && n.heard.Before(since) {
		return backend.WithOutcomeUnknown(fmt.Errorf("no answer yet: %w", backend.ErrUnavailable))
	}
	return n.err
}

// Silent reports whether since then the server has neither answered nor failed to.
func (n *Name) Silent(since time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err == nil && n.heard.Before(since)
}

// Reason is why a wait was expelled; nil if the session is being closed.
func (n *Name) Reason() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return nil
	}
	return n.reason
}

// Tier is what Join was given.
func (n *Name) Tier() Tier { return n.tier }

// Kind is what Join was given.
func (n *Name) Kind() backend.ShareKind { return n.kind }

// Remote is the name as the server knows it.
func (n *Name) Remote() backend.Remote { return n.remote }

// Retired reports whether the room has forgotten the name: another one has its place.
func (n *Name) Retired() bool { return n.retired.Load() }

// Until is when the trust in the units ends as things stand.
func (n *Name) Until() time.Time { return n.room.env.Opened.Add(time.Duration(n.until.Load())) }

// Check takes the units from their users if the trust in them has ended and the keeper has not noticed yet.
func (n *Name) Check() {
	until := n.until.Load()
	if until == 0 || int64(time.Since(n.room.env.Opened)) < until {
		return
	}
	n.expire()
}

// expire ends what can no longer be trusted.
func (n *Name) expire() {
	n.mu.Lock()
	tell := func() {}
	if n.units > 0 && !n.trust.Trusted(time.Now()) {
		tell = n.loseLocked("the lease was not renewed in time")
		n.wakeLocked()
	}
	n.mu.Unlock()
	tell()
}

// Refute takes the units from their users because the server does not have them any more, if nothing was settled since.
func (n *Name) Refute(epoch uint64, why string) (lost bool) {
	n.mu.Lock()
	tell := func() {}
	if lost = n.units > 0 && n.claim == nil && n.epoch == epoch; lost {
		tell = n.loseLocked(why)
		n.wakeLocked()
	}
	n.mu.Unlock()
	tell()
	return lost
}

// Settled returns what the server should know of the session's units, and false while the session says something.
func (n *Name) Settled() (h backend.SharedHolder, settled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return backend.SharedHolder{Epoch: n.epoch, Units: n.units, Under: n.under}, n.claim == nil
}

func (n *Name) abandon() bool {
	n.mu.Lock()
	had := n.tier.Look().InUse > 0
	tell := n.loseLocked("the session was closed")
	n.wakeLocked()
	n.mu.Unlock()
	tell()
	return had
}

// shut begins the end, and reports whether no caller was inside or waited.
func (n *Name) shut() (idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	idle = n.tier.Idle()
	n.closing = true
	n.tier.Shut()
	n.wakeLocked()
	return idle
}

// repeat sends the claim once more, after the copy that is under way if there is one.
func (n *Name) repeat() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.claim != nil {
		n.claim.again, n.claim.repeat = time.Time{}, true
		n.wakeLocked()
	}
}

// wanted notes that another session waits. It may be about what an answer says that has not come in yet.
func (n *Name) wanted(may int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hint = min(n.hint, may)
	if n.units > may {
		n.askLocked(may)
		n.wakeLocked()
	}
}

// askLocked begins a turn, or changes what may be kept in it.
func (n *Name) askLocked(may int) {
	if n.asked && may == n.may {
		return
	}
	if !n.asked {
		now := time.Now()
		n.turnEnd, n.topUp = now.Add(n.room.env.Turn), now.Add(n.room.env.Heartbeat)
	}
	n.asked, n.may = true, may
	n.tier.Ask(may, n.room.env.Passes, n.turnEnd.Sub(n.room.env.Opened))
}

// trustLocked gives the units a lease, which is never shorter than the one they have.
func (n *Name) trustLocked(t lease.Lease) {
	if n.trust.Until().After(t.Until()) {
		return
	}
	n.trust = t
	until := t.Until().Sub(n.room.env.Opened)
	n.until.Store(int64(until))
	n.tier.Trust(until)
	n.room.keeper.expect(t.Wake())
}

// haveLocked is what the session has from now on: with no units there is no trust either.
func (n *Name) haveLocked(units int) {
	if n.units = units; units == 0 {
		n.trust, n.under, n.shaky, n.rest = lease.Lease{}, 0, false, time.Time{}
		n.asked, n.may = false, 0
		n.until.Store(0)
	}
}

// loseLocked takes the units from all users, who are told by the function that it returns: it is called without a mutex.
// What the server may still have is owed. A claim that names units to be kept is over.
func (n *Name) loseLocked(why string) (tell func()) {
	tell = n.tier.Lose(why)
	if n.units > 0 {
		n.oweLocked()
	}
	if n.units == backend.AllUnits {
		n.known = max(n.known, n.block) // which of them were used is not known
	}
	n.haveLocked(0)
	if n.claim != nil && n.claim.keep > 0 {
		n.claim = nil
		n.oweLocked()
	}
	return tell
}

// oweLocked notes that the server may have something that the session does not count on.
func (n *Name) oweLocked() {
	n.owes = true
	n.giveUp = time.Now().Add(n.room.env.Lease + n.room.env.Patience + n.room.env.Command)
}

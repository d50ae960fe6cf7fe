package exclusive

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Watchdog maintains a session's leases: it renews them every third of their length, all that are due in one batch,
// and declares a hold lost at the moment its lease can no longer be trusted, whatever is in flight. Two goroutines do
// it for all locks of the session, so that a renewal that hangs does not delay a loss.
type Watchdog struct {
	s       *Room
	nudge   chan struct{} // 1-buffered: a lease ends before the watch would wake
	batches chan batch
	idle    chan struct{} // 1-buffered: the renewer has finished and is free
	quit    chan struct{}
	done    sync.WaitGroup

	// Leases that were last renewed before refreshed are renewed at once: there may be another server since. Guarded by
	// session.mu.
	refreshed time.Time

	// WakesAt is when the watch wakes by itself, in nanoseconds since origin. While the watch looks at the holds it is
	// never, so that a hold that is added too late to be seen nudges the watch.
	WakesAt atomic.Int64
	Origin  time.Time
}

const never = math.MaxInt64

// maxSleep bounds how long the watch sleeps while there are holds: so soon after waking it notices that the machine was
// suspended.
const maxSleep = time.Second

func newWatchdog(s *Room) *Watchdog {
	w := &Watchdog{
		s: s, nudge: make(chan struct{}, 1), batches: make(chan batch), idle: make(chan struct{}, 1),
		quit: make(chan struct{}), Origin: time.Now(),
	}
	w.WakesAt.Store(never)
	return w
}

func (w *Watchdog) start() {
	w.done.Go(w.watch)
	w.done.Go(w.renew)
}

func (w *Watchdog) stop() {
	close(w.quit)
	w.done.Wait()
}

// stopped reports whether stop has begun.
func (w *Watchdog) stopped() bool {
	select {
	case <-w.quit:
		return true
	default:
		return false
	}
}

// WakeBy makes sure that the watch wakes by then.
func (w *Watchdog) WakeBy(at time.Time) {
	if at.Sub(w.Origin) < time.Duration(w.WakesAt.Load()) {
		select {
		case w.nudge <- struct{}{}:
		default:
		}
	}
}

// refreshLocked makes the renewer renew every lease at once. session.mu is held.
func (w *Watchdog) refreshLocked() {
	w.refreshed = time.Now()
	w.WakeBy(w.refreshed)
}

func (w *Watchdog) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	renewing, nudged := false, false
	for {
		now := time.Now()
		w.WakesAt.Store(never)
		due, ended, idle, wake := w.inspectAll(now, w.s.core.Ahead(), renewing)
		if nudged {
			// The hold that it was woken for may be on its way from one owner to the next. If it went to sleep now, it
			// would be woken again at every such moment.
			wake = core.Earlier(wake, now.Add(maxSleep))
		}
		for _, e := range idle {
			w.s.core.Cleaner.Do(e.stopLingering)
		}
		for _, x := range ended {
			if x.wasLost {
				x.e.evict(x.epoch, true)
			} else {
				x.e.Lose(x.epoch, "the lease was not renewed in time")
			}
			w.s.PutState(x.e)
		}
		if len(due.states) > 0 {
			renewing = true
			w.batches <- due
		}
		w.WakesAt.Store(int64(wake.Sub(w.Origin)))
		timer.Reset(time.Until(wake))
		nudged = false
		select {
		case <-timer.C:
		case <-w.nudge:
			nudged = true
		case <-w.idle:
			renewing = false
		case <-w.quit:
			close(w.batches)
			return
		}
	}
}

// A batch is the holds that are renewed together, and their lock states in the same order. It has no references, so a
// lock state may serve another lock when the reply comes.
type batch struct {
	renewals []backend.Renewal
	states   []*State
}

func (b *batch) add(e *State, h *Hold) {
	b.renewals = append(b.renewals, backend.Renewal{Remote: e.remote, Epoch: h.Epoch, Lease: h.span})
	b.states = append(b.states, e)
}

// expiry is a hold whose lease is over, with a reference to its lock state.
type expiry struct {
	e       *State
	epoch   uint64
	wasLost bool // its owner has been notified, and the margin after that is over too
}

// inspectAll checks every hold: which are due for renewal, which are over, which have been idle for long enough, and
// when to check again. The holds that it returns come with a reference to their lock states.
func (w *Watchdog) inspectAll(now time.Time, ahead time.Duration, renewing bool) (due batch, ended []expiry, idle []*State, wake time.Time) {
	wake = now.Add(maxSleep)
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	held := false
	for _, e := range s.states {
		e.mu.Lock()
		h := &e.Hold
		if h.Owned() || h.inheritable() {
			slept := h.Lease.Slept(now, ahead)
			if h.Owned() && slept.Trust < h.Lease.Trust {
				e.scheduleCheckLocked()
			}
			e.trustLocked(slept)
		}
		switch {
		case h.phase == phaseLost && now.Before(h.Lease.End()):
			wake, held = core.Earlier(wake, h.Lease.End()), true
		case h.phase == phaseLost, h.Owned() && !h.Lease.Trusted(now):
			e.refs++
			ended = append(ended, expiry{e, h.Epoch, h.phase == phaseLost})
			held = true
		case h.phase == phaseIdle && (now.Sub(s.core.Opened) >= e.lingerUntil || !h.Lease.Trusted(now)):
			e.lingerUntil = now.Sub(s.core.Opened) + maxSleep // in case an owner that is about to inherit it does not do so
			if e.startDismissalLocked() {
				e.refs++
				idle = append(idle, e)
			}
		case !h.Owned() && (!h.inheritable() || !h.cohort || !h.Lease.Trusted(now)):
		case !renewing && w.dueLocked(h, now):
			due.add(e, h)
			wake, held = core.Earlier(wake, h.Lease.Until()), true
		case renewing:
			wake, held = core.Earlier(wake, h.Lease.Until()), true
		default:
			wake, held = core.Earlier(wake, h.Lease.Wake()), true
		}
		if h.phase == phaseIdle {
			wake, held = core.Earlier(wake, s.core.Opened.Add(e.lingerUntil)), true
		}
		e.mu.Unlock()
	}
	if !held {
		wake = w.Origin.Add(never / 2)
	}
	return due, ended, idle, wake
}

// dueLocked reports whether a hold is due for renewal. session.mu and the lock state's mu are held.
func (w *Watchdog) dueLocked(h *Hold, now time.Time) bool {
	stale := h.Lease.Sent.Before(w.refreshed) && !h.Lease.Fixed() && !h.renewalFailed
	return stale || h.Lease.Due(now, h.slack())
}

// slack is how much earlier than due a renewal may be, to share a batch. One that is tried again keeps its pause.
func (h *Hold) slack() time.Duration {
	if h.renewalFailed {
		return 0
	}
	return h.Lease.Length / 10
}

// renew sends the batches.
func (w *Watchdog) renew() {
	for due := range w.batches {
		ctx, cancel := context.WithTimeout(context.Background(), w.s.core.Config.CommandTimeout)
		sent, ahead := time.Now(), w.s.core.Ahead()
		w.s.core.Counts.Commands.Add(1)
		w.s.core.Conn.Renew(ctx, due.renewals)
		cancel()
		now := time.Now()
		for i, e := range due.states {
			r := &due.renewals[i]
			r.Err = core.WrapUnavailable(context.Background(), r.Err)
			w.renewed(e, r, sent, ahead, now)
		}
		select {
		case w.idle <- struct{}{}:
		default:
		}
	}
}

// renewed handles the reply for one hold. The hold may have ended and the lock state may serve another lock by now:
// epochs are never used twice, so a reply for another epoch is ignored.
func (w *Watchdog) renewed(e *State, r *backend.Renewal, sent time.Time, ahead time.Duration, now time.Time) {
	e.mu.Lock()
	h := &e.Hold
	current := (h.Owned() || h.inheritable()) && h.Epoch == r.Epoch
	was := h.renewalFailed
	switch {
	case !current:
	case r.Gone && h.phase == phaseReleasing: // if it is not given up after all, the next renewal finds out
		h.Lease = h.Lease.Retried(now)
		current = false
	case r.Gone:
	case r.Err != nil:
		h.renewalFailed = true
		h.Lease = h.Lease.Retried(now)
	default:
		h.renewalFailed = false
		e.trustLocked(lease.New(sent, ahead, h.span, false))
		e.renewNoteLocked(now)
	}
	e.mu.Unlock()
	switch {
	case !current:
	case r.Gone:
		w.loseGone(r)
	case r.Err != nil && !was:
		w.s.core.Report(context.Background(), core.Event{Kind: core.EventRenewalFailing, Lock: r.Remote.Name(), Err: r.Err})
	case r.Err == nil:
		w.s.core.Counts.Renewals.Add(1)
		if was {
			w.s.core.Report(context.Background(), core.Event{Kind: core.EventRenewalRecovered, Lock: r.Remote.Name()})
		}
	}
}

// loseGone loses a hold that Redis no longer has.
func (w *Watchdog) loseGone(r *backend.Renewal) {
	if e := w.s.FindState(r.Remote.Name()); e != nil {
		e.Lose(r.Epoch, "Redis no longer had it at renewal")
		e.evict(r.Epoch, false)
		w.s.PutState(e)
	}
}

// abandonAll loses every hold of the session. Portable ones stay in Redis with WithPortableHoldsLeft.
func (w *Watchdog) abandonAll() {
	s := w.s
	type abandoned struct {
		expiry
		left bool
	}
	var held []abandoned
	s.core.Abandoned.Store(true)
	s.mu.Lock()
	for _, e := range s.states {
		e.mu.Lock()
		if e.Hold.Owned() || e.Hold.phase == phaseLost {
			e.refs++
			left := s.core.Config.LeavesPortable && e.Hold.Owned() && core.IsPortable(e.Hold.Owner)
			held = append(held, abandoned{expiry{e: e, epoch: e.Hold.Epoch}, left})
			if left {
				s.leftHolds.Add(1)
			} else {
				s.abandonedHolds.Add(1)
			}
		}
		e.mu.Unlock()
	}
	s.mu.Unlock()
	for _, x := range held {
		why := "the session was closed"
		if x.left {
			why = "the session was closed, and the hold is left to be resumed"
		}
		x.e.Lose(x.epoch, why)
		x.e.evict(x.epoch, !x.left)
		s.PutState(x.e)
	}
}

// evict takes the baton from the owner of a lost hold and passes it to the next, unless the owner is giving it up
// itself. If there is no next owner to take over what Redis may still have, the session gives that back. The caller has
// a reference to the lock state.
func (e *State) evict(epoch uint64, mayBeThere bool) {
	e.mu.Lock()
	h := e.Hold
	holds := e.Queue.HoldCount(h.Owner)
	evicted := h.phase == phaseLost && h.Epoch == epoch && e.Queue.Evict(h.Owner)
	if evicted {
		e.oweLocked(holds)
		e.clearLocked()
	}
	remote, name := e.remote, e.name
	e.mu.Unlock()
	if !evicted {
		return
	}
	if mayBeThere && e.Queue.Idle() {
		e.s.core.Cleaner.Do(func() { e.s.ReleaseOrphan(remote, name, epoch) })
	}
	e.s.PutState(e)
}

// notifyLost reports a lost hold: first to its owner, who must stop. No mutex is held.
func (s *Room) notifyLost(name string, h Hold, why string) {
	h.notifyLoss()
	s.reportLost(name, h, why)
}

// notifyLoss wakes the owners that must stop because the hold is lost. No mutex is held.
func (h *Hold) notifyLoss() {
	if h.notifier != nil {
		h.notifier.Notify()
	}
}

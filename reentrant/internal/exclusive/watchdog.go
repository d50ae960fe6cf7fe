package exclusive

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
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
		found := w.inspectAll(now, w.s.core.Ahead(), renewing)
		wake := found.wake
		if nudged {
			// The hold that it was woken for may be on its way from one owner to the next. If it went to sleep now, it
			// would be woken again at every such moment.
			wake = core.Earlier(wake, now.Add(maxSleep))
		}
		w.carryOut(&found)
		if len(found.due.states) > 0 {
			renewing = true
			w.batches <- found.due
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

func (b *batch) add(st *State) {
	b.renewals = append(b.renewals, backend.Renewal{Remote: st.remote, Epoch: st.m.Epoch(), Lease: st.m.Span()})
	b.states = append(b.states, st)
}

// An expiry is a lost hold whose lease is over in Redis too, with a reference to its lock state.
type expiry struct {
	st    *State
	epoch uint64
}

// A survey is what there is to do for the holds. Lock states come with a reference, but for those of due.
type survey struct {
	due   batch
	lost  []Hold   // their owners are to be notified
	ended []expiry // the baton is to be taken from their owners
	idle  []*State // they have lingered for long enough
	wake  time.Time
}

// inspectAll asks the machine of each lock what there is to do, and when to ask again.
func (w *Watchdog) inspectAll(now time.Time, ahead time.Duration, renewing bool) (found survey) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	at := machine.Moment{Options: &s.options, Now: now, Ahead: ahead}
	known := machine.Survey{Renewing: renewing, Refreshed: w.refreshed}
	found.wake = w.Origin.Add(never / 2)
	for _, st := range s.states {
		st.mu.Lock()
		step := st.m.Tick(&at, known)
		if st.m.Epoch() != 0 {
			st.trustLocked()
		}
		found.addLocked(st, &step)
		if step.Wake.IsZero() && step.Do != machine.Nothing {
			step.Wake = now.Add(maxSleep) // in case it cannot be carried out now
		}
		if !step.Wake.IsZero() {
			found.wake = core.Earlier(found.wake, core.Earlier(step.Wake, now.Add(maxSleep)))
		}
		st.mu.Unlock()
	}
	return found
}

// addLocked adds what a step says. The mutexes of the lock state and of the room are held.
func (f *survey) addLocked(st *State, step *machine.Step) {
	if step.Check {
		st.checkLocked()
	}
	switch step.Do {
	case machine.Lose:
		h := st.holdLocked()
		st.recordLossLocked(&h, step.Why)
		f.lost = append(f.lost, h)
	case machine.Evict:
		st.refs++
		f.ended = append(f.ended, expiry{st, st.m.Epoch()})
	case machine.Dismiss:
		st.refs++
		f.idle = append(f.idle, st)
	case machine.Renew:
		f.due.add(st)
	}
}

// carryOut carries out what was found, but for the renewals.
func (w *Watchdog) carryOut(f *survey) {
	for i := range f.lost {
		f.lost[i].notifyLoss()
	}
	for _, st := range f.idle {
		w.s.core.Cleaner.Do(st.stopLingering)
	}
	for _, x := range f.ended {
		x.st.evict(x.epoch, true)
		w.s.PutState(x.st)
	}
}

// renew sends the batches.
func (w *Watchdog) renew() {
	for due := range w.batches {
		ctx, cancel := context.WithTimeout(context.Background(), w.s.core.Config.CommandTimeout)
		sent, ahead := time.Now(), w.s.core.Ahead()
		w.s.core.Counts.Commands.Add(1)
		w.s.core.Conn.Renew(ctx, due.renewals)
		cancel()
		for i, st := range due.states {
			r := &due.renewals[i]
			r.Err = core.WrapUnavailable(context.Background(), r.Err)
			w.renewed(st, r, sent, ahead)
		}
		select {
		case w.idle <- struct{}{}:
		default:
		}
	}
}

// renewed handles the reply for one hold. The hold may have ended and the lock state may serve another lock by now:
// the machine ignores a reply for another epoch.
func (w *Watchdog) renewed(st *State, r *backend.Renewal, sent time.Time, ahead time.Duration) {
	if r.Gone {
		w.loseGone(r, sent, ahead)
		return
	}
	step := st.renewed(r, sent, ahead)
	switch {
	case step.Do != machine.Extended:
	case step.Failing:
		w.s.core.Report(context.Background(), core.Event{Kind: core.EventRenewalFailing, Lock: r.Remote.Name(), Err: r.Err})
	case r.Err == nil:
		w.s.core.Counts.Renewals.Add(1)
		if step.Recovered {
			w.s.core.Report(context.Background(), core.Event{Kind: core.EventRenewalRecovered, Lock: r.Remote.Name()})
		}
	}
}

// renewed has the machine handle the reply, and notifies the owner of a hold that is lost.
func (st *State) renewed(r *backend.Renewal, sent time.Time, ahead time.Duration) machine.Step {
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	step := st.m.Renewed(&at, machine.Renewed{Epoch: r.Epoch, Gone: r.Gone, Failed: r.Err != nil, Sent: sent, Ahead: ahead})
	if step.Do == machine.Extended {
		st.trustLocked()
		if r.Err == nil {
			st.renewNoteLocked(at.Now)
		}
	}
	st.carryOutLoss(step)
	return step
}

// loseGone loses a hold that Redis no longer has. Its lock state needs a reference for that.
func (w *Watchdog) loseGone(r *backend.Renewal, sent time.Time, ahead time.Duration) {
	if st := w.s.FindState(r.Remote.Name()); st != nil {
		st.renewed(r, sent, ahead)
		st.evict(r.Epoch, false)
		w.s.PutState(st)
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
	for _, st := range s.states {
		st.mu.Lock()
		if st.m.Owned() || st.m.Phase() == machine.Lost {
			st.refs++
			left := s.core.Config.LeavesPortable && st.m.Owned() && core.IsPortable(st.m.Owner())
			held = append(held, abandoned{expiry{st: st, epoch: st.m.Epoch()}, left})
			if left {
				s.leftHolds.Add(1)
			} else {
				s.abandonedHolds.Add(1)
			}
		}
		st.mu.Unlock()
	}
	s.mu.Unlock()
	for _, x := range held {
		why := "the session was closed"
		if x.left {
			why = "the session was closed, and the hold is left to be resumed"
		}
		x.st.Lose(x.epoch, why)
		x.st.evict(x.epoch, !x.left)
		s.PutState(x.st)
	}
}

// evict takes the baton from the owner of a lost hold and passes it to the next, unless the owner is giving it up
// itself. If there is no next owner to take over what Redis may still have, the session gives that back. The caller has
// a reference to the lock state.
func (st *State) evict(epoch uint64, mayBeThere bool) {
	st.mu.Lock()
	owner, fixed := st.m.Owner(), st.m.Lease().Fixed()
	holds := st.Queue.HoldCount(owner)
	evicted := st.m.Phase() == machine.Lost && st.m.Epoch() == epoch && st.Queue.Evict(owner)
	if evicted {
		st.oweLocked(owner, fixed, holds)
		st.m.Evicted()
		st.disownLocked()
	}
	remote, name := st.remote, st.name
	st.mu.Unlock()
	if !evicted {
		return
	}
	if mayBeThere && st.Queue.Idle() {
		st.s.core.Cleaner.Do(func() { st.s.ReleaseOrphan(remote, name, epoch) })
	}
	st.s.PutState(st)
}

// notifyLost reports a lost hold: first to its owner, who must stop. No mutex is held.
func (s *Room) notifyLost(name string, h *Hold, why string) {
	h.notifyLoss()
	s.reportLost(name, h, why)
}

// notifyLoss wakes the owners that must stop because the hold is lost. No mutex is held.
func (h *Hold) notifyLoss() {
	if h.notifier != nil {
		h.notifier.Notify()
	}
}

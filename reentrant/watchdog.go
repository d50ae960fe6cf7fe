package reentrant

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A watchdog keeps a session's leases: it has them renewed every third of their length, all that are due in one
// batch, and declares a hold lost at the moment its lease can no longer be trusted, whatever is in flight. Two
// goroutines do it for all locks of the session, so that a renewal that hangs does not delay a loss.
type watchdog struct {
	s       *Session
	nudge   chan struct{} // 1-buffered: a lease ends before the watch would wake
	batches chan []Renewal
	idle    chan struct{} // 1-buffered: the renewer has answered and is free
	quit    chan struct{}
	done    sync.WaitGroup

	// asleep is when the watch wakes by itself, in nanoseconds since origin; never while it looks at the holds, so
	// that one that comes too late to be seen nudges it.
	asleep atomic.Int64
	origin time.Time
}

const never = math.MaxInt64

// doze bounds how long the watch sleeps while anything is held: a suspended machine is noticed that soon after.
const doze = time.Second

func newWatchdog(s *Session) *watchdog {
	w := &watchdog{
		s: s, nudge: make(chan struct{}, 1), batches: make(chan []Renewal), idle: make(chan struct{}, 1),
		quit: make(chan struct{}), origin: time.Now(),
	}
	w.asleep.Store(never)
	return w
}

func (w *watchdog) start() {
	w.done.Go(w.watch)
	w.done.Go(w.renew)
}

func (w *watchdog) stop() {
	close(w.quit)
	w.done.Wait()
	w.s.horizon.close()
}

// expect makes sure that the watch wakes by then.
func (w *watchdog) expect(at time.Time) {
	if at.Sub(w.origin) < time.Duration(w.asleep.Load()) {
		select {
		case w.nudge <- struct{}{}:
		default:
		}
	}
}

func (w *watchdog) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	renewing := false
	last := time.Now()
	for {
		now := time.Now()
		slept := suspended(last, now)
		last = now
		w.asleep.Store(never)
		batch, ended, wake := w.survey(now, slept, renewing)
		for _, x := range ended {
			x.e.lose(x.epoch, "the lease was not renewed in time", true)
			w.s.leave(x.e, 1)
		}
		if len(batch) > 0 {
			renewing = true
			w.batches <- batch
		}
		w.asleep.Store(int64(wake.Sub(w.origin)))
		timer.Reset(time.Until(wake))
		select {
		case <-timer.C:
		case <-w.nudge:
		case <-w.idle:
			renewing = false
		case <-w.quit:
			close(w.batches)
			return
		}
	}
}

// expiry is a hold whose lease is over, with a reference to its entry.
type expiry struct {
	e     *entry
	epoch uint64
}

// survey looks at every hold: which are to be renewed, which are over, and when to look again.
func (w *watchdog) survey(now time.Time, slept, renewing bool) (batch []Renewal, ended []expiry, wake time.Time) {
	wake = now.Add(doze)
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	held := false
	for _, e := range s.entries {
		e.mu.Lock()
		h := &e.hold
		switch {
		case !h.live:
		case !h.lease.trusted(now):
			e.refs++
			ended = append(ended, expiry{e, h.epoch})
		case !renewing && (h.lease.due(now, h.lease.length/10) || slept && !h.lease.renewAt.IsZero()):
			batch = append(batch, Renewal{Remote: e.remote, Epoch: h.epoch, Lease: h.span, entry: e})
			wake, held = earlier(wake, h.lease.until), true
		case renewing:
			wake, held = earlier(wake, h.lease.until), true
		default:
			wake, held = earlier(wake, h.lease.wake()), true
		}
		e.mu.Unlock()
	}
	if !held {
		wake = w.origin.Add(never / 2)
	}
	return batch, ended, wake
}

// renew sends the batches.
func (w *watchdog) renew() {
	for batch := range w.batches {
		ctx, cancel := context.WithTimeout(context.Background(), w.s.config.commandTimeout())
		sent := time.Now()
		w.s.stats.commands.Add(1)
		w.s.conn.Renew(ctx, batch)
		cancel()
		now := time.Now()
		for i := range batch {
			w.renewed(&batch[i], sent, now)
		}
		select {
		case w.idle <- struct{}{}:
		default:
		}
	}
}

// renewed takes in the answer for one hold. The hold may have ended and the entry may serve another lock by now:
// epochs are never used twice, so an answer for another epoch says nothing.
func (w *watchdog) renewed(r *Renewal, sent, now time.Time) {
	e := r.entry
	e.mu.Lock()
	h := &e.hold
	current := h.live && h.epoch == r.Epoch
	was := h.failed
	switch {
	case !current:
	case r.Gone:
	case r.Err != nil:
		h.failed = true
		h.lease = h.lease.retried(now)
	default:
		h.failed = false
		h.lease = newLease(sent, h.span, false)
	}
	e.mu.Unlock()
	log := w.s.config.logger
	switch {
	case !current:
	case r.Gone:
		w.gone(r)
	case r.Err != nil && !was:
		log.Warn("renewal failing", "lock", r.Remote.Name(), "error", r.Err)
	case r.Err == nil:
		w.s.stats.renewals.Add(1)
		if was {
			log.Info("renewal recovered", "lock", r.Remote.Name())
		}
	}
}

// gone loses a hold that Redis no longer has.
func (w *watchdog) gone(r *Renewal) {
	if e := w.s.find(r.Remote.Name()); e != nil {
		e.lose(r.Epoch, "Redis no longer had it at renewal", false)
		w.s.leave(e, 1)
	}
}

// abandonAll loses every hold of the session, and tells how many there were.
func (w *watchdog) abandonAll() int {
	s := w.s
	var held []expiry
	s.mu.Lock()
	for _, e := range s.entries {
		e.mu.Lock()
		if e.hold.live {
			e.refs++
			held = append(held, expiry{e, e.hold.epoch})
		}
		e.mu.Unlock()
	}
	s.mu.Unlock()
	for _, x := range held {
		x.e.lose(x.epoch, "the session was closed", true)
		s.leave(x.e, 1)
	}
	return len(held)
}

// lose ends a hold whose lease is over: first its owner is told, then the baton goes to the next, unless the owner is
// in the middle of an operation, which then finds out and gives it on. What Redis may still have is given back if
// nobody is next to take it over. The caller has a reference to the entry.
func (e *entry) lose(epoch uint64, why string, mayBeThere bool) {
	e.mu.Lock()
	h := e.hold
	if !h.live || h.epoch != epoch {
		e.mu.Unlock()
		return
	}
	e.hold.live, e.hold.lost = false, true
	e.mu.Unlock()
	e.s.lost(e.name, h, why)
	if !e.evict(epoch) {
		return
	}
	if mayBeThere && e.queue.Idle() {
		remote, name := e.remote, e.name
		e.s.cleaner.do(func() { e.s.disown(remote, name, epoch) })
	}
	e.s.leave(e, 1)
}

// evict takes the baton from the owner of a lost hold; false if the owner is giving it up itself.
func (e *entry) evict(epoch uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.hold
	if !h.lost || h.epoch != epoch {
		return false
	}
	holds := e.queue.HoldCount(h.owner)
	if !e.queue.Evict(h.owner) {
		return false
	}
	// On record before the mutex is free: the owner's Unlock looks there under it.
	e.s.losses.add(e.name, h.owner, holds)
	e.hold = hold{}
	return true
}

// lost tells everybody who wants to know that a hold is lost.
func (s *Session) lost(name string, h hold, why string) {
	s.stats.lost.Add(1)
	s.config.logger.Error("lock lost", "lock", name, "owner", h.owner, "token", h.token, "reason", why)
	if h.signal != nil {
		h.signal.fire()
	}
}

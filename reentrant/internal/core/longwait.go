package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
)

// A Sighting is what the session knows of the holders of a name.
type Sighting struct {
	Holders []Holder
	State   *backend.State       // of a Lock
	Shared  *backend.SharedState // of a read-write lock or a semaphore
	Err     error                // why the server did not answer, if it had to be asked and no holder is known
}

// Into copies what was seen into the event of a wait.
func (s *Sighting) Into(e *Event) {
	e.Holders, e.State, e.Shared, e.Err = s.Holders, s.State, s.Shared, s.Err
}

// A LongWait is a wait in this process's queue, which is reported once it takes longer than the session's lease.
type LongWait struct {
	s     *Session
	outer *Running // the innermost Do in whose context the call was made; nil if there is none
	Begun time.Time
	event Event
	look  func(limit time.Duration) Sighting // looks at who has what the call waits for; it may ask the server, for limit at most
	timer *time.Timer
}

// WatchWait has a wait reported when it takes longer than the lease. event has the name, and what is asked for. In a session
// without an observer and a log WatchWait does nothing, and returns nil.
func (s *Session) WatchWait(ctx context.Context, event Event, look func(limit time.Duration) Sighting) *LongWait {
	if !s.Warns {
		return nil
	}
	event.Kind = EventWaitingLong
	w := &LongWait{s: s, outer: RunningIn(ctx), Begun: time.Now(), event: event, look: look}
	w.timer = time.AfterFunc(s.Config.Lease, func() { s.longWaits.add(w) })
	return w
}

// Stop ends the watch at the end of the wait, and reports whether the wait was reported.
func (w *LongWait) Stop() (reported bool) { return w != nil && !w.timer.Stop() }

// longWaits are the looks at the holders of names for which calls have waited long. A look serves all calls that come
// while it is new, since thousands may wait for one name.
type longWaits struct {
	mu    sync.Mutex // a leaf
	looks map[waitedFor]*look
}

// A waitedFor is the name of a Lock or, if shared is true, of a read-write lock or a semaphore.
type waitedFor struct {
	name   string
	shared bool
}

// A look finds out once who the holders of a name are. longWaits.mu guards it.
type look struct {
	done chan struct{} // closed when the look is done
	seen Sighting      // does not change once the look is done
	due  []*LongWait   // the waits to be reported when the look is done
}

// lookAge is for how long a look counts as new.
const lookAge = time.Second

func (w *LongWait) key() waitedFor { return waitedFor{w.event.Lock, w.event.Mode != ModeLock} }

// lookLocked returns the latest look at a name if it is new or under way, and otherwise another one, which the caller has to
// take. l.mu is held.
func (l *longWaits) lookLocked(of waitedFor) (k *look, known bool) {
	if k, known = l.looks[of]; known {
		return k, true
	}
	k = &look{done: make(chan struct{})}
	if l.looks == nil {
		l.looks = make(map[waitedFor]*look)
	}
	l.looks[of] = k
	return k, false
}

// isDone reports whether the look is done.
func (l *look) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// add reports a wait, immediately if there is a look that is done and still new, and otherwise when a look is done.
func (l *longWaits) add(w *LongWait) {
	l.mu.Lock()
	k, known := l.lookLocked(w.key())
	done := k.isDone()
	if !done {
		k.due = append(k.due, w)
	}
	l.mu.Unlock()
	switch {
	case !known:
		w.s.Checks.Do(func() { l.take(w, k) })
	case done:
		w.report(k.seen)
	}
}

// take takes the look k for w and for the waits that come meanwhile.
func (l *longWaits) take(w *LongWait, k *look) {
	var seen Sighting
	if w.s.TakesWarnings() {
		seen = w.look(w.s.Config.CommandTimeout)
	}
	l.finish(w.key(), k, seen)
}

// finish records what a look has seen, reports the waits that came meanwhile, and forgets the look when it is no longer new.
func (l *longWaits) finish(of waitedFor, k *look, seen Sighting) {
	l.mu.Lock()
	k.seen = seen
	close(k.done)
	due := k.due
	k.due = nil
	l.mu.Unlock()
	for _, w := range due {
		w.report(seen)
	}
	time.AfterFunc(lookAge, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.looks, of)
	})
}

// see returns what the latest look at a name has seen, if that look is new, and otherwise takes another one. It waits for
// limit at most.
func (l *longWaits) see(of waitedFor, limit time.Duration, look func(limit time.Duration) Sighting) Sighting {
	l.mu.Lock()
	k, known := l.lookLocked(of)
	l.mu.Unlock()
	if !known {
		l.finish(of, k, look(limit))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-k.done:
		return k.seen
	case <-timer.C:
		return Sighting{}
	}
}

// report reports the wait, with what a look has seen.
func (w *LongWait) report(seen Sighting) {
	e := w.event
	seen.Into(&e)
	w.s.ReportLongWait(w.outer, e, w.Begun)
}

// ReportLongWait reports a wait that began at the given time, of a call that was made in the context of the Do outer, which
// is nil if there was none.
func (s *Session) ReportLongWait(outer *Running, e Event, begun time.Time) {
	e.Wait, e.OfParent, e.Holders = time.Since(begun), outer.has(s, e.Lock), s.othersThan(e.Owner, e.Holders)
	s.Report(context.Background(), e)
}

// othersThan returns the holders without the caller that waits. The caller may have got the lock before its own look was done,
// or have had it at the time of a look that another call took.
func (s *Session) othersThan(caller Owner, holders []Holder) []Holder {
	isCaller := func(h Holder) bool { return h.Session == s.ID && h.Owner == caller.String() }
	if !slices.ContainsFunc(holders, isCaller) {
		return holders
	}
	return slices.DeleteFunc(slices.Clone(holders), isCaller) // other callers use the same look
}

// AskForHolder asks the server for the holder of a lock, for limit at most, and no longer than ctx lasts.
func (s *Session) AskForHolder(ctx context.Context, remote backend.Remote, limit time.Duration) (seen Sighting) {
	s.Counts.Commands.Add(1)
	sent := time.Now()
	st, err := remote.Inspect(s.Deadlines.Context(ctx, sent, sent.Add(limit)))
	if err == nil {
		err = check.State(&st)
	}
	if seen.Err = WrapUnavailable(context.Background(), err); err == nil {
		seen.State, seen.Holders = &st, HoldersOf(&st)
	}
	return seen
}

// HoldersOf returns the holder of a lock, if it has one.
func HoldersOf(st *backend.State) []Holder {
	if !st.Locked {
		return nil
	}
	return []Holder{{Session: st.Session, Owner: st.Owner, Note: st.Note, Since: st.Since, Unlocked: st.Unlocked}}
}

// TimeOf returns when a token was given out, zero if that is not known. Tokens come from the server's clock, so a token that
// is not ahead of the local clock shows the moment, as far as the two clocks agree.
func TimeOf(t backend.Token) time.Time {
	if at := time.UnixMicro(int64(t)); at.Before(time.Now()) {
		return at
	}
	return time.Time{}
}

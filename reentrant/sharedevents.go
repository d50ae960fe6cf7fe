package reentrant

import (
	"container/list"
	"context"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
	"github.com/relock-go/relock/sharedqueue"
)

// A sharedCall is what the events of a call need of it. It is made before any mutex is taken, since the context is the
// caller's code. The local queue keeps it for the admission, which may be another goroutine's work.
type sharedCall struct {
	ctx   context.Context
	owner Owner // of permits: the queue of an RWLock knows the owner
	begun time.Time
}

// callOf returns the call for its events; nil in a session that reports none.
func (s *session) callOf(ctx context.Context, begun time.Time) *sharedCall {
	if !s.core.Reporting {
		return nil
	}
	return &sharedCall{ctx, core.CurrentOwner(ctx), begun}
}

// from returns the call with another beginning.
func (c *sharedCall) from(begun time.Time) *sharedCall {
	if c == nil {
		return nil
	}
	return &sharedCall{c.ctx, c.owner, begun}
}

// reportFailed reports that a call that asked for a side, or for permits, did not get them.
func (x *sharedName) reportFailed(ctx context.Context, mode Mode, permits int, t exclusive.Try, err error) {
	if !x.session.core.Reporting {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	x.session.core.Report(ctx, Event{Kind: EventFailed, Lock: x.name, Mode: mode, Permits: permits, Owner: core.CurrentOwner(ctx), Wait: time.Since(t.Begun), Err: err})
}

// leave calls exit, in which the caller gives up a hold.
func (a *alarm) leave(call *sharedCall, exit func()) {
	if call == nil {
		exit()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaveLocked(call, exit)
}

// leaveLocked calls exit, in which the caller gives up holds or permits. a.mu is held.
func (a *alarm) leaveLocked(call *sharedCall, exit func()) {
	a.leaving = call
	exit()
	a.leaving = nil
}

// event returns the event of a change, without what only one kind of name has. admitted is the call that was admitted, if
// one was. The queue's mutex is held.
func (a *alarm) event(o sharedqueue.Outcome, admitted any) (context.Context, Event) {
	e := Event{Kind: EventReleased, Lock: a.name}
	switch o {
	case sharedqueue.Admitted:
		e.Kind = EventAcquired
	case sharedqueue.Reentered:
		e.Kind = EventReentered
	}
	call, ok := admitted.(*sharedCall)
	if ok {
		e.Wait = time.Since(call.begun)
	} else { // also of a writer that goes on as a reader
		call = a.leaving
	}
	e.Owner = call.owner
	return call.ctx, e
}

// changed reports a change of a read-write lock. Its queue calls it, with its mutex held.
func (q *rwTier) changed(c sharedqueue.Change[Owner]) {
	ctx, e := q.event(c.Outcome, c.Call)
	e.Mode, e.Owner, e.Token = modeOf(c.Mode), c.Owner, Token(c.Token)
	switch e.Kind {
	case EventAcquired:
		q.since[c.Owner] = time.Now()
	case EventReleased:
		e.Held = q.heldFor(c.Owner)
	}
	q.s.core.Report(ctx, e)
}

// heldFor returns for how long an owner has had the side that it has left or lost; 0 in a session that reports no events.
// The queue's mutex is held. After a loss no owner comes in before that is reported, so Lose does not need it.
func (q *rwTier) heldFor(owner Owner) time.Duration {
	since, ok := q.since[owner]
	if !ok {
		return 0
	}
	delete(q.since, owner)
	return time.Since(since)
}

// modeOf returns the mode in events of a claim in a local queue.
func modeOf(side sharedqueue.Mode) Mode {
	if side&sharedqueue.Write != 0 {
		return ModeWrite
	}
	return ModeRead
}

// changed reports that permits were taken or given back. The queue calls it, with its mutex held.
func (q *permitTier) changed(c sharedqueue.Change[struct{}]) {
	ctx, e := q.event(c.Outcome, c.Call)
	e.Mode, e.Permits = ModePermits, c.Permits
	if e.Kind == EventAcquired {
		q.stays.begin(e.Owner, c.Permits)
	} else {
		e.Held = time.Since(q.stays.end(e.Owner, c.Permits))
	}
	q.s.core.Report(ctx, e)
}

// stays are the permits in use, by the calls that got them. Any caller may release permits, so which of them ends is a
// guess: the caller's latest or, if it has none, the oldest of all.
type stays struct {
	all list.List // of *stay, oldest first
	of  map[Owner][]*list.Element
}

// A stay is what is left of the permits that a call got.
type stay struct {
	owner   Owner
	permits int
	since   time.Time
}

func (s *stays) begin(owner Owner, permits int) {
	if s.of == nil {
		s.of = make(map[Owner][]*list.Element)
	}
	s.of[owner] = append(s.of[owner], s.all.PushBack(&stay{owner, permits, time.Now()}))
}

// end takes permits away, and returns since when the first of them were in use.
func (s *stays) end(owner Owner, permits int) (since time.Time) {
	since = time.Now()
	for permits > 0 && s.all.Len() > 0 {
		at := s.all.Front()
		if own := s.of[owner]; len(own) > 0 {
			at = own[len(own)-1]
		}
		one := at.Value.(*stay)
		since = core.Earlier(since, one.since)
		n := min(permits, one.permits)
		permits -= n
		if one.permits -= n; one.permits == 0 {
			s.remove(at, one.owner)
		}
	}
	return since
}

func (s *stays) remove(at *list.Element, owner Owner) {
	s.all.Remove(at)
	rest := s.of[owner]
	if i := len(rest) - 1; rest[i] == at {
		rest = rest[:i]
	} else {
		rest = rest[1:] // the oldest of all is the owner's oldest
	}
	if len(rest) == 0 {
		delete(s.of, owner)
	} else {
		s.of[owner] = rest
	}
}

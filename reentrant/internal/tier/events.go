package tier

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/sharedqueue"
)

// A sharedCall is what the events of a call say about the call. It is made before any mutex is taken, since a method of the
// context may be the caller's code. The local queue keeps the sharedCall until the admission, which another goroutine may carry
// out.
type sharedCall struct {
	ctx   context.Context
	owner core.Owner // used for permits: the queue of an RWLock knows the owner itself
	begun time.Time
}

// callOf returns what the events of a call say about the call; nil in a session that reports no events.
func (h *Handle) callOf(ctx context.Context, begun time.Time) *sharedCall {
	if !h.Session.Reporting {
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

// event returns the event of a change, without the fields that only read-write locks or only semaphores have. admitted is the
// call that was admitted, if one was. The queue's mutex is held.
func (a *alarm) event(o sharedqueue.Outcome, admitted any) (context.Context, core.Event) {
	e := core.Event{Kind: core.EventReleased, Lock: a.name}
	switch o {
	case sharedqueue.Admitted:
		e.Kind = core.EventAcquired
	case sharedqueue.Reentered:
		e.Kind = core.EventReentered
	}
	call, ok := admitted.(*sharedCall)
	if ok {
		e.Wait = time.Since(call.begun)
	} else { // a call gives up holds, or a writer goes on as a reader
		call = a.leaving
	}
	e.Owner = call.owner
	return call.ctx, e
}

// changed reports a change of a read-write lock. The queue calls changed with the queue's mutex held.
func (t *rwTier) changed(c sharedqueue.Change[core.Owner]) {
	ctx, e := t.event(c.Outcome, c.Call)
	e.Mode, e.Owner, e.Token = modeOf(c.Mode), c.Owner, backend.Token(c.Token)
	switch e.Kind {
	case core.EventAcquired:
		t.since[c.Owner] = time.Now()
	case core.EventReleased:
		e.Held = t.heldFor(c.Owner)
	}
	t.session.Report(ctx, e)
}

// heldFor returns for how long an owner has had the side that it has left or lost; 0 in a session that reports no events.
// The caller holds the queue's mutex, except Lose: no owner comes in before the loss is reported.
func (t *rwTier) heldFor(owner core.Owner) time.Duration {
	since, ok := t.since[owner]
	if !ok {
		return 0
	}
	delete(t.since, owner)
	return time.Since(since)
}

// modeOf returns the mode that events show for a claim in a local queue.
func modeOf(mode sharedqueue.Mode) core.Mode {
	if mode&sharedqueue.Write != 0 {
		return core.ModeWrite
	}
	return core.ModeRead
}

// changed reports that permits were taken or given back. The queue calls changed with the queue's mutex held.
func (t *permitTier) changed(c sharedqueue.Change[struct{}]) {
	ctx, e := t.event(c.Outcome, c.Call)
	e.Mode, e.Permits = core.ModePermits, c.Permits
	if e.Kind == core.EventAcquired {
		t.stays.begin(e.Owner, c.Permits)
	} else {
		e.Held = time.Since(t.stays.end(e.Owner, c.Permits))
	}
	t.session.Report(ctx, e)
}

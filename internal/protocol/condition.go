package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
)

// A Condition is the server's record of a condition's waiters.
type Condition struct {
	Waiting   []Ticket // longest waiter first; some may be dead
	Signalled []Ticket // each is passed on unless it is acknowledged, or shown to be alive, by its Deadline
}

// A Ticket is a condition's waiter. The Waiter in it is the place that the session gets in the lock's queue when the ticket is
// signalled, except its Deadline, which is that of the ticket.
type Ticket struct {
	Waiter
	Patience time.Duration
	Token    backend.Token // first token of the hold that was given up; tickets are in the order of their tokens
}

func (l *Lock) condition(name string) *Condition {
	if l.Conditions == nil {
		l.Conditions = make(map[string]*Condition)
	}
	if l.Conditions[name] == nil {
		l.Conditions[name] = &Condition{}
	}
	return l.Conditions[name]
}

// find returns the index of a ticket, -1 if it is not there.
func find(tickets []Ticket, session string, epoch uint64) int {
	return slices.IndexFunc(tickets, func(t Ticket) bool { return t.Session == session && t.Epoch == epoch })
}

// has reports whether an attempt of a session has the lock.
func (l *Lock) has(session string, epoch uint64) bool {
	return l.heldBy(session) && l.Record.lastOf(session) == epoch
}

// Await exchanges a hold for a ticket. Its only error is ErrFarToken.
func (l *Lock) Await(now Instant, session string, req backend.AwaitRequest, doubt time.Duration) (backend.TicketStatus, error) {
	l.expire(now)
	c := l.condition(req.Condition)
	switch {
	case l.has(session, req.Epoch):
	case find(c.Waiting, session, req.Ticket) >= 0:
		return backend.Waited, nil
	case find(c.Signalled, session, req.Ticket) >= 0:
		return backend.Signalled, nil
	default:
		return backend.Gone, nil
	}
	if l.Record.tooFar(now, 1, req.Seen) {
		return 0, ErrFarToken
	}
	c.Waiting = append(c.Waiting, Ticket{Token: l.Record.First, Waiter: Waiter{
		Session: session, Owner: req.Owner, Epoch: req.Ticket, Deadline: now + req.Patience, TTL: req.GrantTTL,
		Holds: req.Holds, Tokens: 1, Seen: req.Seen, Keep: l.keepFor(max(req.Patience, req.GrantTTL)),
	}, Patience: req.Patience})
	l.Hold = Hold{}
	if doubt > 0 {
		l.Record.entomb(session, req.Epoch, now+doubt, now)
		l.Record.Keep = max(l.Record.Keep, l.Keep)
		l.save(now)
	}
	l.grantFree(now)
	return backend.Waited, nil
}

// grantFree gives a free lock to the first waiter, if there is one.
func (l *Lock) grantFree(now Instant) {
	if next, ok := l.firstWaiter(now); ok && !l.held() {
		l.grant(now, next)
	}
}

// Signal wakes one waiter or all, on behalf of a hold.
func (l *Lock) Signal(now Instant, session string, req backend.SignalRequest) backend.SignalReply {
	l.expire(now)
	if !l.has(session, req.Epoch) {
		return backend.SignalReply{Gone: true}
	}
	var reply backend.SignalReply
	c := l.condition(req.Condition)
	if req.Op <= l.Record.Op {
		reply.More = req.All && slices.ContainsFunc(c.Waiting, func(t Ticket) bool { return t.alive(now) })
		return reply
	}
	l.Record.Op = req.Op
	l.save(now)
	l.recall(now, c)
	name := func(t Ticket, ok bool) {
		if ok && t.Session == session {
			reply.Tickets = append(reply.Tickets, t.Epoch)
		}
	}
	if !req.All {
		name(l.notify(now, c))
		return reply
	}
	for range min(cmp.Or(l.Batch, len(c.Waiting)), len(c.Waiting)) {
		name(l.wake(now, c))
	}
	reply.More = len(c.Waiting) > 0
	return reply
}

// wake signals the longest waiter. A waiter that is dead is only forgotten. A live one also gets a place in the lock's queue,
// unless its session has a place or the lock: then the lock can be pushed to the session as to any other in the queue.
func (l *Lock) wake(now Instant, c *Condition) (t Ticket, alive bool) {
	t, c.Waiting = c.Waiting[0], c.Waiting[1:]
	if !t.alive(now) {
		return t, false
	}
	t.Deadline = now + t.Patience
	c.Signalled = append(c.Signalled, t)
	placed := !l.heldBy(t.Session) && l.placeOf(t.Session) < 0
	if placed {
		l.Queue = append(l.Queue, t.Waiter)
	}
	l.Publish(t.Session, Message{Kind: Signalled, Name: l.Name, Epoch: t.Epoch, Placed: placed})
	return t, true
}

// notify wakes the longest live waiter.
func (l *Lock) notify(now Instant, c *Condition) (t Ticket, ok bool) {
	for len(c.Waiting) > 0 && !ok {
		t, ok = l.wake(now, c)
	}
	return t, ok
}

// recall passes signals that were not acknowledged in time to other waiters.
func (l *Lock) recall(now Instant, c *Condition) {
	expired := 0
	c.Signalled = slices.DeleteFunc(c.Signalled, func(t Ticket) bool {
		if t.alive(now) {
			return false
		}
		expired++
		return true
	})
	for range expired {
		l.notify(now, c)
	}
}

// Withdraw removes a ticket that was not signalled, and returns its status.
func (l *Lock) Withdraw(session, name string, epoch uint64) backend.TicketStatus {
	c := l.condition(name)
	if i := find(c.Waiting, session, epoch); i >= 0 {
		c.Waiting = slices.Delete(c.Waiting, i, i+1)
		return backend.Waited
	}
	if find(c.Signalled, session, epoch) >= 0 {
		return backend.Signalled
	}
	return backend.Gone
}

// Beat renews the deadlines of a session's tickets and removes those that were served. It returns the status of each ticket.
// While there are tickets the record is kept. Otherwise the name could be taken for another kind before the tickets are
// signalled.
func (l *Lock) Beat(now Instant, session, name string, epochs, served []uint64) []backend.TicketStatus {
	l.expire(now)
	c := l.condition(name)
	var answers []backend.TicketStatus
	for _, epoch := range epochs {
		if i := find(c.Waiting, session, epoch); i >= 0 {
			c.Waiting[i].Deadline = now + c.Waiting[i].Patience
			answers = append(answers, backend.Waited)
			l.prolong(now)
			continue
		}
		if i := find(c.Signalled, session, epoch); i >= 0 {
			c.Signalled[i].Deadline = now + c.Signalled[i].Patience
			l.prolong(now)
		}
		answers = append(answers, backend.Signalled)
	}
	c.Signalled = slices.DeleteFunc(c.Signalled, func(t Ticket) bool { return t.Session == session && slices.Contains(served, t.Epoch) })
	l.recall(now, c)
	l.grantFree(now)
	return answers
}

package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// A condition is what the server keeps for those who wait for it.
type condition struct {
	waiting   []ticket // longest first; some may be dead
	signalled []ticket // deadline: by when the session must have shown that it knows
}

// A ticket is a waiter. What it comes back with is a waiter's place in the lock's queue; its deadline is the ticket's.
type ticket struct {
	waiter
	patience instant
}

func (l *lock) condition(name string) *condition {
	if l.conditions == nil {
		l.conditions = make(map[string]*condition)
	}
	if l.conditions[name] == nil {
		l.conditions[name] = &condition{}
	}
	return l.conditions[name]
}

// find is the index of a ticket, -1 if it is not there.
func find(tickets []ticket, session string, epoch uint64) int {
	return slices.IndexFunc(tickets, func(t ticket) bool { return t.session == session && t.epoch == epoch })
}

// has tells whether an attempt of a session has the lock.
func (l *lock) has(session string, epoch uint64) bool {
	return l.heldBy(session) && l.record.lastOf(session) == epoch
}

// await exchanges a hold for a ticket.
func (l *lock) await(now instant, session string, req reentrant.AwaitRequest, doubt time.Duration) reentrant.TicketStatus {
	l.expire(now)
	c := l.condition(req.Condition)
	switch {
	case l.has(session, req.Epoch):
	case find(c.waiting, session, req.Ticket) >= 0:
		return reentrant.Waited
	case find(c.signalled, session, req.Ticket) >= 0:
		return reentrant.Signalled
	default:
		return reentrant.Gone
	}
	c.waiting = append(c.waiting, ticket{waiter: waiter{
		session: session, owner: req.Owner, epoch: req.Ticket, deadline: now + req.Patience, ttl: req.GrantTTL,
		holds: req.Holds, tokens: 1, seen: req.Seen, keep: keep,
	}, patience: req.Patience})
	l.hold = hold{}
	if doubt > 0 {
		l.record.entomb(session, req.Epoch, now+doubt, now)
		l.save(now)
	}
	l.grantFree(now)
	return reentrant.Waited
}

// grantFree gives a free lock to the first waiter, if there is one.
func (l *lock) grantFree(now instant) {
	if next, ok := l.firstWaiter(now); ok && !l.held() {
		l.grant(now, next)
	}
}

// signal wakes one waiter or all, on behalf of a hold.
func (l *lock) signal(now instant, session string, req reentrant.SignalRequest) reentrant.SignalReply {
	l.expire(now)
	if !l.has(session, req.Epoch) {
		return reentrant.SignalReply{Gone: true}
	}
	var reply reentrant.SignalReply
	if req.Op <= l.record.op {
		return reply
	}
	l.record.op = req.Op
	l.save(now)
	c := l.condition(req.Condition)
	l.recall(now, c)
	for {
		t, ok := l.notify(now, c)
		if ok && t.session == session {
			reply.Tickets = append(reply.Tickets, t.epoch)
		}
		if !ok || !req.All {
			return reply
		}
	}
}

// notify signals the longest live waiter. It also gets a place in the lock's queue, unless its session has one or has
// the lock, so that the lock can be pushed to it as to any other.
func (l *lock) notify(now instant, c *condition) (ticket, bool) {
	for len(c.waiting) > 0 {
		t := c.waiting[0]
		c.waiting = c.waiting[1:]
		if !t.alive(now) {
			continue
		}
		t.deadline = now + t.patience
		c.signalled = append(c.signalled, t)
		placed := !l.heldBy(t.session) && l.placeOf(t.session) < 0
		if placed {
			l.queue = append(l.queue, t.waiter)
		}
		l.publish(t.session, pushed{grant: grant{name: l.name, epoch: t.epoch}, signal: true, placed: placed})
		return t, true
	}
	return ticket{}, false
}

// recall gives signals that were not heard in time to others.
func (l *lock) recall(now instant, c *condition) {
	deaf := 0
	c.signalled = slices.DeleteFunc(c.signalled, func(t ticket) bool {
		if t.alive(now) {
			return false
		}
		deaf++
		return true
	})
	for range deaf {
		l.notify(now, c)
	}
}

// withdraw takes a ticket back.
func (l *lock) withdraw(session, name string, epoch uint64) reentrant.TicketStatus {
	c := l.condition(name)
	if i := find(c.waiting, session, epoch); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		return reentrant.Waited
	}
	if find(c.signalled, session, epoch) >= 0 {
		return reentrant.Signalled
	}
	return reentrant.Gone
}

// beat is a sign of life for a session's tickets.
func (l *lock) beat(now instant, session, name string, epochs, served []uint64) []reentrant.TicketStatus {
	l.expire(now)
	c := l.condition(name)
	var answers []reentrant.TicketStatus
	for _, epoch := range epochs {
		if i := find(c.waiting, session, epoch); i >= 0 {
			c.waiting[i].deadline = now + c.waiting[i].patience
			answers = append(answers, reentrant.Waited)
			continue
		}
		if i := find(c.signalled, session, epoch); i >= 0 {
			c.signalled[i].deadline = now + c.signalled[i].patience
		}
		answers = append(answers, reentrant.Signalled)
	}
	c.signalled = slices.DeleteFunc(c.signalled, func(t ticket) bool { return t.session == session && slices.Contains(served, t.epoch) })
	l.recall(now, c)
	l.grantFree(now)
	return answers
}

var statuses = map[reentrant.TicketStatus]string{
	reentrant.Waited: "waits", reentrant.Signalled: "signalled", reentrant.Gone: "gone",
}

func (r *remote) Await(ctx context.Context, req reentrant.AwaitRequest) (reentrant.TicketStatus, error) {
	op := r.op(Await, req.Epoch)
	var doubt time.Duration
	if !req.Until.IsZero() {
		doubt = max(0, time.Until(req.Until))
	}
	status, err := call(ctx, r.c, op, func(now instant) (reentrant.TicketStatus, string) {
		status := r.lock().await(now, r.c.session, req, doubt)
		return status, fmt.Sprintf("%s %s ticket=e%d holds=%d → %s", op, shown(req.Condition), req.Ticket, req.Holds, statuses[status])
	})
	return status, wrapped(op, err)
}

func (r *remote) Signal(ctx context.Context, req reentrant.SignalRequest) (reentrant.SignalReply, error) {
	op := r.op(Signal, req.Epoch)
	reply, err := call(ctx, r.c, op, func(now instant) (reentrant.SignalReply, string) {
		reply := r.lock().signal(now, r.c.session, req)
		return reply, fmt.Sprintf("%s %s%s → %s", op, shown(req.Condition), either(req.All, " all", ""), either(reply.Gone, "gone", "done"))
	})
	return reply, wrapped(op, err)
}

func (r *remote) Withdraw(ctx context.Context, name string, ticket uint64) (reentrant.TicketStatus, error) {
	op := r.op(Leave, ticket)
	status, err := call(ctx, r.c, op, func(instant) (reentrant.TicketStatus, string) {
		status := r.lock().withdraw(r.c.session, name, ticket)
		return status, fmt.Sprintf("%s %s → %s", op, shown(name), either(status == reentrant.Waited, "withdrawn", statuses[status]))
	})
	return status, wrapped(op, err)
}

func (r *remote) Beat(ctx context.Context, name string, tickets, served []uint64) ([]reentrant.TicketStatus, error) {
	op := r.op(Beat, 0)
	tickets, served = slices.Clone(tickets), slices.Clone(served) // the caller's slices are not touched by what comes late
	answers, err := call(ctx, r.c, op, func(now instant) ([]reentrant.TicketStatus, string) {
		answers := r.lock().beat(now, r.c.session, name, tickets, served)
		var parts []string
		for i, ticket := range tickets {
			parts = append(parts, fmt.Sprintf("e%d %s", ticket, statuses[answers[i]]))
		}
		for _, ticket := range served {
			parts = append(parts, fmt.Sprintf("e%d served", ticket))
		}
		return answers, fmt.Sprintf("%s %s → %s", op, shown(name), strings.Join(parts, ", "))
	})
	return answers, wrapped(op, err)
}

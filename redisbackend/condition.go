package redisbackend

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/relock-go/relock/backend"
)

// What the scripts of conditions answer; their headers say what it means.
const (
	awaitWaiting, awaitSignalled, awaitGone               = 1, 2, 3
	signalDone, signalGone, signalMore                    = 1, 2, 3
	withdrawWithdrawn, withdrawSignalled, withdrawNothing = 1, 2, 3
	beatWaits                                             = 1
)

// Await implements backend.Remote.
func (r *remote) Await(ctx context.Context, req backend.AwaitRequest) (backend.TicketStatus, error) {
	if err := checkAwait(&req); err != nil {
		return 0, err
	}
	var d draft
	d.add(req.Epoch)
	d.add(req.Ticket)
	d.add(uint64(req.Holds))
	d.add(uint64(req.Seen))
	d.add(millis(req.Patience))
	d.add(millis(req.GrantTTL))
	doubt := left(req.Until)
	d.add(keepFor(max(req.Patience, req.GrantTTL, doubt)))
	d.add(roundUp(doubt, time.Microsecond))
	n := d.cut()
	args := [...]string{r.conn.session, n[0], n[1], req.Owner, n[2], n[3], n[4], n[5], r.conn.deployment.channels, n[6], n[7]}
	keys := r.keys.condition(r.conn.deployment.prefix, req.Condition)
	a, err := r.run(ctx, &r.conn.deployment.scripts.await, keys[:], args[:], 0)
	if err == nil {
		r.conn.listenFor(r)
	}
	return status(a, err, awaitWaiting, awaitSignalled, awaitGone)
}

// Withdraw implements backend.Remote.
func (r *remote) Withdraw(ctx context.Context, condition string, ticket uint64) (backend.TicketStatus, error) {
	if err := checkNumbers(ticket); err != nil {
		return 0, err
	}
	keys := r.keys.condition(r.conn.deployment.prefix, condition)
	args := [...]string{r.conn.session, strconv.FormatUint(ticket, 10)}
	a, err := r.run(ctx, &r.conn.deployment.scripts.withdraw, keys[4:], args[:], 0)
	return status(a, err, withdrawWithdrawn, withdrawSignalled, withdrawNothing)
}

// status reads the code of a script that answers what became of a ticket.
func status(a answer, err error, waited, signalled, gone int64) (backend.TicketStatus, error) {
	if err != nil {
		return 0, err
	}
	switch a.code {
	case waited:
		return backend.Waited, nil
	case signalled:
		return backend.Signalled, nil
	case gone:
		return backend.Gone, nil
	}
	return 0, unexpected(fmt.Errorf("code %d", a.code))
}

// Signal implements backend.Remote.
func (r *remote) Signal(ctx context.Context, req backend.SignalRequest) (backend.SignalReply, error) {
	if err := checkNumbers(req.Epoch, req.Op); err != nil {
		return backend.SignalReply{}, err
	}
	all := "0"
	if req.All {
		all = "1"
	}
	var d draft
	d.add(req.Epoch)
	d.add(req.Op)
	n := d.cut()
	args := [...]string{r.conn.session, n[0], n[1], all, r.conn.deployment.channels, r.listening()}
	keys := r.keys.condition(r.conn.deployment.prefix, req.Condition)
	list, at, err := r.exec(ctx, &r.conn.deployment.scripts.signal, keys[:], args[:])
	if err != nil {
		return backend.SignalReply{}, err
	}
	l := reader{list: list}
	code := l.number()
	at.stamp = l.number()
	reply := backend.SignalReply{Gone: code == signalGone, More: code == signalMore}
	for l.err == nil && len(l.list) > 0 {
		ticket, err := strconv.ParseUint(l.word(), 10, 63)
		if l.err == nil {
			l.err = err
		}
		reply.Tickets = append(reply.Tickets, ticket)
	}
	if l.err == nil && (code < signalDone || code > signalMore) {
		l.err = fmt.Errorf("code %d", code)
	}
	if l.err != nil {
		return backend.SignalReply{}, unexpected(l.err)
	}
	r.clock.saw(at)
	return reply, nil
}

// listening tells the scripts whether the server that they run in knows all sessions that listen.
func (r *remote) listening() string {
	if r.conn.deployment.cluster {
		return "0"
	}
	return "1"
}

// Beat implements backend.Remote.
func (r *remote) Beat(ctx context.Context, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
	if err := checkNumbers(slices.Concat(tickets, served)...); err != nil {
		return nil, err
	}
	args := make([]string, 4, 4+len(tickets)+len(served))
	args[0], args[1], args[2], args[3] = r.conn.session, r.conn.deployment.channels, strconv.Itoa(len(tickets)), r.listening()
	for _, ticket := range slices.Concat(tickets, served) {
		args = append(args, strconv.FormatUint(ticket, 10))
	}
	keys := r.keys.condition(r.conn.deployment.prefix, condition)
	list, at, err := r.exec(ctx, &r.conn.deployment.scripts.beat, keys[:], args)
	if err != nil {
		return nil, err
	}
	l := reader{list: list}
	at.stamp = l.number()
	answers := make([]backend.TicketStatus, len(tickets))
	for i := range answers {
		answers[i] = backend.Signalled
		if l.number() == beatWaits {
			answers[i] = backend.Waited
		}
	}
	if l.err != nil {
		return nil, unexpected(l.err)
	}
	r.clock.saw(at)
	return answers, nil
}

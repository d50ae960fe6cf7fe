package single

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// The codes that the scripts of conditions return; their headers explain them.
const (
	awaitWaiting, awaitSignalled, awaitGone               = 1, 2, 3
	signalDone, signalGone, signalMore                    = 1, 2, 3
	withdrawWithdrawn, withdrawSignalled, withdrawNothing = 1, 2, 3
	beatWaits                                             = 1
)

var _ backend.Conditions = (*Remote)(nil)

// Await implements backend.Conditions.
func (r *Remote) Await(ctx context.Context, req backend.AwaitRequest) (backend.TicketStatus, error) {
	if err := wire.CheckAwait(&req); err != nil {
		return 0, err
	}
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(req.Ticket)
	d.Add(uint64(req.Holds))
	d.Add(uint64(req.Seen))
	d.Add(wire.Millis(req.Patience))
	d.Add(wire.Millis(req.GrantTTL))
	doubt := wire.Remaining(req.Until)
	d.Add(wire.KeepFor(max(req.Patience, req.GrantTTL, doubt)))
	d.Add(wire.RoundUp(doubt, time.Microsecond))
	n := d.Strings()
	args := [...]string{r.Conn.Session, n[0], n[1], req.Owner, n[2], n[3], n[4], n[5], r.Conn.Deployment.Channels, n[6], n[7]}
	keys := r.Keys.Condition(r.Conn.Deployment.Prefix, req.Condition)
	a, err := r.Run(ctx, &r.Conn.Deployment.scripts.Await, keys[:], args[:], 0)
	if err == nil {
		r.Conn.Listen(r)
		r.Conn.redisson.Waits(r.Keys.Hold(), r, a.sample.Sent)
	}
	return status(a, err, awaitWaiting, awaitSignalled, awaitGone)
}

// Withdraw implements backend.Conditions.
func (r *Remote) Withdraw(ctx context.Context, condition string, ticket uint64) (backend.TicketStatus, error) {
	if err := wire.CheckNumbers(ticket); err != nil {
		return 0, err
	}
	keys := r.Keys.Condition(r.Conn.Deployment.Prefix, condition)
	args := [...]string{r.Conn.Session, strconv.FormatUint(ticket, 10)}
	a, err := r.Run(ctx, &r.Conn.Deployment.scripts.Withdraw, keys[4:], args[:], 0)
	return status(a, err, withdrawWithdrawn, withdrawSignalled, withdrawNothing)
}

// status reads the code of a script that returns the state of a ticket.
func status(a answer, err error, waited, signalled, gone int64) (backend.TicketStatus, error) {
	if err != nil {
		return 0, err
	}
	switch a.Code {
	case waited:
		return backend.Waited, nil
	case signalled:
		return backend.Signalled, nil
	case gone:
		return backend.Gone, nil
	}
	return 0, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

// Signal implements backend.Conditions.
func (r *Remote) Signal(ctx context.Context, req backend.SignalRequest) (backend.SignalReply, error) {
	if err := wire.CheckNumbers(req.Epoch, req.Op); err != nil {
		return backend.SignalReply{}, err
	}
	all := "0"
	if req.All {
		all = "1"
	}
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(req.Op)
	n := d.Strings()
	args := [...]string{r.Conn.Session, n[0], n[1], all, r.Conn.Deployment.Channels, r.listening()}
	keys := r.Keys.Condition(r.Conn.Deployment.Prefix, req.Condition)
	list, at, err := r.exec(ctx, &r.Conn.Deployment.scripts.Signal, keys[:], args[:])
	if err != nil {
		return backend.SignalReply{}, err
	}
	l := reader{list: list}
	code := l.number()
	at.Stamp = l.number()
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
		return backend.SignalReply{}, wire.Unexpected(l.err)
	}
	r.Clock.Saw(at)
	return reply, nil
}

// listening returns the script's argument that says whether the server that runs the script knows all sessions that listen.
func (r *Remote) listening() string {
	if r.Conn.Deployment.cluster {
		return "0"
	}
	return "1"
}

// Beat implements backend.Conditions.
func (r *Remote) Beat(ctx context.Context, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
	if err := wire.CheckNumbers(slices.Concat(tickets, served)...); err != nil {
		return nil, err
	}
	args := make([]string, 4, 4+len(tickets)+len(served))
	args[0], args[1], args[2], args[3] = r.Conn.Session, r.Conn.Deployment.Channels, strconv.Itoa(len(tickets)), r.listening()
	for _, ticket := range slices.Concat(tickets, served) {
		args = append(args, strconv.FormatUint(ticket, 10))
	}
	keys := r.Keys.Condition(r.Conn.Deployment.Prefix, condition)
	list, at, err := r.exec(ctx, &r.Conn.Deployment.scripts.Beat, keys[:], args)
	if err != nil {
		return nil, err
	}
	l := reader{list: list}
	at.Stamp = l.number()
	answers := make([]backend.TicketStatus, len(tickets))
	for i := range answers {
		answers[i] = backend.Signalled
		if l.number() == beatWaits {
			answers[i] = backend.Waited
		}
	}
	if l.err != nil {
		return nil, wire.Unexpected(l.err)
	}
	r.Clock.Saw(at)
	return answers, nil
}

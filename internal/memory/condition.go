package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var statuses = map[backend.TicketStatus]string{
	backend.Waited: "waits", backend.Signalled: "signalled", backend.Gone: "gone",
}

var _ backend.Conditions = (*remote)(nil)

// Await implements backend.Conditions.
func (r *remote) Await(ctx context.Context, req backend.AwaitRequest) (backend.TicketStatus, error) {
	op := r.op(Await, req.Epoch)
	doubt := remaining(req.Until)
	type answer struct {
		status backend.TicketStatus
		err    error
	}
	got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
		var a answer
		a.status, a.err = r.lock().Await(now, r.c.session, req, doubt)
		return a, func() string {
			return fmt.Sprintf("%s %s ticket=e%d holds=%d → %s", op, shown(req.Condition), req.Ticket, req.Holds, outcome(a.err, statuses[a.status]))
		}
	})
	return got.status, wrapped(op, cmp.Or(err, got.err))
}

// Signal implements backend.Conditions.
func (r *remote) Signal(ctx context.Context, req backend.SignalRequest) (backend.SignalReply, error) {
	op := r.op(Signal, req.Epoch)
	reply, err := call(ctx, r.c, op, func(now protocol.Instant) (backend.SignalReply, line) {
		reply := r.lock().Signal(now, r.c.session, req)
		return reply, func() string {
			return fmt.Sprintf("%s %s%s → %s", op, shown(req.Condition), either(req.All, " all", ""), either(reply.Gone, "gone", "done"))
		}
	})
	return reply, wrapped(op, err)
}

// Withdraw implements backend.Conditions.
func (r *remote) Withdraw(ctx context.Context, name string, ticket uint64) (backend.TicketStatus, error) {
	op := r.op(Leave, ticket)
	status, err := call(ctx, r.c, op, func(protocol.Instant) (backend.TicketStatus, line) {
		status := r.lock().Withdraw(r.c.session, name, ticket)
		return status, func() string {
			return fmt.Sprintf("%s %s → %s", op, shown(name), either(status == backend.Waited, "withdrawn", statuses[status]))
		}
	})
	return status, wrapped(op, err)
}

// Beat implements backend.Conditions.
func (r *remote) Beat(ctx context.Context, name string, tickets, served []uint64) ([]backend.TicketStatus, error) {
	op := r.op(Beat, 0)
	tickets, served = slices.Clone(tickets), slices.Clone(served) // a late copy must not touch the caller's slices
	answers, err := call(ctx, r.c, op, func(now protocol.Instant) ([]backend.TicketStatus, line) {
		answers := r.lock().Beat(now, r.c.session, name, tickets, served)
		return answers, func() string {
			var parts []string
			for i, ticket := range tickets {
				parts = append(parts, fmt.Sprintf("e%d %s", ticket, statuses[answers[i]]))
			}
			for _, ticket := range served {
				parts = append(parts, fmt.Sprintf("e%d served", ticket))
			}
			return fmt.Sprintf("%s %s → %s", op, shown(name), strings.Join(parts, ", "))
		}
	})
	return answers, wrapped(op, err)
}

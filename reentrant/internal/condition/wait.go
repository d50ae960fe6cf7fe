package condition

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// Overtime returns a context that ends a lease after ctx, or a lease after the time limit if there is one: an owner
// then no longer tries to come back from its wait. stop frees what it uses.
func (r *Room) Overtime(ctx context.Context, limit time.Time) (over context.Context, stop func()) {
	over, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	overdue := func() { cancel(core.ErrOverdue) }
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(r.core.Config.Lease, overdue) })
	if limit.IsZero() {
		return over, func() { forget(); cancel(nil) }
	}
	timer := time.AfterFunc(time.Until(limit.Add(r.core.Config.Lease)), overdue) // without an overflow
	return over, func() { forget(); timer.Stop(); cancel(nil) }
}

// ErrTimeUp is the end of AwaitFor's time; it is never returned to callers.
var ErrTimeUp = errors.New("the time is up")

// WaitSignalled parks until the ticket is signalled, or the wait of its owner ends. Redis decides the result in the
// second case, in one step: nil if the signal came first.
func (r *Room) WaitSignalled(ctx, over context.Context, t *Ticket, limit time.Time) (placed bool, err error) {
	var timeout <-chan time.Time
	if !limit.IsZero() {
		timer := time.NewTimer(time.Until(limit))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case placed = <-t.woken:
		return placed, nil
	case <-ctx.Done():
		err = core.InterruptedBy(ctx, "waiting for a signal", nil)
	case <-timeout:
		if err = ErrTimeUp; ctx.Err() != nil { // both ended while Redis was asked: it is not known which was first
			err = core.InterruptedBy(ctx, "waiting for a signal", nil)
		}
	case <-r.core.Closing:
		err = core.ErrClosed
	}
	if r.Withdraw(over, t) == backend.Signalled {
		select {
		case placed = <-t.woken:
		default:
		}
		return placed, nil
	}
	r.heartbeat.remove(t)
	return false, err
}

// Withdraw withdraws a ticket, and reports whether it was signalled before. If Redis cannot be reached, it drops the
// ticket when the session no longer beats for it.
func (r *Room) Withdraw(ctx context.Context, t *Ticket) backend.TicketStatus {
	result := backend.Gone
	_ = r.core.Repeat(ctx, core.Policy{Tries: core.ReleaseTries, Stop: func(last error) error {
		if last != nil && ctx.Err() != nil {
			return last
		}
		return nil
	}}, func(call context.Context, _ core.Copy) error {
		status, err := t.Remote.Withdraw(call, t.Name, t.Epoch)
		if err == nil {
			err = check.Ticket(status)
		}
		if err == nil {
			result = status
		}
		return err
	})
	return result
}

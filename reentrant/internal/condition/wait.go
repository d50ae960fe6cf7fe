package condition

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Waiter is an owner that waits for a condition of a lock that it holds. After the end of over, the context that overtime
// returns, the owner no longer tries to come back from its wait.
type Waiter interface {
	// Leave takes the ticket at the server, and gives up the holds. After an error the holds are unchanged, or lost.
	Leave(ctx, over context.Context, limit time.Time) error
	// Return takes the holds again. signalled says that a signal ended the wait. placed says that Redis has also queued the
	// session for the lock.
	Return(over context.Context, signalled, placed bool) error
	// Forfeit records the loss of the holds, after an error of Return.
	Forfeit(signalled bool, err error)
}

// Await has a waiter give up its holds, waits until its ticket is signalled, or ctx ends, or the time limit has come, and
// has it take its holds again. It reports whether the ticket was signalled. After ErrLost the holds are lost; after another
// error, if the ticket was not signalled, the waiter has them again or still.
func (r *Room) Await(ctx context.Context, limit time.Time, t *Ticket, w Waiter) (signalled bool, err error) {
	over, stop := r.overtime(ctx, limit)
	defer stop()
	if err := w.Leave(ctx, over, limit); err != nil {
		return false, err
	}
	r.heartbeat.add(t)
	placed, waitErr := r.waitSignalled(ctx, over, t, limit)
	signalled = waitErr == nil
	if errors.Is(waitErr, errTimeUp) {
		waitErr = nil
	}
	if err := w.Return(over, signalled, placed); err != nil {
		r.heartbeat.remove(t) // its signal, if there was one, goes to another waiter
		if waitErr == nil && ctx.Err() != nil {
			waitErr = core.InterruptedBy(ctx, "after the signal", nil)
		}
		w.Forfeit(signalled, err)
		return false, errors.Join(core.ErrLost, err, waitErr)
	}
	if signalled {
		r.heartbeat.acknowledge(t)
	}
	return signalled, waitErr
}

// overtime returns a context that ends a lease after the end of ctx, or a lease after the time limit if that comes first. When
// over has ended, an owner no longer tries to come back from its wait. stop frees what the context uses.
func (r *Room) overtime(ctx context.Context, limit time.Time) (over context.Context, stop func()) {
	over, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	overdue := func() { cancel(core.ErrOverdue) }
	forget := context.AfterFunc(ctx, func() { time.AfterFunc(r.core.Config.Lease, overdue) })
	if limit.IsZero() {
		return over, func() { forget(); cancel(nil) }
	}
	timer := time.AfterFunc(time.Until(limit.Add(r.core.Config.Lease)), overdue) // time.Until(limit) + Lease could overflow
	return over, func() { forget(); timer.Stop(); cancel(nil) }
}

// errTimeUp says that the time limit of the wait has come. No caller of Await gets it.
var errTimeUp = errors.New("the time is up")

// waitSignalled parks until the ticket is signalled, or the wait of its owner ends for another reason. In the second case
// Redis withdraws the ticket, and so decides whether a signal came first: if one did, the error is nil.
func (r *Room) waitSignalled(ctx, over context.Context, t *Ticket, limit time.Time) (placed bool, err error) {
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
		if err = errTimeUp; ctx.Err() != nil { // both ended while Redis was asked: it is not known which was first
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

// Withdraw withdraws a ticket, and returns Signalled if it was signalled before. If Redis cannot be reached now, Redis drops
// the ticket later, since the session no longer beats for it.
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

package condition

import (
	"context"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// errForgotten is returned when the server no longer has the lock of the conditions, and may have carried out the signal
// before.
var errForgotten = fmt.Errorf("%w: the server has forgotten who signals", backend.ErrUnavailable)

// errOverdue is the cause with which a call ends that was not done within a lease, because the server did not reply, or other
// sessions had the lock of the conditions.
var errOverdue error = overdueError{}

type overdueError struct{}

func (overdueError) Error() string {
	return "not done within a lease: the server does not reply, or others use the conditions"
}

// Is reports true for ErrOverdue, since this limit is the session's own and not the end of the caller's context, and
// for backend.ErrUnavailable.
func (overdueError) Is(target error) bool {
	return target == core.ErrOverdue || target == backend.ErrUnavailable
}

// within returns a context for what a writer asks of the server: it ends when the writer's holds are lost, and at the
// limit, if there is one.
func within(ctx context.Context, notifier *core.LossNotifier, limit time.Time) (context.Context, func()) {
	within, stop := core.UntilLost(ctx, notifier)
	if limit.IsZero() {
		return within, stop
	}
	within, cancel := context.WithDeadlineCause(within, limit, errOverdue)
	return within, func() { cancel(); stop() }
}

// TakeTicket takes a ticket for a writer, and then calls leave, which gives up the writer's holds by Left and reports
// whether it had the write side. In this order a signaller finds the ticket, since it gets the write side only after leave.
// After an error the holds are unchanged, or lost. notifier reports the loss of the holds, over is the context from overtime,
// and limit the end of the wait, zero if it has none.
func (m *Monitor) TakeTicket(ctx, over context.Context, notifier *core.LossNotifier, limit time.Time, t *Ticket, leave func() bool) error {
	if !limit.IsZero() {
		limit = limit.Add(m.room.core.Config.Lease)
	}
	within, stop := within(ctx, notifier, limit)
	defer stop()
	return m.withLock(within, t.Owner, func(epoch uint64, pendingUntil time.Time) (use, error) {
		m.add(t)
		became, unknown, err := m.exchange(ctx, within, over, t, epoch, pendingUntil)
		if became == lockLeft && !leave() {
			err = core.ErrNotHeld // another goroutine of the same owner has given up the write side, or it is lost
		}
		if became == lockLeft && err == nil {
			return lockLeft, nil
		}
		m.remove(t)
		if became == lockLeft || unknown {
			m.withdraw(t)
		}
		return became, err
	})
}

// withdraw withdraws the ticket of a writer that does not wait, so that no signal is spent on it. The place or the grant that
// the server gave the session with a signal goes back.
func (m *Monitor) withdraw(t *Ticket) {
	m.room.core.Cleaner.Do(func() {
		if m.room.Withdraw(context.Background(), t) == backend.Signalled {
			m.release(t.Epoch, time.Time{})
		}
	})
}

// exchange exchanges the lock of the conditions for a ticket. If ctx ends when it is not known whether the server has made
// the exchange, exchange asks again until over ends: the caller must know whether it waits.
func (m *Monitor) exchange(ctx, within, over context.Context, t *Ticket, epoch uint64, pendingUntil time.Time) (became use, unknown bool, err error) {
	cfg := &m.room.core.Config
	req := backend.AwaitRequest{
		Condition: t.Name, Epoch: epoch, Ticket: t.Epoch, Owner: t.Owner.String(), Holds: 1,
		Seen: backend.Token(m.room.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: m.grantTTL(), Until: pendingUntil,
	}
	var status backend.TicketStatus
	under := within
	send := func(ctx context.Context, _ core.Copy) (err error) {
		if status, err = m.conditions.Await(ctx, req); err == nil {
			err = check.Ticket(status)
		}
		unknown = unknown || backend.OutcomeUnknown(err)
		return core.WrapUnavailable(under, err)
	}
	err = m.room.core.Repeat(within, core.Policy{}, send)
	if err != nil && unknown && ctx.Err() != nil {
		under = over
		if again := m.room.core.Repeat(over, core.Policy{}, send); again != nil {
			err = fmt.Errorf("%w; and since then: %w", err, again)
		} else {
			err = nil
		}
	}
	switch {
	case err != nil:
		return lockKept, unknown, err
	case status == backend.Gone:
		return lockGone, false, nil
	case status == backend.Signalled:
		t.Wake(false)
	}
	return lockLeft, false, nil
}

// Signal wakes waiters for a condition, for a writer. It tries for the length of a lease, or until notifier reports the loss
// of the writer's holds. unknown says that the server may have signalled a waiter, whatever the error.
func (m *Monitor) Signal(ctx context.Context, owner core.Owner, notifier *core.LossNotifier, name string, all bool) (unknown bool, err error) {
	ctx, stop := within(ctx, notifier, time.Now().Add(m.room.core.Config.Lease))
	defer stop()
	err = m.withLock(ctx, owner, func(epoch uint64, _ time.Time) (use, error) {
		req := backend.SignalRequest{Condition: name, Epoch: epoch, All: all}
		for {
			req.Op++
			reply, maybe, err := m.signalOnce(ctx, req)
			unknown = unknown || maybe
			switch {
			case err != nil:
				return lockKept, err
			case reply.Gone && (all || !unknown):
				return lockGone, nil
			case reply.Gone: // a second signal could wake another waiter
				return lockKept, errForgotten
			case !reply.More:
				return lockKept, nil
			}
		}
	})
	return unknown, err
}

// signalOnce sends one signal.
func (m *Monitor) signalOnce(ctx context.Context, req backend.SignalRequest) (reply backend.SignalReply, unknown bool, err error) {
	err = m.room.core.Repeat(ctx, core.Policy{}, func(call context.Context, _ core.Copy) (err error) {
		reply, err = m.conditions.Signal(call, req)
		unknown = unknown || backend.OutcomeUnknown(err) || err == nil && !reply.Gone
		return core.WrapUnavailable(ctx, err)
	})
	if err == nil {
		for _, ticket := range reply.Tickets {
			m.signalled(ticket, false)
		}
	}
	return reply, unknown, err
}

// signalled handles the signal of a ticket. placed says that the server has queued the session for the lock of the conditions.
func (m *Monitor) signalled(epoch uint64, placed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signalledLocked(epoch, placed)
}

// signalledLocked is signalled with m.mu held.
func (m *Monitor) signalledLocked(epoch uint64, placed bool) {
	if placed {
		m.release(epoch, time.Time{})
	}
	m.tickets.Signalled(epoch, placed)
}

// Ticket returns the ticket of a writer that is about to wait. TakeTicket gives it an epoch.
func (m *Monitor) Ticket(name string, owner core.Owner) *Ticket {
	return NewTicket(0, name, owner, m.conditions)
}

// add makes a ticket known, under a new epoch, before the server knows it.
func (m *Monitor) add(t *Ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Epoch = m.room.core.Epochs.Add(1)
	m.tickets.Add(t)
}

// remove removes a ticket.
func (m *Monitor) remove(t *Ticket) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets.Remove(t)
}

// Left calls leave, which gives up the holds of a ticket's owner and reports whether it had the write side. From here on a
// signal puts the owner in line for the write side.
func (m *Monitor) Left(t *Ticket, leave func() bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.left = leave()
	return t.left
}

// End ends a wait, and puts its owner in line for the write side. If the wait was signalled and the signal's message has not
// come, End gives back the place in which the server queued the session.
func (m *Monitor) End(t *Ticket, signalled bool) {
	m.mu.Lock()
	seen := t.over
	t.over = true
	t.LineUp()
	m.mu.Unlock()
	if signalled && !seen {
		m.release(t.Epoch, time.Time{})
	}
	m.remove(t)
}

// waiting returns the owners that wait for a condition, longest first.
func (m *Monitor) waiting(name string) []core.Owner {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tickets.Waiting(name)
}

package exclusive

import (
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Ticket is an owner's place among the waiters of a condition.
type Ticket struct {
	Epoch    uint64 // numbers it, from the counter of attempts
	Name     string // of the condition
	Owner    core.Owner
	Remote   backend.Conditions
	Woken    chan bool                     // 1-buffered: signalled; true if Redis has also queued the session for the lock
	Over     bool                          // State.mu, of a write side monitor.mu: it is known to be signalled, or its wait has ended
	Hold     Hold                          // that the wait gave up
	fair     bool                          // its owner comes back in line
	ahead    time.Duration                 // how far the wall clock was ahead before it was sent
	holdGone bool                          // State.mu: the hold is given up
	place    *localqueue.Place[core.Owner] // State.mu: in this process's queue, since the signal
}

// Wake wakes the waiter after its signal.
func (t *Ticket) Wake(placed bool) {
	select {
	case t.Woken <- placed:
	default:
	}
}

// reserveLocked puts the owner of a ticket in this process's queue, once. e.mu is held.
func (e *State) reserveLocked(t *Ticket) localqueue.Place[core.Owner] {
	if t.place == nil {
		place := e.Queue.Reserve(t.Owner, queueMode(t.Owner))
		t.place = &place
		e.noteWaiterLocked(t.Owner)
	}
	return *t.place
}

// reserve is reserveLocked.
func (e *State) reserve(t *Ticket) localqueue.Place[core.Owner] {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reserveLocked(t)
}

// addTicket adds a ticket before Redis knows it, so that no message for it can come too early.
func (e *State) addTicket(t *Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets = append(e.tickets, t)
}

// removeTicket removes a ticket.
func (e *State) removeTicket(t *Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets = slices.DeleteFunc(e.tickets, func(x *Ticket) bool { return x == t })
}

// endWaits removes tickets from the list of waiters.
func (e *State) endWaits(epochs []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, epoch := range epochs {
		if t := e.ticketLocked(epoch); t != nil {
			t.Over = true
		}
	}
}

// ticketLocked returns the ticket with an epoch, nil if there is none. e.mu is held.
func (e *State) ticketLocked(epoch uint64) *Ticket {
	for _, t := range e.tickets {
		if t.Epoch == epoch {
			return t
		}
	}
	return nil
}

// signalled wakes the owner of a ticket.
func (e *State) signalled(epoch uint64, placed bool) {
	e.mu.Lock()
	t := e.ticketLocked(epoch)
	if t != nil {
		t.Over = true
		if t.holdGone && t.fair {
			e.reserveLocked(t) // in the order of the signals, whichever goroutine runs first
		}
	}
	e.mu.Unlock()
	if t != nil {
		t.Wake(placed)
	}
}

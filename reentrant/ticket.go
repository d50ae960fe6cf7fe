package reentrant

import (
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
)

// A ticket is an owner's place among the waiters of a condition.
type ticket struct {
	epoch    uint64 // numbers it, from the counter of attempts
	name     string // of the condition
	owner    Owner
	remote   backend.Conditions
	woken    chan bool                // 1-buffered: signalled; true if Redis has also queued the session for the lock
	over     bool                     // lockState.mu, of a write side monitor.mu: it is known to be signalled, or its wait has ended
	hold     hold                     // that the wait gave up
	fair     bool                     // its owner comes back in line
	ahead    time.Duration            // how far the wall clock was ahead before it was sent
	holdGone bool                     // lockState.mu: the hold is given up
	place    *localqueue.Place[Owner] // lockState.mu: in this process's queue, since the signal
}

// wake wakes the waiter after its signal.
func (t *ticket) wake(placed bool) {
	select {
	case t.woken <- placed:
	default:
	}
}

// reserveLocked puts the owner of a ticket in this process's queue, once. e.mu is held.
func (e *lockState) reserveLocked(t *ticket) localqueue.Place[Owner] {
	if t.place == nil {
		place := e.queue.Reserve(t.owner, queueMode(t.owner))
		t.place = &place
		e.noteWaiterLocked(t.owner)
	}
	return *t.place
}

// reserve is reserveLocked.
func (e *lockState) reserve(t *ticket) localqueue.Place[Owner] {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reserveLocked(t)
}

// addTicket adds a ticket before Redis knows it, so that no message for it can come too early.
func (e *lockState) addTicket(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets = append(e.tickets, t)
}

// removeTicket removes a ticket.
func (e *lockState) removeTicket(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets = slices.DeleteFunc(e.tickets, func(x *ticket) bool { return x == t })
}

// endWaits removes tickets from the list of waiters.
func (e *lockState) endWaits(epochs []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, epoch := range epochs {
		if t := e.ticketLocked(epoch); t != nil {
			t.over = true
		}
	}
}

// ticketLocked returns the ticket with an epoch, nil if there is none. e.mu is held.
func (e *lockState) ticketLocked(epoch uint64) *ticket {
	for _, t := range e.tickets {
		if t.epoch == epoch {
			return t
		}
	}
	return nil
}

// signalled wakes the owner of a ticket.
func (e *lockState) signalled(epoch uint64, placed bool) {
	e.mu.Lock()
	t := e.ticketLocked(epoch)
	if t != nil {
		t.over = true
		if t.holdGone && t.fair {
			e.reserveLocked(t) // in the order of the signals, whichever goroutine runs first
		}
	}
	e.mu.Unlock()
	if t != nil {
		t.wake(placed)
	}
}

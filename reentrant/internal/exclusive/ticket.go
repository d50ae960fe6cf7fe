package exclusive

import (
	"time"

	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A conditionWait is an owner that waits for a condition of the lock.
type conditionWait struct {
	*condition.Ticket
	e     *State
	l     *Handle
	holds int                           // that the wait gives up
	ahead time.Duration                 // how far the wall clock was ahead before the ticket was sent
	hold  Hold                          // that the wait gave up
	place *localqueue.Place[core.Owner] // State.mu: in this process's queue, since the signal
}

// reserveLocked puts the owner of a wait in this process's queue, once. e.mu is held.
func (w *conditionWait) reserveLocked() localqueue.Place[core.Owner] {
	e := w.e
	if w.place == nil {
		place := e.Queue.Reserve(w.Owner, queueMode(w.Owner))
		w.place = &place
		e.noteWaiterLocked(w.Owner)
	}
	return *w.place
}

// reserve is reserveLocked.
func (w *conditionWait) reserve() localqueue.Place[core.Owner] {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	return w.reserveLocked()
}

// addTicket adds a ticket.
func (e *State) addTicket(t *condition.Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets.Add(t)
}

// removeTicket removes a ticket.
func (e *State) removeTicket(t *condition.Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets.Remove(t)
}

// endWait removes a ticket from the waiters.
func (e *State) endWait(t *condition.Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.End()
}

// signalled wakes the owner of a ticket.
func (e *State) signalled(epoch uint64, placed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tickets.Signalled(epoch, placed)
}

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
	st    *State
	l     *Handle
	holds int                           // that the wait gives up
	ahead time.Duration                 // how far the wall clock was ahead before the ticket was sent
	hold  Hold                          // that the wait gave up
	place *localqueue.Place[core.Owner] // State.mu: in this process's queue, since the signal
}

// reserveLocked puts the owner of a wait in this process's queue, once. st.mu is held.
func (w *conditionWait) reserveLocked() localqueue.Place[core.Owner] {
	st := w.st
	if w.place == nil {
		place := st.Queue.Reserve(w.Owner, queueMode(w.Owner))
		w.place = &place
		st.noteWaiterLocked(w.Owner)
	}
	return *w.place
}

// reserve is reserveLocked.
func (w *conditionWait) reserve() localqueue.Place[core.Owner] {
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	return w.reserveLocked()
}

// addTicket adds a ticket.
func (st *State) addTicket(t *condition.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tickets.Add(t)
}

// removeTicket removes a ticket.
func (st *State) removeTicket(t *condition.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tickets.Remove(t)
}

// endWait removes a ticket from the waiters.
func (st *State) endWait(t *condition.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	t.End()
}

// signalled wakes the owner of a ticket.
func (st *State) signalled(epoch uint64, placed bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tickets.Signalled(epoch, placed)
}

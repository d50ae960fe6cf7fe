package condition

import (
	"slices"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Ticket is an owner's place among the waiters of a condition.
type Ticket struct {
	Epoch  uint64 // the ticket's number, from the counter of epochs
	Name   string // the name of the condition
	Owner  core.Owner
	Remote backend.Conditions
	LineUp func() // puts the owner in line for the lock, called with the Tickets' mutex held; nil if the owner gets no place

	woken chan bool // 1-buffered: has a value once the ticket is signalled, true if Redis has also queued the session for the lock

	// What follows is guarded by the mutex of the Tickets.
	left bool // the owner has given up its holds
	over bool // the ticket is known to be signalled, or the wait has ended
}

// NewTicket returns the ticket of an owner that is about to wait.
func NewTicket(epoch uint64, name string, owner core.Owner, remote backend.Conditions) *Ticket {
	return &Ticket{Epoch: epoch, Name: name, Owner: owner, Remote: remote, woken: make(chan bool, 1)}
}

// Wake wakes the waiter after its signal. placed says that Redis has also queued the session for the lock.
func (t *Ticket) Wake(placed bool) {
	select {
	case t.woken <- placed:
	default:
	}
}

// Leave records that the owner has given up its holds. From here on a signal puts the owner in line for the lock.
func (t *Ticket) Leave() { t.left = true }

// End marks the ticket as one that no longer waits: it is known to be signalled, or the wait has ended.
func (t *Ticket) End() { t.over = true }

// Tickets are the tickets of one lock: of owners that wait for its conditions, or come back from such a wait, longest first.
// A mutex of the lock guards them.
type Tickets []*Ticket

// Add adds a ticket. The caller does so before Redis has the ticket, so that no message for it can come too early.
func (all *Tickets) Add(t *Ticket) { *all = append(*all, t) }

// Remove removes a ticket.
func (all *Tickets) Remove(t *Ticket) {
	*all = slices.DeleteFunc(*all, func(x *Ticket) bool { return x == t })
}

// Find returns the ticket with an epoch, nil if there is none.
func (all Tickets) Find(epoch uint64) *Ticket {
	for _, t := range all {
		if t.Epoch == epoch {
			return t
		}
	}
	return nil
}

// Signalled wakes the owner of a ticket. placed says that Redis has also queued the session for the lock.
func (all Tickets) Signalled(epoch uint64, placed bool) {
	t := all.Find(epoch)
	if t == nil {
		return
	}
	t.over = true
	if t.left && t.LineUp != nil {
		t.LineUp() // in the order of the signals, whichever goroutine runs first
	}
	t.Wake(placed)
}

// Waiting returns the owners that wait for a condition, longest first.
func (all Tickets) Waiting(condition string) (owners []core.Owner) {
	for _, t := range all {
		if t.Name == condition && t.left && !t.over {
			owners = append(owners, t.Owner)
		}
	}
	return owners
}

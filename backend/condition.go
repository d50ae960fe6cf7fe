package backend

import (
	"context"
	"time"
)

// Conditions is an optional interface of a [Remote] whose lock has conditions. Without it the waits and signals of the
// lock's conditions return errors.ErrUnsupported.
type Conditions interface {
	// Await gives up a hold and takes a ticket among the waiters for a condition, in one step. It takes a ticket only
	// in the step that gives up the hold, so sending it again after an unknown outcome is right: the copy finds the
	// ticket and returns Waited or Signalled; if the hold was gone before the first copy, it returns Gone.
	Await(ctx context.Context, req AwaitRequest) (TicketStatus, error)
	// Signal wakes the live waiter that has waited longest for a condition, or all waiters, on behalf of a hold: each
	// gets a place in the lock's queue, unless its session has a place or the lock, and its session receives
	// [Sink.Signalled]. The reply lists the tickets of the caller's own session. With All it may wake only a bounded
	// number at once, the longest waiters first, and then sets More. An Op that is not above the last one (Reenter and
	// Signal count their Ops together) signals no waiter, so after an unknown outcome sending it again is right.
	Signal(ctx context.Context, req SignalRequest) (SignalReply, error)
	// Withdraw withdraws a ticket. It returns Waited if the ticket was not signalled before, Signalled if it was, and Gone if
	// there is no such ticket. It does not acknowledge a signal, so after an unknown outcome sending it again is right.
	Withdraw(ctx context.Context, condition string, ticket uint64) (TicketStatus, error)
	// Beat shows that the session of tickets is alive. Each ticket needs a Beat once per Patience. Beat returns the status of
	// each of tickets: Waited, or Signalled (also if the signal was passed on because the session seemed dead). It
	// acknowledges the signals of the tickets in served, whose owners have the lock again. If a signalled ticket gets no Beat
	// within its Patience, and the signal was not acknowledged, the signal passes to the next waiter.
	Beat(ctx context.Context, condition string, tickets, served []uint64) ([]TicketStatus, error)
}

// An AwaitRequest exchanges a hold for a ticket.
type AwaitRequest struct {
	Condition string
	Epoch     uint64        // of the hold
	Ticket    uint64        // an epoch of its own, above the hold's
	Owner     string        // as in AcquireRequest, like Holds, Seen and GrantTTL: the waiter acquires the lock again with them
	Holds     int           //
	Seen      Token         //
	Patience  time.Duration // the ticket is lost when there is no Beat for so long
	GrantTTL  time.Duration //
	Until     time.Time     // as in ReleaseRequest
	_         struct{}
}

// A SignalRequest wakes waiters of a condition.
type SignalRequest struct {
	Condition string
	Epoch     uint64 // of the hold
	Op        uint64 // counts up within the epoch, together with Reenter's
	All       bool
	_         struct{}
}

// A SignalReply is the reply to a SignalRequest.
type SignalReply struct {
	Gone    bool     // the epoch no longer has the lock
	More    bool     // with All: other waiters are left, for a SignalRequest with the next Op
	Tickets []uint64 // the signalled tickets of the caller's session
	_       struct{}
}

// TicketStatus is the state of a ticket.
type TicketStatus int8

const (
	// Waited: the ticket waits (Await, Beat), or waited until it was withdrawn (Withdraw).
	Waited TicketStatus = iota + 1
	// Signalled: the ticket was signalled.
	Signalled
	// Gone: there is no such ticket, and for Await no such hold.
	Gone
)

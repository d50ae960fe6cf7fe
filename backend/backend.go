// Package backend is the interface between the lock and the servers: what a Redis, or a substitute for one, does for
// package reentrant. Users of the lock do not need it; package backendtest has the suite that a [Backend] must pass.
package backend

import (
	"context"
	"time"
)

// A Backend is a lock server that the sessions of many processes share: Redis, or a substitute for tests. It decides
// which session has a lock; package reentrant does everything else (queues of goroutines, re-entry, trust, renewal).
//
// Three rules hold for every verb, that is, for every method that sends a command:
//
//   - Atomic. It happens as a whole or not at all, in one order with all other verbs on the same lock.
//   - Idempotent by epoch. A verb that arrives twice, late or in another order than it was sent, changes no more than
//     its first arrival did. The documentation of each verb says how.
//   - Honest errors. An error is wrapped so that [OutcomeUnknown] and [Refused] are right about it: the verb may have
//     happened, or the server read it and refused, or both, if the server stopped in the middle. A verb whose error is
//     neither has changed nothing and can be tried again. Every error that is not a refusal contains [ErrUnavailable]. An
//     error contains a context's error only if the caller's own context has ended.
//
// Times in requests and replies are local (time.Time with its monotonic reading). A backend whose server has a
// clock of its own converts the times to and from that clock, and never reads the wall clock to do so.
//
// The package backendtest has the suite that a Backend must pass.
type Backend interface {
	// Connect opens a session's connection: it checks that the server can be reached and grants the necessary rights,
	// and opens the channel on which the session receives grants. ctx bounds only Connect itself. sink is called from
	// the backend's own goroutine and never blocks.
	Connect(ctx context.Context, session string, sink Sink) (Conn, error)
}

// A Sink receives a session's messages. Each message is a hint, since it may come twice, late or never.
type Sink interface {
	// Granted says that a waiting attempt of this session got the lock.
	Granted(Grant)
	// Signalled says that a ticket of this session was signalled. placed says whether the signal also gave the session a
	// place in the lock's queue, with the ticket as the place's epoch.
	Signalled(name string, ticket uint64, placed bool)
	// Wanted says that another session asked for the lock that an epoch of this session has. For a hold whose owner is
	// [LingeringOwner], Wanted is called at each attempt of the other session, and for a watched hold ([Watcher]) at each
	// attempt that queues up.
	Wanted(name string, epoch uint64)
	// Taken says that another session has taken up a hold of this session ([Resumer]). The epoch is 0 if it is not known.
	Taken(name string, epoch uint64)
	// Reconnected says that the channel was (re)opened. Messages from before may be lost, so the session sends every
	// waiting attempt again, and checks the holds that may have been taken up.
	Reconnected()
}

// A Grant is the message that a waiting attempt got the lock.
type Grant struct {
	_     struct{}
	Name  string
	Epoch uint64
	First Token // the block of tokens, First..Last
	Last  Token
	TTL   time.Duration // from the moment of the grant
	// NotBefore is the earliest local moment at which the grant can have been made. The session trusts the lease as if it
	// had begun then. Zero: not known, so the grant must be confirmed by an Acquire.
	NotBefore time.Time
}

// A Conn is one session's connection to a backend. It is safe for concurrent use.
type Conn interface {
	// Bind prepares the verbs for one lock. The error says what is wrong with the name; no command is sent.
	Bind(name string) (Remote, error)
	// Renew extends the leases of many holds and sets Gone where the epoch no longer has the lock, Err where there was
	// no reply. One bad lock never keeps the others from being renewed. Renew never takes a lock or recreates a hold.
	Renew(ctx context.Context, renewals []Renewal)
	// Close closes the connection. It does not release the locks. A verb that is called later may still be carried out.
	Close() error
}

// A Remote is one lock as the backend knows it, seen by one session.
//
// An epoch is the number of a session's attempt. What a session has on a lock (a hold, a grant or a place among the
// waiters) carries the epoch of the attempt that got it. A verb with a lower epoch never changes what the session has.
type Remote interface {
	// Name is the lock's name.
	Name() string
	// Acquire makes, repeats or refreshes an attempt. If the lock is free and no live session is ahead, the attempt gets the
	// lock. What this session has with a lower epoch is taken over, with a new token. What this session has with the same
	// epoch is confirmed, with the same token and a full lease. A lower epoch, or one that has had the lock or was given up,
	// is Stale. After an unknown outcome it is right to send the same epoch again.
	Acquire(ctx context.Context, req AcquireRequest) (AcquireReply, error)
	// Reenter sets the hold count of epoch. An Op that is not above the last one changes nothing. After an unknown
	// outcome it is right to send the request again, or one with the next Op.
	Reenter(ctx context.Context, req ReenterRequest) (ReenterReply, error)
	// Release gives up what the session's attempts up to Epoch have on the lock, and hands the lock to the live session
	// that has waited longest. After an unknown outcome it is right to send it again: if the first copy was carried out,
	// the next one returns Nothing.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseResult, error)
	// Inspect reads the lock's state for the whole deployment.
	Inspect(ctx context.Context) (State, error)
	// ForceUnlock takes the lock from its holder, and reports whether there was a holder. Unlike a Remote's other
	// verbs it is not idempotent: a second copy takes the lock from the next holder. A copy that arrives after notAfter is
	// refused, as a copy of an Acquire is after its NotAfter.
	ForceUnlock(ctx context.Context, notAfter time.Time) (bool, error)
}

package reentrant

import (
	"context"
	"errors"
	"time"
)

// A Backend is where the sessions of many processes meet: Redis, or a stand-in for tests. It decides who has a
// lock; everything else (queues of goroutines, re-entry, trust, renewal) is this package's.
//
// Three rules hold for every verb:
//
//   - Atomic. It happens as a whole or not at all, in one order with all other verbs on the same lock.
//   - Idempotent by epoch. A verb that arrives twice, late or in another order than it was sent, changes no more
//     than its first arrival did. What makes this possible is written at each verb.
//   - Honest errors. An error is wrapped so that [OutcomeUnknown] and [Refused] tell the truth about it: may it
//     have happened all the same, or did the server read it and refuse? An error that is neither never reached
//     the server and can be tried again. Callers find [ErrUnavailable] in every error that is not a refusal, and of the
//     ends of contexts only that of their own.
//
// Times in requests and replies are local (time.Time with its monotonic reading). A backend whose server has a
// clock of its own maps them, and never reads the wall clock to do so.
//
// The package backendtest has the suite that a Backend must pass.
type Backend interface {
	// Connect gives a session its standing: it checks that the server can be reached and allows what is
	// needed, and opens the channel on which the session is told of grants. ctx bounds only Connect itself.
	// sink is called from the backend's own goroutine and never blocks.
	Connect(ctx context.Context, session string, sink Sink) (Conn, error)
}

// A Sink is the receiving end of a session. Everything it is told is a hint: it may come twice, late or never.
type Sink interface {
	// Granted says that an attempt of this session that was waiting has been given the lock.
	Granted(Grant)
	// Signalled says that a ticket of this session was signalled, and whether the session was given a place in the
	// lock's queue for it, with the ticket as the epoch.
	Signalled(name string, ticket uint64, placed bool)
	// Wanted says that another session asked for the lock that an epoch of this session has. It is said of holds whose
	// owner is [LingeringOwner], at each of the other's attempts.
	Wanted(name string, epoch uint64)
	// Taken says that another session has taken up a hold of this one ([Resumer]). The epoch is 0 if it is not known.
	Taken(name string, epoch uint64)
	// Resumed says that the channel was (re)opened: whatever was said meanwhile is lost, so every waiting
	// attempt is to be sent again, and Redis to be asked for holds that may have been taken up.
	Resumed()
}

// A Grant is a lock that was handed to a waiting attempt.
type Grant struct {
	Name  string
	Epoch uint64
	First Token // the block of tokens, First..Last
	Last  Token
	TTL   time.Duration // from the moment of the grant
	// NotBefore is the earliest local moment at which the grant can have been made; the trust in it counts
	// from there. Zero: not known, so the grant must be confirmed by an Acquire.
	NotBefore time.Time
	_         struct{}
}

// A Conn is one session's standing with a backend. It is safe for concurrent use.
type Conn interface {
	// Bind prepares the verbs for one lock. The error says what is wrong with the name; no command is sent.
	Bind(name string) (Remote, error)
	// Renew prolongs the leases of many holds and sets Gone where the epoch no longer has the lock, Err where
	// there was no answer. One bad lock never keeps the others from being renewed. It never takes a lock or
	// recreates a hold.
	Renew(ctx context.Context, renewals []Renewal)
	// Close ends the standing. It does not touch the locks.
	Close() error
}

// A Remote is one lock as the backend knows it, seen by one session.
//
// An epoch counts the attempts of a session; what a session has on a lock (a hold, a grant or a place among the
// waiters) carries the epoch that it was got with. A verb with a lower epoch than that never changes it.
type Remote interface {
	// Name is the lock's name.
	Name() string
	// Acquire makes, repeats or refreshes an attempt: free and nobody live ahead, it takes the lock; what this
	// session has with a lower epoch is taken over, with a new token; what it has with the same epoch is
	// confirmed, with the same token and a full lease; a lower epoch, and one that has had its turn, is Stale.
	// After an unknown outcome sending the same epoch again is right.
	Acquire(ctx context.Context, req AcquireRequest) (AcquireReply, error)
	// Reenter sets the hold count of epoch. An Op that is not above the last one changes nothing. After an
	// unknown outcome sending it again, or the next one, is right.
	Reenter(ctx context.Context, req ReenterRequest) (ReenterReply, error)
	// Release gives up what the session's attempts up to Epoch have on the lock, and hands it to the longest
	// live waiter. After an unknown outcome sending it again is right; it then answers Nothing.
	Release(ctx context.Context, req ReleaseRequest) (ReleaseResult, error)
	// Await gives up a hold and takes a ticket among those who wait for a condition, in one step. It takes one
	// only in the step that gives up the hold, so sending it again after an unknown outcome is right: it finds the
	// ticket waiting, or Signalled, or, if the hold was gone before, answers Gone.
	Await(ctx context.Context, req AwaitRequest) (TicketStatus, error)
	// Signal wakes the longest live waiter of a condition, or all of them, on behalf of a hold: each gets a place
	// in the lock's queue, unless its session has one or has the lock, and its session is told. It names those of
	// the caller's own session. Of all of them it may wake only as many as the server has time for at once, the longest
	// first, and then says that there are More. An Op that is not above the last one (Reenter counts the same) signals nobody, so
	// after an unknown outcome sending it again is right.
	Signal(ctx context.Context, req SignalRequest) (SignalReply, error)
	// Withdraw takes a ticket back: Waited if it was not signalled before, Signalled if it was, else Gone. A signal is
	// not acknowledged by that: after an unknown outcome sending it again is right.
	Withdraw(ctx context.Context, condition string, ticket uint64) (TicketStatus, error)
	// Beat shows that the session of these tickets is alive, which they need once per Patience, and tells of each
	// whether it waits: Waited, or Signalled (or given up for dead). It acknowledges the signals of served tickets,
	// whose owners are back with the lock. One that is neither beaten for within its Patience nor acknowledged is
	// given to the next waiter.
	Beat(ctx context.Context, condition string, tickets, served []uint64) ([]TicketStatus, error)
	// Inspect reads the lock's state for the whole deployment.
	Inspect(ctx context.Context) (State, error)
	// ForceUnlock takes the lock from whoever has it, and tells whether anybody had. It alone is not idempotent:
	// sent again it takes the lock from the next holder.
	ForceUnlock(ctx context.Context) (bool, error)
}

// The owners of holds that are the session's (reentrant.WithCohort).
const (
	// CohortOwner stands for whichever owner of the session has the lock.
	CohortOwner = "*"
	// LingeringOwner is a CohortOwner whose session may have the lock while none of its owners does. A backend tells
	// it by [Sink.Wanted] when another session asks for the lock.
	LingeringOwner = "*linger"
)

// An AcquireRequest is one copy of an attempt.
type AcquireRequest struct {
	Epoch    uint64
	Owner    string        // the field in the hash after the session's id; any bytes, see CohortOwner
	Holds    int           // hold count to start with, at least 1
	Lease    time.Duration // of the hold
	NotAfter time.Time     // from then on this copy is refused

	Queue   bool // take a place among the waiters if it cannot be had now
	Barge   bool // do not wait behind others for a free lock
	Yield   bool // when taking over from the own session: give it to the first waiter, if any, and queue up
	Fixed   bool // the lease starts when the attempt is first answered Granted; repeating never prolongs it
	KeepTTL bool // when taking over from the own session: leave the lease as it is

	Tokens   int           // size of the block of tokens, 1 to 65,536; the block that is granted may be smaller
	Seen     Token         // highest token that the session has seen for any lock; refused if over a year ahead of the clock
	Patience time.Duration // the place is lost when not refreshed for so long
	GrantTTL time.Duration // lease of a hold that is granted while waiting
	_        struct{}
}

// AcquireStatus is the answer to an attempt.
type AcquireStatus int8

const (
	// Granted: the attempt has the lock.
	Granted AcquireStatus = iota + 1
	// Waiting: another has it, or comes first; with Queue the attempt now has a place.
	Waiting
	// Stale: this epoch, or a higher one of the session, was answered and given up before.
	Stale
)

// An AcquireReply answers an attempt.
type AcquireReply struct {
	Status AcquireStatus
	First  Token // Granted: the block of tokens, of one at least
	Last   Token //
	// TTL is, with Waiting, what is left of the holder's lease, negative if it has none; with Granted and Fixed,
	// what is left of the attempt's own lease, which an earlier copy may have started.
	TTL time.Duration
	_   struct{}
}

// A ReenterRequest sets the hold count of a hold.
type ReenterRequest struct {
	Epoch uint64
	Owner string
	Op    uint64        // counts up within the epoch
	Holds int           // at least 1
	Lease time.Duration // the hold has at least so long when the count rises; 0 leaves it alone
	_     struct{}
}

// A ReenterReply answers a ReenterRequest.
type ReenterReply struct {
	Gone  bool // the epoch no longer has the lock
	Holds int  // the count there is now
	_     struct{}
}

// A ReleaseRequest gives up a hold, a grant or a place.
type ReleaseRequest struct {
	Epoch uint64
	// Until is the time up to which a copy of an attempt up to Epoch may still be under way; such copies are
	// refused until then. Zero: none is.
	Until time.Time
	Used  Token // last token used of the block; 0 for all of it
	_     struct{}
}

// A ReleaseResult tells what was given up.
type ReleaseResult int8

const (
	// Released: the session had the lock.
	Released ReleaseResult = iota + 1
	// Withdrawn: the session had a place among the waiters.
	Withdrawn
	// Nothing: the session had nothing with such an epoch.
	Nothing
)

// An AwaitRequest exchanges a hold for a ticket.
type AwaitRequest struct {
	Condition string
	Epoch     uint64        // of the hold
	Ticket    uint64        // an epoch of its own, above the hold's
	Owner     string        // as in AcquireRequest, as are all that follow: what the waiter comes back with
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

// A SignalReply answers a SignalRequest.
type SignalReply struct {
	Gone    bool     // the epoch no longer has the lock
	More    bool     // with All: others wait still, for a SignalRequest with the next Op
	Tickets []uint64 // of the caller's session, that were signalled
	_       struct{}
}

// TicketStatus is what became of a ticket.
type TicketStatus int8

const (
	// Waited: it waits (Await, Beat), or waited until it was taken back (Withdraw).
	Waited TicketStatus = iota + 1
	// Signalled: it was signalled.
	Signalled
	// Gone: there is no such ticket, and for Await no such hold.
	Gone
)

// A Renewal asks for one hold's lease to be prolonged, and carries the answer.
type Renewal struct {
	Remote Remote
	Epoch  uint64
	Lease  time.Duration

	Gone bool  // set by Renew: the epoch no longer has the lock
	Err  error // set by Renew: there was no answer
}

// State is what the whole deployment knows of a lock at one moment.
type State struct {
	Locked  bool
	Session string        // the holder's session
	Owner   string        // the holder's owner within it, as Owner.String prints it
	Holds   int           //
	TTL     time.Duration // what is left of the lease; negative if it has none
	Epoch   uint64        // the holder's attempt
	Token   Token         // last token given out
	Waiting []string      // sessions with a live place, longest first
}

// A Resumer is what a [Remote] can be besides: one whose holds can move to another session.
type Resumer interface {
	// Resume makes the hold that an owner has, in whichever session, that of an attempt of this session: with the same
	// hold count and token. It takes no free lock and no other owner's. The session that had it is told, by
	// [Sink.Taken]. After an unknown outcome sending it again is right.
	Resume(ctx context.Context, req ResumeRequest) (ResumeReply, error)
}

// A ResumeRequest is one copy of an attempt to take up a hold.
type ResumeRequest struct {
	Epoch    uint64
	Owner    string        // known by this in the whole deployment
	Lease    time.Duration // the hold has at least so long afterwards
	Fixed    bool          // it keeps what it has, if it has a lease at all
	NotAfter time.Time     // from then on this copy is refused
	Seen     Token         // as in AcquireRequest
	_        struct{}
}

// A ResumeReply answers a ResumeRequest.
type ResumeReply struct {
	Status ResumeStatus
	Holds  int
	Token  Token
	TTL    time.Duration
	_      struct{}
}

// ResumeStatus is the answer to a ResumeRequest.
type ResumeStatus int8

const (
	// Resumed: the hold is this attempt's.
	Resumed ResumeStatus = iota + 1
	// NotThere: the owner does not have the lock.
	NotThere
	// Overtaken: a later attempt of this session has it, or this one was given up.
	Overtaken
)

// A Registry is what a [Conn] can be besides: where sessions read who of the others waits for what. Without it
// [WithDeadlockDetection] sees one session only.
type Registry interface {
	// Register replaces what this session has on record, for ttl. An empty text removes it.
	Register(ctx context.Context, text string, ttl time.Duration) error
	// Registered reads what a session has on record, "" if nothing.
	Registered(ctx context.Context, session string) (string, error)
}

// unknownError marks an error after which the verb may have happened all the same.
type unknownError struct{ error }

func (e unknownError) Unwrap() error { return e.error }

// refusedError marks the server's own words: it read the verb and would not do it.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// WithOutcomeUnknown marks err, for Backends: what was asked may have happened all the same.
func WithOutcomeUnknown(err error) error { return unknownError{err} }

// WithRefused marks err, for Backends: the server answered, refused, and would refuse again (a wrong password, a
// missing right, a key of another type).
func WithRefused(err error) error { return refusedError{err} }

// OutcomeUnknown tells whether the server may have done what was asked although err was returned. Nothing is left
// behind for longer than the lease in either case.
func OutcomeUnknown(err error) bool {
	_, ok := errors.AsType[unknownError](err)
	return ok
}

// Refused tells whether err is the server's own refusal, such as a wrong password or a missing right: not
// "somebody else has it", and not worth trying again.
func Refused(err error) bool {
	_, ok := errors.AsType[refusedError](err)
	return ok
}

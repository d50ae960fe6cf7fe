package backend

import "time"

// Owners of holds that belong to a whole session (reentrant.WithCohort).
const (
	// CohortOwner stands for whichever owner of the session has the lock.
	CohortOwner = "*"
	// LingeringOwner is a CohortOwner whose session may have the lock while none of the session's owners does. A backend
	// calls [Sink.Wanted] when another session asks for the lock.
	LingeringOwner = "*linger"
)

// An AcquireRequest is one copy of an attempt.
type AcquireRequest struct {
	Epoch    uint64
	Owner    string        // who has the lock within the session: any bytes; see CohortOwner
	Holds    int           // hold count to start with, at least 1
	Lease    time.Duration // of the hold
	NotAfter time.Time     // from then on this copy is refused

	Queue   bool // take a place among the waiters if the lock is taken
	Barge   bool // do not wait behind others for a free lock
	Yield   bool // when taking over from the own session: give the lock to the first waiter, if any; with Queue, queue up
	Fixed   bool // the lease starts with the first reply Granted; repeating never prolongs it
	KeepTTL bool // when taking over from the own session: leave the lease as it is

	Tokens   int           // size of the block of tokens, 1 to 65,536; the block that is granted may be smaller
	Seen     Token         // highest token that the session has seen for any lock; refused if over a year ahead of the clock
	Patience time.Duration // the place is lost when not refreshed for so long
	GrantTTL time.Duration // lease of a hold that is granted while waiting

	Prior Prior // what the session remembers of the lock; a Backend may ignore it
	_     struct{}
}

// A Prior is what a session remembers of its latest attempt that had a lock: the state in which it left the server's
// record. It is a hint. If the record is still in that state, a Backend can pass the lock on, yield, take or free it
// with less work than without; if not, it ignores the Prior. The comparison and what follows are one step in the
// server. A session forgets its Prior when it does not know the outcome of a verb that may have changed the record.
type Prior struct {
	_      struct{}
	Epoch  uint64 // 0: nothing is remembered, for instance of an attempt that was given a block of tokens
	Owner  string
	Token  Token
	Op     uint64 // the last re-entry or signal
	Pushed bool   // the attempt was granted while it waited, and no reply has confirmed that yet
	Freed  bool   // the lock was released since, with the result Freed
	Note   string // what the Backend set in the Prior of an AcquireReply, for its own use; "" if the attempt was Pushed
}

// AcquireStatus is the result of an attempt.
type AcquireStatus int8

const (
	// Granted: the attempt has the lock.
	Granted AcquireStatus = iota + 1
	// Waiting: another session has the lock, or comes first; with Queue the attempt now has a place.
	Waiting
	// Stale: this epoch has had the lock or was given up, or the session has sent a higher one.
	Stale
)

// An AcquireReply is the reply to an attempt.
type AcquireReply struct {
	Status AcquireStatus
	First  Token // Granted: the block of tokens, of one at least
	Last   Token //
	// TTL is, with Waiting, what is left of the holder's lease, negative if it has none; with Granted and Fixed,
	// what is left of the attempt's own lease, which an earlier copy may have started.
	TTL time.Duration
	// Lingers says, with Waiting, that the holder is a LingeringOwner: its session has been asked for the lock, and gives
	// it up if none of its owners has the lock. A Backend may leave Lingers false.
	Lingers bool
	// Prior is, with Granted, what the session is to remember. Its epoch is 0 if the Backend makes no use of it.
	Prior Prior
	_     struct{}
}

// A ReenterRequest sets the hold count of a hold.
type ReenterRequest struct {
	Epoch uint64
	Owner string
	Op    uint64        // counts up within the epoch
	Holds int           // at least 1
	Lease time.Duration // when the count rises, the hold gets at least this lease; 0 leaves the lease as it is
	_     struct{}
}

// A ReenterReply is the reply to a ReenterRequest.
type ReenterReply struct {
	Gone  bool  // the epoch no longer has the lock
	Holds int   // the count there is now
	First Token // first token of the hold's block; 0: not known, as in a quorum
	_     struct{}
}

// A ReleaseRequest gives up a hold, a grant or a place.
type ReleaseRequest struct {
	Epoch uint64
	// Until is the time up to which a copy of an attempt up to Epoch may still be under way; such copies are refused
	// until then. Zero: no copy is under way.
	Until time.Time
	Used  Token // last token used of the block; 0 for all of it
	// StaysUntil is the time up to which no session gets the lock that is released: the hold becomes one of no session,
	// and ends then. It may stay longer by the time that the verb takes, and does not stay if the verb arrives after
	// StaysUntil. Zero: the lock is free at once.
	StaysUntil time.Time
	Prior      Prior // what the session remembers of the lock, as in AcquireRequest
	_          struct{}
}

// A ReleaseResult reports what was given up.
type ReleaseResult int8

const (
	// Released: the session had the lock.
	Released ReleaseResult = iota + 1
	// Withdrawn: the session had a place among the waiters.
	Withdrawn
	// Nothing: the session had nothing with Epoch or a lower one.
	Nothing
	// Freed: the session had the lock, as the request's Prior says, and no other session waited. The Prior is right
	// again once the session has set the Prior's field Freed.
	Freed
)

// A Renewal asks for an extension of one hold's lease, and carries the reply.
type Renewal struct {
	Remote Remote
	Epoch  uint64
	Lease  time.Duration // units of a shared name keep their lease if that is longer
	// Under is 0 for the hold of a Lock. For units of a shared name ([Sharer]) it is the Under of a ShareRequest. Units
	// are renewed only while Epoch is the session's last one for the name.
	Under Token

	Gone  bool  // set by Renew: the epoch no longer has the lock, or no live units under that token
	First Token // set by Renew, of a Lock's hold: the first token of its block; 0: not known, as in a quorum
	Units int   // set by Renew, with Under: how many units the epoch has
	Err   error // set by Renew: there was no reply, or a refusal
}

// State is what the whole deployment knows of a lock at one moment.
type State struct {
	Locked bool
	// Unlocked says that the holder has released the lock, and that it stays taken for as long as the TTL says
	// ([ReleaseRequest]).
	Unlocked bool
	Session  string        // the holder's session
	Owner    string        // the holder's owner within that session, as Owner.String prints it
	Holds    int           //
	TTL      time.Duration // what is left of the lease; negative if it has none
	Epoch    uint64        // the holder's attempt
	First    Token         // first token of the holder's block; 0: not known, as in a quorum
	Token    Token         // last token given out
	Waiting  []string      // sessions with a live place, longest first
	Note     string        // what the holder noted ([Noter]); "" if nothing
	Since    time.Time     // when the holder got the lock, or its session if the owner is a CohortOwner; zero if that is not known, as in a quorum
	Err      error         // why this lock, one of many, could not be read; all other fields are zero then
}

// Kept reports whether the holder is a [LingeringOwner]: its session keeps the lock for whichever of its owners needs it
// next, and gives it up when another session asks. Only that session knows whether one of its owners has the lock at this
// moment; if the lock stays kept although other sessions wait, one has it.
func (s State) Kept() bool { return s.Locked && s.Owner == LingeringOwner }

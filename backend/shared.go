package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrWrongKind is returned when a name is already used for another kind of lock: a Lock, a read-write lock and a semaphore
// cannot have the same name. It is also returned for a name whose keys have something that is not a lock at all, or cannot be
// read as one. It is a refusal ([Refused]), and nothing was changed. A name's kind is forgotten some seconds after its last
// use.
var ErrWrongKind = errors.New("the name is used for another kind of lock, or for something else")

// An OtherDataError is an ErrWrongKind that says which key has data that is not a lock's, and what data. A [Remote] returns
// it from Inspect if it can find that out.
type OtherDataError struct {
	Key  string
	Data string // such as "a Redis list"
	Err  error
}

func (e *OtherDataError) Error() string {
	return fmt.Sprintf("the key %q holds %s: %v", e.Key, e.Data, e.Err)
}

// Unwrap returns the backend's error.
func (e *OtherDataError) Unwrap() error { return e.Err }

// AllUnits is how many units the write side of a read-write lock needs: all there are. It is also the limit of a read-write
// lock, and the highest limit of a semaphore.
const AllUnits = 1<<31 - 1

// Unlimited is the May of a reply when no other session waits. No session has more units than that.
const Unlimited = AllUnits

// ShareGrace is for how long the head of a semaphore's queue takes only what the other sessions can spare, so that each of
// them keeps a share. From then on the other sessions are to give the head whatever falls free.
const ShareGrace = 10 * time.Millisecond

// A Sharer is an optional interface of a [Remote] whose name many sessions can hold at once, in units. Without it
// read-write locks and semaphores return errors.ErrUnsupported.
//
// The server knows sessions and units. A reader has 1 unit, a writer AllUnits, a user of a semaphore as many as it wants. A
// request fits when the units of the other sessions, and all units that this session would then have, are together no more
// than the request's own Limit. Sessions whose requests do not fit wait in a queue, and only its head is ever served.
type Sharer interface {
	// Share sets how many units the session keeps from now on, and how many it wants. It is the only verb:
	// it requests units, gives them back, waits, withdraws and confirms.
	//
	// A higher epoch than the last one: the session keeps Keep of its live units, gives back the others at once, and
	// wants Want in total. A copy of the last epoch changes none of these numbers: the units that the session still has
	// get a full lease, its place gets a new deadline, and the reply has the present state. A lower epoch is StaleShare.
	//
	// Errors: ErrWrongKind; a refusal of an invalid request (see ShareRequest); a copy that the server refused
	// because NotAfter had passed is ErrUnavailable, not a refusal, and the same epoch can be sent again; ErrNotReplicated.
	// After an unknown outcome sending the same epoch again is right.
	Share(ctx context.Context, req ShareRequest) (ShareReply, error)
	// InspectShared reads what the whole deployment knows of the name. A name that is not in use has the Kind 0. It
	// returns ErrWrongKind for the name of a Lock, as Inspect does for a shared one.
	InspectShared(ctx context.Context) (SharedState, error)
	// ForceShared takes the units of all sessions that have some, and serves the queue. The sessions get no message: a
	// renewal of what they had is Gone, a new request that keeps some of it is ShareLost, and a copy of an old request
	// returns no units. A session that had units has no place any more, either. ForceShared reports whether a session had
	// units. A name that is in use as another kind is ErrWrongKind. After an unknown outcome a second call would take the
	// units of the sessions that got them by the first. A copy that arrives after notAfter is refused, as a copy of a Share
	// is after its NotAfter.
	ForceShared(ctx context.Context, kind ShareKind, notAfter time.Time) (bool, error)
}

// ShareKind is what a shared name is. A name keeps its kind for some seconds after its last use.
type ShareKind int8

const (
	// ReadWrite is a read-write lock: sessions have 0, 1 or AllUnits, and the grant of AllUnits comes with new tokens.
	ReadWrite ShareKind = iota + 1
	// Permits is a semaphore: while others wait, a session is granted what it needs, and then its turn comes again at the
	// end of the queue.
	Permits
)

// A ShareRequest is one copy of what a session says about a name. A resend repeats every field but NotAfter and Memory;
// anything else that changes needs a higher epoch. A request is refused, and nothing is touched, unless
//
//	0 ≤ Keep ≤ Want ≤ AllUnits and 1 ≤ Limit ≤ AllUnits,
//	if Keep < Want, 1 ≤ Least ≤ Want and Least ≤ Limit, and Patience and GrantTTL are positive,
//	and with ReadWrite Keep and Want are 0, 1 or AllUnits, Least is Want and Limit is AllUnits.
type ShareRequest struct {
	Kind  ShareKind
	Epoch uint64
	// Keep is how many of its units the session keeps. If the server knows of fewer, the reply is ShareLost.
	Keep int
	// Want is how many units the session wants in total. Want == Keep asks for nothing, and gives up a place. If Want is
	// more than Keep, the session is granted what fits at once, or gets a place in the queue. A place that it has already
	// is kept where it stands.
	Want int
	// Least is the smallest total that the session accepts. A grant has at least that many units. A grant of Permits has no
	// more than Least while other sessions wait behind this one, unless this session has more already.
	Least int
	// Limit is the most units that all sessions together have when this request is granted.
	Limit int
	// Under is the First of the reply or push by which the session got the first of the units that it has. By Under the server
	// recognizes units from before a loss of its data, and does not confirm them. Under stays the same while the session has
	// any units, so a session that missed a reply names the right token too. 0 if the session has no units.
	Under Token
	// Tail is the last token that a writer used of its block, if the session has AllUnits and keeps fewer. The tokens
	// after it are free again, and readers get Tail as their token. 0: the whole block counts as used.
	Tail Token
	// Tokens is how many tokens a grant of AllUnits has, 1 to 65,536; the grant may have fewer. It is for ReadWrite alone.
	Tokens int
	// Seen is the highest token that the session has seen for any lock; but a ReadWrite request for fewer than AllUnits has
	// the highest that the session has seen for this name. If the server has forgotten the write that Seen comes from,
	// readers get a token above Seen. A request for units whose Seen is over a year ahead of the clock is refused.
	Seen Token
	// Try asks for one attempt: behind other sessions that wait it is refused at once, and the session loses its place, if any.
	// Else it is granted what fits, or the server asks all other sessions that have units (see SharedSink), and the request has
	// the head's place until it is granted or refused. It is refused if it does not fit when all of them have answered, and
	// sooner if one that has answered keeps more units than the request leaves to all others. A refusal is a reply without a
	// place, or a push with fewer units than Least. A higher epoch that is no Try makes the place an ordinary one.
	Try bool
	// Answer is the number of the try that this request answers, as SharedWanted named it: the session keeps only the units
	// that it uses. A request that keeps none answers in any case. 0 answers none, and the number of a try that is over
	// changes nothing.
	Answer uint64

	Lease    time.Duration // of the units that the session has after the reply
	GrantTTL time.Duration // lease of units that are granted while the session waits
	Patience time.Duration // the place is lost when no copy comes for so long
	NotAfter time.Time     // from then on this copy is refused
	Memory   time.Time     // the server knows the epoch until then; not before any NotAfter that this session sent for the name
	_        struct{}
}

// ShareStatus is the result of a ShareRequest.
type ShareStatus int8

const (
	// Shared: the epoch is the session's last one now, and the reply says what the session has.
	Shared ShareStatus = iota + 1
	// StaleShare: the server knows a higher epoch of this session. Nothing was touched.
	StaleShare
	// ShareLost: the server does not know of Keep live units under the token Under. The session has no units and no place
	// now, and the epoch is its last one. Copies of the request return Shared with no units and no place.
	ShareLost
)

// A ShareReply is the reply to a ShareRequest, with the state after it.
type ShareReply struct {
	Status ShareStatus
	Epoch  uint64 // the session's last one, as the server knows it; with StaleShare higher than the request's
	// Units is how many units the session has. The request's lease of them began when the copy was sent, at the earliest.
	// Without a place the number is final. It can be less than Want, and less than Keep if the units' lease has ended since.
	Units  int
	Placed bool // the session has a place in the queue, and receives the grant as a push, with the same epoch
	// First and Last are the tokens under which the session has the units, 0 with no units. A writer (AllUnits) has a
	// block of even tokens, First, First+2, … Last. All others have First == Last, the last token that a writer used or
	// could have used: their version is one above it. A writer that kept 1 has the version of a reader from then on. While a
	// session with AllUnits has not used a token, nothing was written after First - 1, which is the version of its readers.
	First, Last Token
	// May is how many units the session may keep so that the head of the queue fits: the session is to give back the
	// rest. It is Unlimited if no session waits, or if this session is the head: so a session with a place learns that
	// it is the head. With Permits it is 0 when the head has waited for some milliseconds. The other sessions learn their
	// May by a push.
	May int
	// Share is Limit divided by the number of sessions that have units or a place, this one included, rounded up. 0 with
	// ReadWrite.
	Share int
	// Try is the number of another session's try, as SharedWanted names it, if that try is the head of the queue. May then
	// makes room for that try, and not for a session that waits. Otherwise Try is 0.
	Try uint64
	_   struct{}
}

// A SharedSink is an optional interface of a [Sink] that receives messages about shared names. Without it the session
// gets no news until its next copy. Both messages are hints: they may come twice, late or never.
type SharedSink interface {
	// Shared says that a request of this session that had a place was granted, or, with fewer units than its Least, that
	// a Try was refused. It counts only for the epoch that it names, while that is the session's last one.
	Shared(ShareGrant)
	// SharedWanted says that another session waits for units of the name, and that this session is to keep at most may of its
	// units. may is Unlimited when the last session that waited has left without a grant. SharedWanted is called when may
	// falls, and again at each copy of the request at the head of the queue. If try is not 0, that request is the Try with this
	// number, and does not wait. It may need this session's answer: a request with a higher epoch that keeps only the units in
	// use, and names try as its Answer.
	SharedWanted(name string, may int, try uint64)
}

// A ShareGrant is the message that a waiting request was granted, or that a Try was refused.
type ShareGrant struct {
	Name  string
	Epoch uint64
	Units int   // in total; fewer than the request's Least if it was refused
	First Token // as in ShareReply
	Last  Token
	May   int           // as in ShareReply
	TTL   time.Duration // of all its units, from the moment of the grant; 0 with no units
	// NotBefore is the earliest local moment at which the grant can have been made; the trust in it counts from there.
	// Zero: not known, so the grant must be confirmed by a copy of the request.
	NotBefore time.Time
	_         struct{}
}

// SharedState is what the whole deployment knows of a shared name at one moment.
type SharedState struct {
	Kind    ShareKind      // 0 if the name is not in use
	Token   Token          // last token given out and not given back
	Holders []SharedHolder // in no particular order
	Waiting []SharedWaiter // with a live place, longest first
}

// A SharedHolder is a session that has live units.
type SharedHolder struct {
	Session string
	Epoch   uint64
	Units   int
	Under   Token         // the token under which it got the first of its units
	Limit   int           // the Limit of its last request
	TTL     time.Duration // what is left of the lease
	// Since is when it was last granted units, by the server's clock. Zero if that is not known. A session keeps units
	// between the calls that use them, so a call may have them for a shorter time.
	Since time.Time
	Note  string // see ShareNoter; "" if there is none
}

// A SharedWaiter is a session with a place in the queue. It may be a holder as well.
type SharedWaiter struct {
	Session string
	Epoch   uint64
	Want    int
	Least   int
	Limit   int
}

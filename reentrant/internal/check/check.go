// Package check checks the replies of a backend on arrival. An impossible reply is an error whose outcome is unknown, as if
// there had been no reply.
package check

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/relock-go/relock/backend"
)

// maxHolds is the largest hold count, as in Java.
const maxHolds = math.MaxInt32

// Acquire checks the reply to an attempt.
func Acquire(r *backend.AcquireReply) error {
	granted := r.Status == backend.Granted && r.First > 0 && r.Last >= r.First
	if granted || r.Status == backend.Waiting || r.Status == backend.Stale {
		return nil
	}
	return impossible(*r)
}

// Resume checks the reply to a Resume.
func Resume(r *backend.ResumeReply) error {
	resumed := r.Status == backend.Resumed && r.Holds > 0 && r.Holds <= maxHolds && r.Token > 0
	if resumed || r.Status == backend.NotThere || r.Status == backend.Overtaken {
		return nil
	}
	return impossible(*r)
}

// Reenter checks the reply to a change of the hold count.
func Reenter(r *backend.ReenterReply) error {
	if r.Gone || r.Holds > 0 && r.Holds <= maxHolds {
		return nil
	}
	return impossible(*r)
}

// Release checks the result of a release.
func Release(r backend.ReleaseResult) error {
	if r >= backend.Released && r <= backend.Freed {
		return nil
	}
	return impossible(r)
}

// Same reports whether a reply is about the hold whose block of tokens begins with first. A server that forgot the hold may
// have granted its epoch again, after another session had the lock: then the block is another one. replied is 0 in a reply
// that does not say.
func Same(first, replied backend.Token) bool { return replied == 0 || replied == first }

// Ticket checks the status of a ticket.
func Ticket(s backend.TicketStatus) error {
	if s >= backend.Waited && s <= backend.Gone {
		return nil
	}
	return impossible(s)
}

// State checks the state of a lock.
func State(s *backend.State) error {
	if s.Holds >= 0 {
		return nil
	}
	return impossible(*s)
}

// Shared checks the state of a read-write lock or a semaphore.
func Shared(s *backend.SharedState) error {
	for _, h := range s.Holders {
		if h.Units <= 0 || h.Units > backend.AllUnits {
			return impossible(*s)
		}
	}
	return nil
}

// Share checks the reply to a claim of units.
func Share(req *backend.ShareRequest, r *backend.ShareReply) error {
	ok := false
	switch r.Status {
	case backend.StaleShare:
		ok = r.Epoch > req.Epoch
	case backend.ShareLost:
		ok = true
	case backend.Shared:
		ok = Units(req.Kind, r.Units, r.First, r.Last) && r.Units <= req.Want
	}
	if ok {
		return nil
	}
	return impossible(*r)
}

// Any client that may publish to a session's channel can forge a push, so a session accepts no more from a push than it asked
// for. A push that does not pass these checks is not an error: the session asks the server with another copy of its request.

// Grant reports whether a push can be the grant that was asked for.
func Grant(req *backend.AcquireRequest, g *backend.Grant) bool {
	return askedFor(g.TTL, req.GrantTTL) && 0 < g.First && g.First <= g.Last && g.Last-g.First < backend.Token(req.Tokens)
}

// ShareGrant reports whether a push can be the grant of units to a session whose request has Least and Want as given, and asked
// as its GrantTTL.
func ShareGrant(kind backend.ShareKind, g *backend.ShareGrant, least, want int, asked time.Duration) bool {
	return askedFor(g.TTL, asked) && least <= g.Units && g.Units <= want && Units(kind, g.Units, g.First, g.Last)
}

// askedFor reports whether a push's TTL is no longer than was asked for. Redis counts whole milliseconds, rounded up.
func askedFor(ttl, asked time.Duration) bool { return ttl < asked+time.Millisecond }

// Units reports whether a session can have this many units under these tokens.
func Units(kind backend.ShareKind, units int, first, last backend.Token) bool {
	switch {
	case units == 0:
		return true
	case units < 0 || first == 0 || last < first:
		return false
	case kind == backend.ReadWrite:
		return units == 1 && first == last || units == backend.AllUnits
	}
	return true
}

// ErrImpossible is in the error of every reply that does not pass.
var ErrImpossible = errors.New("the backend's reply cannot be right")

// impossible returns the error of a reply. Only an impossible one is copied to the heap.
func impossible(reply any) error {
	return backend.WithOutcomeUnknown(fmt.Errorf("%w: %+v", ErrImpossible, reply))
}

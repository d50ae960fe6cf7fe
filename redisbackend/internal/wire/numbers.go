package wire

import (
	"fmt"
	"math"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// The bounds of the numbers in requests and replies, with and without scripts. A request out of bounds is refused
// before it is sent.

const (
	// maxNumber is the highest number that Lua counts to in steps of one, for epochs, operations and tickets.
	maxNumber = 1<<53 - 1
	// maxHolds is the highest hold count, as in package reentrant.
	maxHolds = math.MaxInt32
	// MaxTTL is the maximum of leases, patiences and doubts: longer ones are cut. Twice as much does not overflow.
	MaxTTL = 30 * 365 * 24 * time.Hour
)

// CheckNumbers refuses epochs, operations and tickets that Lua would round.
func CheckNumbers(numbers ...uint64) error {
	for _, n := range numbers {
		if n > maxNumber {
			return Invalid(fmt.Sprintf("%d: epochs, operations and tickets are less than 2^53", n))
		}
	}
	return nil
}

// countable returns the token to send: at most the highest number that Lua can count. No server gives out a higher
// token.
func countable(t backend.Token) backend.Token {
	return min(t, maxNumber)
}

func checkHolds(holds int) error {
	if holds < 1 || holds > maxHolds {
		return Invalid(fmt.Sprintf("the hold count must be within 1 and %d", maxHolds))
	}
	return nil
}

// CheckAcquire refuses a request for a hold or a place that would expire at once, and numbers out of bounds.
func CheckAcquire(req *backend.AcquireRequest) error {
	switch {
	case req.Tokens < 1 || req.Tokens > protocol.MaxBlock:
		return Invalid(fmt.Sprintf("the number of tokens must be within 1 and %d", protocol.MaxBlock))
	case req.Lease <= 0:
		return Invalid("the lease must be positive")
	case req.Queue && (req.Patience <= 0 || req.GrantTTL <= 0):
		return Invalid("a waiter's patience and grant TTL must be positive")
	}
	req.Lease, req.Patience, req.GrantTTL = min(req.Lease, MaxTTL), min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL)
	req.Seen = countable(req.Seen)
	if err := checkHolds(req.Holds); err != nil {
		return err
	}
	return CheckNumbers(req.Epoch)
}

// CheckReenter refuses numbers out of bounds, and cuts a lease that Redis cannot count.
func CheckReenter(req *backend.ReenterRequest) error {
	req.Lease = min(req.Lease, MaxTTL)
	if err := checkHolds(req.Holds); err != nil {
		return err
	}
	return CheckNumbers(req.Epoch, req.Op)
}

// CheckRelease refuses numbers out of bounds.
func CheckRelease(req *backend.ReleaseRequest) error {
	req.Used = countable(req.Used)
	return CheckNumbers(req.Epoch)
}

// CheckResume refuses a request for a hold that would expire at once, and numbers out of bounds.
func CheckResume(req *backend.ResumeRequest) error {
	if req.Lease <= 0 {
		return Invalid("the lease must be positive")
	}
	req.Lease, req.Seen = min(req.Lease, MaxTTL), countable(req.Seen)
	return CheckNumbers(req.Epoch)
}

// CheckNote refuses a note that is too long.
func CheckNote(req *backend.NoteRequest) error {
	if len(req.Text) > backend.MaxNote {
		return Invalid("the note must have no more than 256 bytes")
	}
	return CheckNumbers(req.Epoch)
}

// CheckRenewal refuses a renewal that would end a hold at once, and numbers out of bounds.
func CheckRenewal(r *backend.Renewal) error {
	if r.Lease <= 0 {
		return Invalid("the lease must be positive")
	}
	return CheckNumbers(r.Epoch)
}

// CheckAwait refuses a request for a ticket that would expire at once, and numbers out of bounds.
func CheckAwait(req *backend.AwaitRequest) error {
	if req.Patience <= 0 || req.GrantTTL <= 0 {
		return Invalid("a waiter's patience and grant TTL must be positive")
	}
	req.Patience, req.GrantTTL, req.Seen = min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL), countable(req.Seen)
	if err := checkHolds(req.Holds); err != nil {
		return err
	}
	return CheckNumbers(req.Epoch, req.Ticket)
}

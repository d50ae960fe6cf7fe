package protocol

import (
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
)

const (
	// MaxBlock is the largest block of tokens that an attempt may ask for, as backend.AcquireRequest says.
	MaxBlock = 1 << 16
	// Horizon is how far beyond the server's clock a block of more than one token reaches at most. So tokens can fall by that
	// much when the server forgets them.
	Horizon = 5 * time.Second
	// Farthest is how far beyond the server's clock a token may be. A clock that is wrong, by mistake or after a failover, is
	// not wrong by so much. A request beyond Farthest is refused as forged, because the tokens of a lock never fall again.
	Farthest = 366 * 24 * time.Hour
)

// Errors of an attempt that changed nothing.
var (
	// ErrLate is returned for a copy that arrived after the time until which it may be executed.
	ErrLate = errors.New("it came too late and was not carried out")
	// ErrFarToken is returned for an attempt whose tokens would be further ahead of the clock than Farthest.
	ErrFarToken = backend.WithRefused(errors.New(
		"FARTOKEN the fencing tokens would be more than a year ahead of the server's clock"))
	// ErrWrongKind is backend.ErrWrongKind, as a refusal.
	ErrWrongKind = backend.WithRefused(backend.ErrWrongKind)
)

// tooFar reports whether tokens that are issued now, above the last one and above what the session has seen, would be
// further ahead of the clock than Farthest.
func (r *Record) tooFar(now Instant, tokens int, seen backend.Token) bool {
	return max(r.Last, seen) > clockToken(now+Farthest)-backend.Token(tokens)
}

// CheckShare refuses impossible requests, as backend.ShareRequest describes.
func CheckShare(req *backend.ShareRequest) error {
	asks := req.Want > req.Keep
	writer := func(units int) bool { return units == 0 || units == 1 || units == backend.AllUnits }
	switch {
	case req.Kind != backend.ReadWrite && req.Kind != backend.Permits:
		return refusal("there is no such kind")
	case req.Keep < 0 || req.Want < req.Keep || req.Want > backend.AllUnits:
		return refusal("the units must be within 0 ≤ Keep ≤ Want ≤ AllUnits")
	case req.Limit < 1 || req.Limit > backend.AllUnits:
		return refusal("the limit must be within 1 and AllUnits")
	case asks && (req.Least < 1 || req.Least > req.Want || req.Least > req.Limit):
		return refusal("the least must be within 1 and both the units wanted and the limit")
	case req.Kind == backend.ReadWrite && (!writer(req.Keep) || !writer(req.Want) || req.Limit != backend.AllUnits || asks && req.Least != req.Want):
		return refusal("a read-write lock has 0, 1 or AllUnits, and the limit AllUnits")
	case req.Kind == backend.ReadWrite && asks && (req.Tokens < 1 || req.Tokens > MaxBlock):
		return refusal("the number of tokens must be within 1 and 65536")
	case req.Lease <= 0:
		return refusal("the lease must be positive")
	case asks && (req.Patience <= 0 || req.GrantTTL <= 0):
		return refusal("a waiter's patience and grant TTL must be positive")
	}
	return nil
}

func refusal(words string) error { return backend.WithRefused(errors.New("invalid request: " + words)) }

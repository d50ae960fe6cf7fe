package protocol

import (
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
)

const (
	// MaxBlock is how many tokens an attempt may ask for at once: what AcquireRequest says.
	MaxBlock = 1 << 16
	// Horizon is how far beyond the server's clock a block of more than one token reaches at most, and so by how much
	// tokens can fall when the server forgets them.
	Horizon = 5 * time.Second
	// Farthest is how far beyond the server's clock any token is: further than a clock is wrong, by mistake or after a
	// failover. What asks for more is refused: it was forged, and the tokens of a lock never fall again.
	Farthest = 366 * 24 * time.Hour
)

// Errors of an attempt that changed nothing.
var (
	// ErrLate is that of a copy that came after the time up to which it may be executed.
	ErrLate = errors.New("it came too late and was not carried out")
	// ErrFarToken is that of an attempt whose tokens would be further ahead of the clock than Farthest.
	ErrFarToken = backend.WithRefused(errors.New(
		"FARTOKEN the fencing tokens would be more than a year ahead of the server's clock"))
)

// tooFar reports whether tokens that are issued now, above the last one and above what the session has seen, would be
// further ahead of the clock than Farthest.
func (r *Record) tooFar(now Instant, tokens int, seen backend.Token) bool {
	return max(r.Last, seen) > clockToken(now+Farthest)-backend.Token(tokens)
}

package localqueue

import "fmt"

// An Outcome is how a claim ended. The zero value is no outcome.
type Outcome int8

const (
	// Claimed says that the caller has the baton, busy and without holds.
	Claimed Outcome = iota + 1
	// Reentered says that the owner has holds already, and that the caller has its baton, busy.
	Reentered
	// Busy says that the baton is not free, so that getting it needs a wait.
	Busy
	// Cancelled says that done was closed, or the queue was shut, before the caller's turn came.
	Cancelled
	// TimedOut says that timeout delivered before the caller's turn came.
	TimedOut
	// Full says that getting the baton needs a wait, and that as many wait already as the claim allows.
	Full
)

var outcomeNames = [...]string{
	Claimed:   "claimed",
	Reentered: "reentered",
	Busy:      "busy",
	Cancelled: "cancelled",
	TimedOut:  "timed out",
	Full:      "full",
}

// String returns the name of the outcome.
func (o Outcome) String() string {
	if o < Claimed || o > Full {
		return fmt.Sprintf("Outcome(%d)", int8(o))
	}
	return outcomeNames[o]
}

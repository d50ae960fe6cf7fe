package localqueue

import "fmt"

// An Outcome says how a claim ended. Its zero value is no outcome.
type Outcome int8

const (
	// Claimed says that the baton is the caller's, busy and without holds.
	Claimed Outcome = iota + 1
	// Reentered says that the owner has holds, and its baton is busy on the caller's behalf.
	Reentered
	// Busy says that the baton is out, and would have to be waited for.
	Busy
	// Cancelled says that done was closed, or the line expelled, before the caller's turn came.
	Cancelled
	// TimedOut says that timeout delivered before the caller's turn came.
	TimedOut
)

var outcomeNames = [...]string{
	Claimed:   "claimed",
	Reentered: "reentered",
	Busy:      "busy",
	Cancelled: "cancelled",
	TimedOut:  "timed out",
}

// String names the outcome.
func (o Outcome) String() string {
	if o < Claimed || o > TimedOut {
		return fmt.Sprintf("Outcome(%d)", int8(o))
	}
	return outcomeNames[o]
}

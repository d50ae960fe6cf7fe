package sharedqueue

import "fmt"

// An Outcome is how a claim ended. The zero value is no outcome.
type Outcome int8

const (
	// Admitted says that the claim has what it asked for.
	Admitted Outcome = iota + 1
	// Reentered says that the owner had a hold already and now has one more.
	Reentered
	// Waiting says that the claim is in line: the caller goes on with Wait.
	Waiting
	// Busy says that the claim cannot be admitted now, and that it does not wait.
	Busy
	// Upgrade says that the owner asks to write, but reads already or has a claim to read in line: the owner would wait for
	// itself.
	Upgrade
	// TooMany says that the owner has [MaxHolds] holds already.
	TooMany
	// Cancelled says that the channel done, an argument of Wait, was closed before the claim was admitted.
	Cancelled
	// TimedOut says that the channel timeout, an argument of Wait, delivered before the claim was admitted.
	TimedOut
	// Expelled says that the queue sent the claim away, by Shut or Expel.
	Expelled
	// Full says that the claim would have to wait, and that the most claims that EnterFor allows are in line already.
	Full
	// Unanswered says that the server did not reply to the one attempt of the claim.
	Unanswered
)

var outcomeNames = [...]string{
	Admitted:  "admitted",
	Reentered: "reentered",
	Waiting:   "waiting",
	Busy:      "busy",
	Upgrade:   "upgrade",
	TooMany:   "too many",
	Cancelled: "cancelled",
	TimedOut:  "timed out",
	Expelled:  "expelled",
	Full:      "full",

	Unanswered: "unanswered",
}

// String returns the name of the outcome.
func (o Outcome) String() string {
	if o < Admitted || o > Unanswered {
		return fmt.Sprintf("Outcome(%d)", int8(o))
	}
	return outcomeNames[o]
}

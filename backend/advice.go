package backend

import "context"

// An Adviser is an optional interface of a [Conn] that can see settings of the server that endanger locks. A session logs what
// it says as warnings, once, after it was opened.
type Adviser interface {
	// Advice returns what should be set differently, a sentence each; nothing if the server does not say how it is set, or
	// has not replied when ctx ends.
	Advice(ctx context.Context) []string
}

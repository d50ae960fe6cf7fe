package backend

import "context"

// An Adviser is an optional interface of a [Conn] that can see settings of the server that endanger locks. A session logs the
// advice as warnings, once, after it has been opened.
type Adviser interface {
	// Advice returns what should be set differently, in one sentence for each setting. It returns nothing if the server
	// does not report its settings, or has not replied when ctx ends.
	Advice(ctx context.Context) []string
}

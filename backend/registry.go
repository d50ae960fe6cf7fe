package backend

import (
	"context"
	"time"
)

// A Registry is what a [Conn] can be besides: where sessions read who of the others waits for what. Without it
// [WithDeadlockDetection] sees one session only.
type Registry interface {
	// Register replaces what this session has on record, for ttl. An empty text removes it.
	Register(ctx context.Context, text string, ttl time.Duration) error
	// Registered reads what a session has on record, "" if nothing.
	Registered(ctx context.Context, session string) (string, error)
}

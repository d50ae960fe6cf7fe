package backend

import (
	"context"
	"time"
)

// A Registry is an optional interface of a [Conn]: each session records there which of its owners wait for which locks,
// and reads the records of others. Without it reentrant.WithDeadlockDetection sees only one session.
type Registry interface {
	// Register replaces this session's record, for ttl. An empty text removes it.
	Register(ctx context.Context, text string, ttl time.Duration) error
	// Registered reads a session's record, "" if it has none.
	Registered(ctx context.Context, session string) (string, error)
}

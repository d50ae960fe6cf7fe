package memory

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var _ backend.Registry = (*Conn)(nil)

// A registered is the record of a session, until it expires.
type registered struct {
	text    string
	expires protocol.Instant
}

// Register implements backend.Registry.
func (c *Conn) Register(ctx context.Context, text string, ttl time.Duration) error {
	op := Op{Session: c.name, Verb: Register}
	_, err := call(ctx, c, op, func(now protocol.Instant) (struct{}, line) {
		c.b.registry[c.session] = registered{text, now + ttl}
		return struct{}{}, func() string { return op.String() + " → " + either(text != "", "told", "withdrawn") }
	})
	return wrapped(op, err)
}

// Registered implements backend.Registry.
func (c *Conn) Registered(ctx context.Context, session string) (string, error) {
	op := Op{Session: c.name, Verb: Registered}
	text, err := call(ctx, c, op, func(now protocol.Instant) (string, line) {
		r := c.b.registry[session]
		if now > r.expires {
			r.text = ""
		}
		return r.text, func() string {
			return op.String() + " of " + c.b.names[session] + " → " + either(r.text != "", "something", "nothing")
		}
	})
	return text, wrapped(op, err)
}

package single

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Registry = (*Conn)(nil)

// registered returns the key of a session's record: a string, <prefix>relock:waits:<session>.
func (c *Conn) registered(session string) string {
	return c.Deployment.Prefix + wire.Reserved + "waits:" + session
}

// Register implements backend.Registry.
func (c *Conn) Register(ctx context.Context, text string, ttl time.Duration) error {
	build := c.Deployment.Client.B()
	cmd := build.Del().Key(c.registered(c.Session)).Build()
	if text != "" {
		cmd = build.Set().Key(c.registered(c.Session)).Value(text).PxMilliseconds(int64(wire.Millis(ttl))).Build()
	}
	if err := c.Deployment.Client.Do(ctx, cmd).Error(); err != nil {
		return wire.Fail(ctx, err)
	}
	return nil
}

// Registered implements backend.Registry.
func (c *Conn) Registered(ctx context.Context, session string) (string, error) {
	if err := CheckSession(session); err != nil {
		return "", fmt.Errorf("redisbackend: %w", err)
	}
	text, err := c.Deployment.Client.Do(ctx, c.Deployment.Client.B().Get().Key(c.registered(session)).Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return "", nil
	case err != nil:
		return "", wire.Fail(ctx, err)
	}
	return text, nil
}

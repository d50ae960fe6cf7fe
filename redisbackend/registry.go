package redisbackend

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
)

var _ backend.Registry = (*conn)(nil)

// registered is the key of what a session has on record: a string, <prefix>relock:waits:<session>.
func (c *conn) registered(session string) string {
	return c.deployment.prefix + reserved + "waits:" + session
}

// Register implements backend.Registry.
func (c *conn) Register(ctx context.Context, text string, ttl time.Duration) error {
	build := c.deployment.client.B()
	cmd := build.Del().Key(c.registered(c.session)).Build()
	if text != "" {
		cmd = build.Set().Key(c.registered(c.session)).Value(text).PxMilliseconds(int64(millis(ttl))).Build()
	}
	if err := c.deployment.client.Do(ctx, cmd).Error(); err != nil {
		return fail(ctx, err)
	}
	return nil
}

// Registered implements backend.Registry.
func (c *conn) Registered(ctx context.Context, session string) (string, error) {
	if err := checkSession(session); err != nil {
		return "", fmt.Errorf("redisbackend: %w", err)
	}
	text, err := c.deployment.client.Do(ctx, c.deployment.client.B().Get().Key(c.registered(session)).Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return "", nil
	case err != nil:
		return "", fail(ctx, err)
	}
	return text, nil
}

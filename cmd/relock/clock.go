package main

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// A redisClock returns the time of Redis's clock, from which tokens are made. It asks Redis once, and continues by this
// machine's monotonic clock.
type redisClock struct {
	server *server

	redis time.Time // Redis's time when it was asked; zero before
	local time.Time // the local time then
}

// since returns how long ago a token was given out. It is not known if Redis does not return its time, or if the token
// is ahead of it, as the tokens of a busy lock can be.
func (c *redisClock) since(ctx context.Context, t reentrant.Token) (_ time.Duration, known bool) {
	if c.redis.IsZero() && c.ask(ctx) != nil {
		return 0, false
	}
	age := c.redis.Add(time.Since(c.local)).Sub(time.UnixMicro(int64(t)))
	return age, age >= 0
}

func (c *redisClock) ask(ctx context.Context) error {
	client, err := c.server.client()
	if err != nil {
		return err
	}
	defer client.Close()
	parts, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return err
	}
	c.redis, c.local = time.Unix(parts[0], parts[1]*int64(time.Microsecond)), time.Now()
	return nil
}

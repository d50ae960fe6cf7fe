package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/reentrant"
)

// replicas is how many replicas must have an acquire before it counts, and how long they are waited for.
type replicas struct {
	n       int
	timeout time.Duration
}

// execReplicated is exec for an acquire that the replicas must acknowledge. WAIT speaks of what its own connection has
// written, so both go over one that nobody else uses.
func (r *remote) execReplicated(ctx context.Context, keys, args []string, deadline time.Time) (a answer, err error) {
	client, release, err := dedicate(ctx, r.conn.deployment.client)
	if err != nil {
		return answer{}, fmt.Errorf("redisbackend: acquire: not sent: %w", err)
	}
	defer func() { giveBack(client, release, err) }()
	list, at, err := r.read(ctx, "acquire", func() rueidis.RedisResult {
		return evalOn(ctx, client, &r.conn.deployment.scripts.acquire, keys, args)
	})
	if err == nil {
		a, err = r.decode("acquire", list, at, 3)
	}
	if err != nil || a.code != acquireGranted {
		return a, err
	}
	return a, r.acknowledged(ctx, client, args[1], deadline)
}

// evalOn runs a script over one connection.
func evalOn(ctx context.Context, c rueidis.DedicatedClient, s *script, keys, args []string) rueidis.RedisResult {
	n := int64(len(keys))
	result := c.Do(ctx, c.B().Evalsha().Sha1(s.sha).Numkeys(n).Key(keys...).Arg(args...).Build())
	if errorCode(result.Error()) == "NOSCRIPT" {
		result = c.Do(ctx, c.B().Eval().Script(s.text).Numkeys(n).Key(keys...).Arg(args...).Build())
	}
	return result
}

// acknowledged waits for the replicas. If too few have it, it gives the epoch back.
func (r *remote) acknowledged(ctx context.Context, client rueidis.DedicatedClient, epoch string, deadline time.Time) error {
	want := r.conn.deployment.replicas
	limit := max(min(want.timeout, time.Until(deadline)), time.Millisecond)
	got, err := client.Do(ctx, client.B().Wait().Numreplicas(int64(want.n)).Timeout(limit.Milliseconds()).Build()).ToInt64()
	if err != nil {
		if errorCode(err) == "" {
			r.clock.forget() // as in read
		}
		return reentrant.WithOutcomeUnknown(fail(ctx, "wait for the replicas", err)) // the lock may be had
	}
	if got >= int64(want.n) {
		return nil
	}
	err = reentrant.WithRefused(fmt.Errorf("redisbackend: acquire: %d of %d replicas have it: %w", got, want.n, reentrant.ErrNotReplicated))
	args := []string{r.conn.session, epoch, "0", "0", r.conn.deployment.channels, "0"}
	if released := evalOn(ctx, client, &r.conn.deployment.scripts.release, r.keys[:], args).Error(); released != nil {
		return errors.Join(err, fail(ctx, "give it back", released))
	}
	return err
}

package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
)

// replicas is how many replicas must have an acquire or a resume before it counts, and how long they are waited for.
type replicas struct {
	n       int
	timeout time.Duration
}

// acquireReplicated is an acquire that the replicas must acknowledge. If too few do, it gives the epoch back.
func (r *remote) acquireReplicated(ctx context.Context, args []string, deadline time.Time) (answer, error) {
	return r.replicated(ctx, &r.conn.deployment.scripts.acquire, args, deadline, func(client rueidis.DedicatedClient, few error) error {
		release := []string{r.conn.session, args[1], "0", "0", r.conn.deployment.channels, "0"}
		err := evalOn(ctx, client, &r.conn.deployment.scripts.release, r.keys[:], release).Error()
		if err != nil {
			err = fail(ctx, fmt.Errorf("give it back: %w", err))
		}
		return errors.Join(backend.WithRefused(few), err)
	})
}

// resumeReplicated is a resume that the replicas must acknowledge. If too few do, the hold stays this session's: to give it
// back would end what its owner has. The outcome is then unknown, and sending it again waits for the replicas again.
func (r *remote) resumeReplicated(ctx context.Context, args []string, deadline time.Time) (answer, error) {
	return r.replicated(ctx, &r.conn.deployment.scripts.resume, args, deadline, func(_ rueidis.DedicatedClient, few error) error {
		return backend.WithOutcomeUnknown(few)
	})
}

// replicated runs a script that the replicas must acknowledge if its code is 1, the lock is the attempt's. tooFew returns
// the error if they do not. WAIT speaks of what its own connection has written, so both go over one that nobody else uses.
func (r *remote) replicated(ctx context.Context, s *script, args []string, deadline time.Time,
	tooFew func(rueidis.DedicatedClient, error) error) (a answer, err error) {
	client, release, err := dedicate(ctx, r.conn.deployment.client)
	if err != nil {
		return answer{}, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	defer func() { giveBack(client, release, err) }()
	list, at, err := r.read(ctx, func() rueidis.RedisResult { return evalOn(ctx, client, s, r.keys[:], args) })
	if err == nil {
		a, err = r.decode(list, at, 3)
	}
	if err != nil || a.code != acquireGranted { // which is resumeResumed
		return a, err
	}
	want := r.conn.deployment.replicas.n
	got, err := r.acknowledged(ctx, client, deadline)
	if err == nil && got < want {
		err = tooFew(client, fmt.Errorf("redisbackend: %d of %d replicas have it: %w", got, want, backend.ErrNotReplicated))
	}
	return a, err
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

// acknowledged waits for the replicas, and returns how many have what the connection has written.
func (r *remote) acknowledged(ctx context.Context, client rueidis.DedicatedClient, deadline time.Time) (int, error) {
	want := r.conn.deployment.replicas
	limit := max(min(want.timeout, time.Until(deadline)), time.Millisecond)
	got, err := client.Do(ctx, client.B().Wait().Numreplicas(int64(want.n)).Timeout(limit.Milliseconds()).Build()).ToInt64()
	if err != nil {
		if errorCode(err) == "" {
			r.clock.forget() // as in read
		}
		return 0, backend.WithOutcomeUnknown(fail(ctx, fmt.Errorf("wait for the replicas: %w", err))) // the lock may be had
	}
	return int(got), nil
}

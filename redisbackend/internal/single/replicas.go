package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// Replicas is how many replicas must acknowledge an acquire or a resume before it counts, and how long a verb waits for
// them.
type Replicas struct {
	Count   int
	Timeout time.Duration
}

// acquireReplicated sends an acquire that the replicas must acknowledge. If too few do, it gives the lock back.
func (r *Remote) acquireReplicated(ctx context.Context, args []string, deadline time.Time) (answer, error) {
	return r.replicated(ctx, &r.Conn.Deployment.scripts.Acquire, r.Keys[:], args, deadline, func(client rueidis.DedicatedClient, few error) error {
		release := []string{r.Conn.Session, args[1], "0", "0", r.Conn.Deployment.Channels, "0"}
		err := evalOn(ctx, client, &r.Conn.Deployment.scripts.Release, r.Keys[:], release).Error()
		if err != nil {
			err = wire.Fail(ctx, fmt.Errorf("give it back: %w", err))
		}
		return errors.Join(backend.WithRefused(few), err)
	})
}

// resumeReplicated sends a resume that the replicas must acknowledge. If too few do, the hold stays this session's:
// giving it back would end the owner's hold. The outcome is then unknown, and sending it again waits for the replicas
// again.
func (r *Remote) resumeReplicated(ctx context.Context, args []string, deadline time.Time) (answer, error) {
	return r.replicated(ctx, &r.Conn.Deployment.scripts.Resume, r.Keys.WithNote(r.Conn.Deployment.Prefix), args, deadline, func(_ rueidis.DedicatedClient, few error) error {
		return backend.WithOutcomeUnknown(few)
	})
}

// replicatedShare is exec for a share that the replicas must acknowledge. If too few do, the session keeps the units
// and does not use them: the outcome is unknown, and sending it again waits for the replicas again.
func (r *Remote) replicatedShare(deadline time.Time) func(context.Context, *wire.Script, []string, []string) ([]rueidis.RedisMessage, clock.Sample, error) {
	return func(ctx context.Context, s *wire.Script, keys, args []string) (list []rueidis.RedisMessage, at clock.Sample, err error) {
		client, release, err := push.Dedicate(ctx, r.Conn.Deployment.Client)
		if err != nil {
			return nil, at, fmt.Errorf("redisbackend: not sent: %w", err)
		}
		defer func() { push.GiveBack(client, release, err) }()
		list, at, err = r.read(ctx, func() rueidis.RedisResult { return evalOn(ctx, client, s, keys, args) })
		if err != nil {
			return nil, at, err
		}
		want := r.Conn.Deployment.Replicas.Count
		got, err := r.acknowledged(ctx, client, deadline)
		if err == nil && got < want {
			err = backend.WithOutcomeUnknown(fmt.Errorf("redisbackend: %d of %d replicas have it: %w", got, want, backend.ErrNotReplicated))
		}
		return list, at, err
	}
}

// replicated runs a script that the replicas must acknowledge if its code is 1, the lock is the attempt's. tooFew returns
// the error if they do not. WAIT counts what its own connection has written, so both go over a connection that no other
// verb uses.
func (r *Remote) replicated(ctx context.Context, s *wire.Script, keys, args []string, deadline time.Time,
	tooFew func(rueidis.DedicatedClient, error) error) (a answer, err error) {
	client, release, err := push.Dedicate(ctx, r.Conn.Deployment.Client)
	if err != nil {
		return answer{}, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	defer func() { push.GiveBack(client, release, err) }()
	list, at, err := r.read(ctx, func() rueidis.RedisResult { return evalOn(ctx, client, s, keys, args) })
	if err == nil {
		a, err = r.decode(list, at, 3)
	}
	if err != nil || a.Code != acquireGranted { // which is resumeResumed
		return a, err
	}
	want := r.Conn.Deployment.Replicas.Count
	got, err := r.acknowledged(ctx, client, deadline)
	if err == nil && got < want {
		err = tooFew(client, fmt.Errorf("redisbackend: %d of %d replicas have it: %w", got, want, backend.ErrNotReplicated))
	}
	return a, err
}

// evalOn runs a script over one connection.
func evalOn(ctx context.Context, c rueidis.DedicatedClient, s *wire.Script, keys, args []string) rueidis.RedisResult {
	n := int64(len(keys))
	result := c.Do(ctx, c.B().Evalsha().Sha1(s.SHA).Numkeys(n).Key(keys...).Arg(args...).Build())
	if wire.ErrorCode(result.Error()) == "NOSCRIPT" {
		result = c.Do(ctx, c.B().Eval().Script(s.Text).Numkeys(n).Key(keys...).Arg(args...).Build())
	}
	return result
}

// acknowledged waits for the replicas, and returns how many have what the connection has written.
func (r *Remote) acknowledged(ctx context.Context, client rueidis.DedicatedClient, deadline time.Time) (int, error) {
	want := r.Conn.Deployment.Replicas
	limit := max(min(want.Timeout, time.Until(deadline)), time.Millisecond)
	got, err := client.Do(ctx, client.B().Wait().Numreplicas(int64(want.Count)).Timeout(limit.Milliseconds()).Build()).ToInt64()
	if err != nil {
		if wire.ErrorCode(err) == "" {
			r.Clock.Forget() // as in read
		}
		return 0, backend.WithOutcomeUnknown(wire.Fail(ctx, fmt.Errorf("wait for the replicas: %w", err))) // the lock may be taken
	}
	return int(got), nil
}

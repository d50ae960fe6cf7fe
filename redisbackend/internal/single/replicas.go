package single

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// Replicas says how many replicas must acknowledge what a session gets before the session has it, and how long a verb waits
// for the acknowledgements.
type Replicas struct {
	Count   int
	Timeout time.Duration
}

// awaitsReplicas reports whether replicas must acknowledge what a session gets of the name. They need not acknowledge the
// lock for the conditions of a read-write lock: a writer has it for the time of one verb, and notices if it is forgotten.
func (r *Remote) awaitsReplicas() bool {
	return r.Conn.Deployment.Replicas.Count > 0 && !strings.HasPrefix(r.Name(), backend.ConditionsPrefix)
}

// acquireReplicated sends acquire.lua, and waits until the replicas have acknowledged the lock. If too few do, it gives the
// lock back.
func (r *Remote) acquireReplicated(ctx context.Context, args []string, deadline time.Time) (answer, error) {
	c := replicated[answer]{deadline: deadline, got: got, decode: r.decodeAcquire}
	c.tooFew = func(client rueidis.DedicatedClient, few error) error {
		release := []string{r.Conn.Session, args[1], "0", "0", r.Conn.Deployment.Channels, "0", "0"}
		err := evalOn(ctx, client, &r.Conn.Deployment.scripts.Release, r.Keys[:], release).Error()
		if err != nil {
			err = wire.Fail(ctx, fmt.Errorf("give it back: %w", err))
		}
		return errors.Join(backend.WithRefused(few), err)
	}
	return c.run(ctx, r, &r.Conn.Deployment.scripts.Acquire, r.Keys[:], args)
}

// resumeReplicated sends resume.lua, and waits until the replicas have acknowledged the move. If too few do, the hold stays
// this session's: to give it back would end the owner's hold. Then the error says that the outcome is unknown; another
// Resume waits for the replicas again.
func (r *Remote) resumeReplicated(ctx context.Context, args []string, deadline time.Time) (answer, error) {
	c := replicated[answer]{deadline: deadline, got: got, decode: r.decodeThree}
	c.tooFew = func(_ rueidis.DedicatedClient, few error) error { return backend.WithOutcomeUnknown(few) }
	return c.run(ctx, r, &r.Conn.Deployment.scripts.Resume, r.Keys.WithNote(r.Conn.Deployment.Prefix), args)
}

// shareReplicated sends share.lua, and if the session has got units, waits until the replicas have acknowledged them. If too
// few do, it returns a refusal, and the session has units at the master that it does not use: its next request gives them
// back, or asks for them anew. What the session keeps needs no second acknowledgement.
func (r *Remote) shareReplicated(ctx context.Context, args []string, req *backend.ShareRequest) (shareAnswer, error) {
	c := replicated[shareAnswer]{deadline: req.NotAfter, decode: r.decodeShare}
	c.got = func(a shareAnswer) bool { return a.code == shareShared && a.units > int64(req.Keep) }
	c.tooFew = func(_ rueidis.DedicatedClient, few error) error {
		return backend.WithRefused(backend.WithOutcomeUnknown(few))
	}
	return c.run(ctx, r, &r.Conn.Deployment.scripts.Share, r.shareKeys(req), args)
}

// got reports whether the lock is the attempt's.
func got(a answer) bool { return a.Code == acquireGranted } // resumeResumed is the same number

// decodeThree reads the reply of resume.lua.
func (r *Remote) decodeThree(list []rueidis.RedisMessage, at clock.Sample) (answer, error) {
	return r.decode(list, at, 3)
}

// A replicated command is a script. If the session got something by the script, the reply counts only when enough replicas
// have acknowledged that.
type replicated[A any] struct {
	deadline time.Time
	decode   func([]rueidis.RedisMessage, clock.Sample) (A, error)
	got      func(A) bool
	tooFew   func(rueidis.DedicatedClient, error) error // returns the error if too few replicas have acknowledged
}

// run sends the script, and then WAIT. WAIT waits for what its own connection has written, so both commands go over one
// connection that no other verb uses.
func (rep *replicated[A]) run(ctx context.Context, r *Remote, s *wire.Script, keys, args []string) (a A, err error) {
	client, release, err := push.Dedicate(ctx, r.Conn.Deployment.Client)
	if err != nil {
		return a, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	defer func() { push.GiveBack(client, release, err) }()
	list, at, err := r.execOn(ctx, client, s, keys, args)
	if err == nil {
		a, err = rep.decode(list, at)
	}
	if err != nil || !rep.got(a) {
		return a, err
	}
	want := r.Conn.Deployment.Replicas.Count
	have, err := r.acknowledged(ctx, client, rep.deadline)
	if err == nil && have < want {
		err = rep.tooFew(client, fmt.Errorf("redisbackend: %d of %d replicas have it: %w", have, want, backend.ErrNotReplicated))
	}
	return a, err
}

// execOn does what exec does, over the connection client.
func (r *Remote) execOn(ctx context.Context, client rueidis.DedicatedClient, s *wire.Script, keys, args []string) ([]rueidis.RedisMessage, clock.Sample, error) {
	sent := time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		return nil, clock.Sample{}, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	result := evalOn(ctx, client, s, keys, args)
	return r.listOf(ctx, result, clock.SampleSince(sent))
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
			r.Clock.Forget() // as in failed
		}
		return 0, backend.WithOutcomeUnknown(wire.Fail(ctx, fmt.Errorf("wait for the replicas: %w", err))) // the lock may be taken
	}
	return int(got), nil
}

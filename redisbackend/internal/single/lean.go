package single

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// pass makes a lean attempt, if the session remembers enough for one. It returns false if the full script is needed,
// which Acquire then sends.
func (r *Remote) pass(ctx context.Context, req *backend.AcquireRequest, notAfter int64) (backend.AcquireReply, bool, error) {
	d := r.Conn.Deployment
	call, ok := wire.NewLeanAcquire(r.Conn.Session, req, notAfter)
	if !ok || !d.lean {
		return backend.AcquireReply{}, false, nil
	}
	script, keys, args := &d.scripts.Pass, r.Keys[:2], call.Texts[:call.N]
	switch {
	case call.Take:
		script, keys = &d.scripts.Take, r.Keys[:3]
	case call.Yield != nil && d.cluster: // messages are sent in another way there
		return backend.AcquireReply{}, false, nil
	case call.Yield != nil:
		script, keys, args = &d.scripts.Yield, r.Keys[:], slices.Concat(args, call.Yield, []string{d.Channels})
	}
	n, sent, err := r.runLean(ctx, script, keys, args)
	if err != nil || n == 0 {
		return backend.AcquireReply{}, false, err
	}
	if n < 0 {
		r.waits(req)
		return backend.AcquireReply{Status: backend.Waiting, TTL: time.Duration(-n) * time.Millisecond}, true, nil
	}
	p := call.Prior
	if n > 1 { // Redis's clock: a lease began
		at := clock.SampleSince(sent)
		at.Stamp = n
		r.Clock.Saw(at)
		p.Token = max(p.Token, backend.Token(n))
	}
	return backend.AcquireReply{Status: backend.Granted, First: p.Token, Last: p.Token, Prior: p}, true, nil
}

// fullReleases is how many releases skip free after one that had to leave the lock to the full script: the next waiter is often
// of the same kind, and a free that fails delays its turn by a round trip.
const fullReleases = 7

// What free returns.
const freeReleased, freeGiven = 1, 2

// free makes a lean release, if the session remembers enough for one. It returns 0 if the full script is needed, which
// Release then sends.
func (r *Remote) free(ctx context.Context, req *backend.ReleaseRequest) (backend.ReleaseResult, error) {
	channels := r.Conn.Deployment.Channels
	if r.Conn.Deployment.cluster { // messages take another way there
		channels = ""
	}
	if keep := r.keep.Load(); req.Prior.Pushed && keep > 0 {
		req.Prior.Note = strconv.FormatUint(keep, 10) // if no session keeps it for longer
	}
	args, ok := wire.LeanReleaseArgs(r.Conn.Session, req, channels)
	if !ok || !r.Conn.Deployment.lean {
		return 0, nil
	}
	if r.full.Load() > 0 {
		r.full.Add(-1)
		return 0, nil
	}
	n, _, err := r.runLean(ctx, &r.Conn.Deployment.scripts.Free, r.Keys[:], args[:])
	switch {
	case err != nil:
		return 0, err
	case n == freeReleased && !req.Prior.Pushed: // after a wait, the next to take the lock is likely to be another session
		return backend.Freed, nil
	case n == freeReleased, n == freeGiven:
		return backend.Released, nil
	}
	r.full.Store(fullReleases)
	return 0, nil
}

// runLean sends a script that returns one number.
func (r *Remote) runLean(ctx context.Context, s *wire.Script, keys, args []string) (n int64, sent time.Time, err error) {
	result, sent, err := r.send(ctx, s, keys, args)
	if err != nil {
		return 0, sent, err
	}
	if n, err = result.ToInt64(); err != nil {
		return 0, sent, r.failed(ctx, result, err)
	}
	return n, sent, nil
}

// send sends a script, and returns when that was.
func (r *Remote) send(ctx context.Context, s *wire.Script, keys, args []string) (result rueidis.RedisResult, sent time.Time, err error) {
	d := r.Conn.Deployment
	sent = time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		return result, sent, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	silent := d.silent.Load()
	if !silent {
		result = s.Exec(ctx, d.Client, keys, args)
	}
	failed := result.NonRedisError() != nil
	if silent || failed && wire.EndedByAnother(ctx, result.NonRedisError()) {
		result = sendApart(ctx, d.Client, s, slices.Clone(keys), slices.Clone(args)) // copies: the caller's do not leave its stack
		failed = result.NonRedisError() != nil
	}
	if failed != silent {
		d.silent.Store(failed)
	}
	return result, sent, nil
}

// failed returns the error of a command without a reply, or with an error as its reply.
func (r *Remote) failed(ctx context.Context, result rueidis.RedisResult, err error) error {
	if result.NonRedisError() != nil {
		r.Clock.Forget() // the connection may have gone with it, and the next one lead elsewhere
	}
	return wire.Fail(ctx, err)
}

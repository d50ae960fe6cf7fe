package reentrant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/relock-go/relock/backend"
)

// releaseTries bounds how often the answer of an unimportant command is waited for.
const releaseTries = 3

// releaseTime is how long a caller waits for Redis to confirm that something is given up: a failover or a moving slot is
// often over by then. It is no more than a lease.
func (c config) releaseTime() time.Duration { return releaseTries * c.commandTimeout() }

// release tells Redis that this session gives up everything it has on the lock. It outlives ctx. It is sent again for
// releaseTime, and after that in the background. ErrLost means that the hold was gone before it was asked for. Baton.
func (e *lockState) release(ctx context.Context) error {
	e.mu.Lock()
	req := backend.ReleaseRequest{Epoch: e.sentEpoch, Used: e.lastUsed}
	e.mu.Unlock()
	if e.unknownUntil.After(time.Now()) {
		req.Until = e.unknownUntil
	}
	ctx = context.WithoutCancel(ctx)
	begun := time.Now()
	r := release{s: e.s, remote: e.remote, req: req}
	err := r.repeat(ctx, begun.Add(e.s.config.releaseTime()))
	switch {
	case err == nil || errors.Is(err, ErrLost):
		e.mayOwe = false
		return err
	case Refused(err):
		return err
	}
	r.finishLater(time.Now().Add(finishTime))
	return fmt.Errorf("not confirmed within %v, and sent again in the background: %w", time.Since(begun).Round(time.Millisecond), err)
}

// A release is what a session gives up on a lock. It touches nothing that was got with a later epoch, so it can be sent
// without the baton.
type release struct {
	s      *session
	remote backend.Remote
	req    backend.ReleaseRequest
	tries  int
	last   error // of the latest try; it says whether an earlier one may have been carried out
}

// repeat sends the release until Redis confirms or refuses it. It returns before until. Each try has its full time, so that
// its error says what was wrong, and not that there was too little.
func (r *release) repeat(ctx context.Context, until time.Time) error {
	for {
		now := time.Now()
		if done, err := r.send(ctx, now.Add(r.s.config.commandTimeout())); done {
			return err
		}
		wait := retryPause(r.tries, r.s.config.heartbeat)
		if time.Now().Add(wait + r.s.config.commandTimeout()).After(until) {
			return r.last
		}
		pause(ctx, wait, nil)
	}
}

// send sends the release once, and reports whether that was the last time. ErrLost means that Redis had nothing before
// any copy can have been carried out.
func (r *release) send(ctx context.Context, limit time.Time) (done bool, err error) {
	r.tries++
	r.s.stats.commands.Add(1)
	result, err := r.remote.Release(r.s.commandContext(ctx, time.Now(), limit), r.req)
	err = wrapUnavailable(ctx, err)
	if err == nil {
		err = checkRelease(result)
	}
	switch {
	case err == nil && result != backend.Released && r.last == nil:
		return true, ErrLost
	case err == nil:
		return true, nil
	}
	r.last = mergeOutcome(r.last, err)
	return Refused(err), r.last
}

// finishTime bounds how long a release is sent in the background. After that the lock is free when its lease is over.
const finishTime = time.Minute

// finishLater has the release sent in the background until Redis answers it or a moment has come, while the session lasts.
func (r release) finishLater(until time.Time) {
	time.AfterFunc(retryPause(r.tries, r.s.config.heartbeat), func() {
		r.s.releases.Do(func() { r.finish(until) })
	})
}

// finish sends the release once more.
func (r release) finish(until time.Time) {
	if r.s.watchdog.stopped() {
		return
	}
	now, lock := time.Now(), slog.String("lock", r.remote.Name())
	done, err := r.send(context.Background(), now.Add(r.s.config.commandTimeout()))
	switch {
	case !done && now.Before(until):
		r.finishLater(until)
	case !done || Refused(err):
		r.s.log(slog.LevelWarn, "could not give back a lock; it expires", lock, slog.Any("error", err))
	default:
		r.s.log(slog.LevelInfo, "a lock was given back late", lock)
	}
}

// releaseOrphan gives back what an epoch has on a lock, without the baton: release(epoch) touches nothing newer. It is a
// courtesy to the others (it would expire), so one try is enough.
func (s *session) releaseOrphan(remote backend.Remote, name string, epoch uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.commandTimeout())
	defer cancel()
	s.stats.commands.Add(1)
	if _, err := remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch}); err != nil {
		s.log(slog.LevelWarn, "could not give back a lock; it expires", slog.String("lock", name), slog.Any("error", err))
	}
}

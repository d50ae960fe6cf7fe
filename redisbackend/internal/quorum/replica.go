package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A replica is one lock at one node, seen by one session. Commands that take a hold there, write its token, count it, put it
// back or give it up are sent one after the other, each under the replica's semaphore: so a node that hangs has one of these
// waiting and not many. Their order is random, but no copy of an attempt is sent after the command that gives the attempt up:
// what the copy got would stay at the node. Sent without the semaphore are the commands to inspect, to watch a hold, to read
// which session waits, to tell that session that the lock is free (call), to renew, which grants nothing, and to force, which
// affects any holder.
type replica struct {
	remote *single.Remote
	limit  time.Duration // for one command
	wanted string        // the key that has the session that waits, see quorum_want.lua
	sem    chan struct{} // 1-buffered

	// Guarded by sem.
	releasedHere uint64    // attempts up to this epoch have been given back here
	refuseBefore fence     // copies from calls before this fence are no longer sent
	unknownUntil time.Time // until this time a copy without a reply may be under way
}

// A fence is the position, in the order of a remote's calls, at which attempts up to an epoch were given up.
type fence struct{ order, epoch uint64 }

func (f fence) before(order, epoch uint64) bool { return order < f.order && epoch <= f.epoch }

// enter takes the semaphore. If earlier commands have it until ctx ends, enter returns an error, and the command is not sent.
func (rep *replica) enter(ctx context.Context) error {
	select {
	case rep.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errors.New("not sent: an earlier command to the node has no reply yet")
	}
}

func (rep *replica) leave() { <-rep.sem }

// acquire sends a copy of an attempt, unless a command that gives the attempt up has overtaken the copy. An attempt that has
// been given back here is not sent again: the command that gave it back may still be under way, and would take away what
// this copy got.
func (rep *replica) acquire(ctx context.Context, req backend.AcquireRequest, order uint64) (backend.AcquireReply, error) {
	if rep.refuseBefore.before(order, req.Epoch) || req.Epoch <= rep.releasedHere {
		return backend.AcquireReply{Status: backend.Stale}, nil
	}
	answer, err := rep.remote.Acquire(ctx, req)
	rep.recordUnknown(err, req.NotAfter)
	return answer, err
}

// restore puts a hold back, unless the attempt has been given back here. The caller checks under the semaphore that the hold
// still exists: so nothing is sent after the hold's release, which leaves a tombstone if a copy may still be under way.
// restore reports whether another session has the lock here. Whether the hold is back, the next renewal shows.
func (rep *replica) restore(ctx context.Context, h hold, lease time.Duration, until time.Time) (taken bool, err error) {
	if h.epoch <= rep.releasedHere {
		return false, nil
	}
	var d wire.ArgWriter
	d.Add(h.epoch)
	d.Add(uint64(h.holds))
	d.Add(wire.Millis(lease))
	d.Add(uint64(rep.remote.Clock.NotAfter(clock.InstantOf(until))))
	d.Add(uint64(h.last) - uint64(h.tokens) + 1)
	d.Add(uint64(h.last))
	d.Add(wire.KeepFor(lease))
	n := d.Strings()
	a, err := rep.remote.Run(ctx, &wire.LoadQuorumScripts().Restore, rep.remote.Keys[:2],
		[]string{rep.remote.Conn.Session, n[0], h.owner, n[1], n[2], n[3], n[4], n[5], n[6]}, 0)
	rep.recordUnknown(err, until)
	return a.Code == restoreHeld, err
}

// restoreHeld is the code that quorum_restore.lua returns if another session has the lock.
const restoreHeld = 2

// recordUnknown records that a copy of a command may be under way until a time, if err leaves the outcome unknown.
func (rep *replica) recordUnknown(err error, until time.Time) {
	if backend.OutcomeUnknown(err) && until.After(rep.unknownUntil) {
		rep.unknownUntil = until
	}
}

// giveBack gives up the hold or place that an attempt may have here.
func (rep *replica) giveBack(epoch uint64) {
	rep.releasedHere = max(rep.releasedHere, epoch)
	rep.retry(func(ctx context.Context) error {
		_, err := rep.remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch, Until: rep.unknownUntil})
		return err
	})
}

const (
	// quorumTries is how often a release is sent to a node. If all tries fail, the hold ends with its lease.
	quorumTries = 3
	quorumPause = 50 * time.Millisecond
)

// retry calls do until it returns no error or a refusal, quorumTries times at most.
func (rep *replica) retry(do func(context.Context) error) {
	for try := range quorumTries {
		if try > 0 {
			time.Sleep(quorumPause << try)
		}
		ctx, cancel := context.WithTimeout(context.Background(), rep.limit)
		err := do(ctx)
		cancel()
		if err == nil || backend.Refused(err) {
			return
		}
	}
}

// write writes a token back to the node.
func (rep *replica) write(ctx context.Context, epoch uint64, first, last backend.Token) error {
	var d wire.ArgWriter
	d.Add(epoch)
	d.Add(uint64(first))
	d.Add(uint64(last))
	n := d.Strings()
	a, err := rep.remote.Run(ctx, &wire.LoadQuorumScripts().Token, rep.remote.Keys[:2],
		[]string{rep.remote.Conn.Session, n[0], n[1], n[2]}, 0)
	if err == nil && a.Code != 1 {
		err = errors.New("the node has lost the hold")
	}
	return err
}

// Want records at the node that the session waits. It is a hint, and its result is ignored.
func (rep *replica) Want(patience time.Duration) {
	var d wire.ArgWriter
	d.Add(wire.Millis(patience))
	rep.hint(&wire.LoadQuorumScripts().Want, d.Strings()[0], rep.remote.Conn.Deployment.Channels)
}

// call notifies a waiting session that the lock is free.
func (rep *replica) call() {
	rep.hint(&wire.LoadQuorumScripts().Call, rep.remote.Conn.Deployment.Channels)
}

func (rep *replica) hint(s *wire.Script, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), rep.limit)
	defer cancel()
	keys := []string{rep.wanted, rep.remote.Keys.Hold(), rep.remote.Keys[1]}
	_, _ = rep.remote.Run(ctx, s, keys, append([]string{rep.remote.Conn.Session}, args...), 0)
}

// force takes the lock from its holder.
func (rep *replica) force(ctx context.Context, notAfter time.Time) (bool, error) {
	var d wire.ArgWriter
	d.Add(wire.RoundUp(crossing*rep.limit, time.Microsecond))
	return rep.remote.Force(ctx, &wire.LoadQuorumScripts().Force, rep.remote.Keys[:2], notAfter, d.Strings()[0])
}

// crossing is for how long, in node limits, a hold is not put back at a node where the lock was forced: one limit until the
// other nodes are forced too, two for a renewal that was under way before and for the command by which that renewal puts
// the hold back, and one more.
const crossing = 4

// readWanted returns the session of which the node knows that it waits; "" if there is none.
func (rep *replica) readWanted(ctx context.Context) (string, error) {
	client := rep.remote.Conn.Deployment.Client
	session, err := client.Do(ctx, client.B().Get().Key(rep.wanted).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return session, err
}

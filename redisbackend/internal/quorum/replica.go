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

// A replica is one lock at one node, seen by one session. What takes a hold there, writes its token, counts it, puts it
// back or gives it up is done one after the other, each with the place's turn: so a node that hangs has one of these waiting
// and not a crowd. Who comes to the place first is a matter of chance; but nothing of an attempt is sent after what gives it
// up, or its copy would stay. No turn is needed to look (Inspect, asked), to call, to renew, which gives nothing to
// anybody, and to force, which is done to whoever has the lock.
type replica struct {
	remote *single.Remote
	limit  time.Duration // for one command
	wanted string        // key of who waits, see quorum_want.lua
	turn   chan struct{} // 1-buffered

	// Of whoever has the turn.
	spent        uint64    // attempts up to this one have been given back here
	closed       fence     // copies from before it are not sent any more
	unknownUntil time.Time // until then a copy may be under way whose answer is not known
}

// A fence is when, in the order of what was asked of a remote, attempts up to an epoch were given up.
type fence struct{ order, epoch uint64 }

func (p fence) before(order, epoch uint64) bool { return order < p.order && epoch <= p.epoch }

// enter takes the turn. What could not be sent because of those before is an error like a connection that fails.
func (p *replica) enter(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errors.New("not sent: the node has not answered what was asked before")
	}
}

func (p *replica) leave() { <-p.turn }

// acquire sends a copy of an attempt, unless it was overtaken by what gives it up. One that has been given back here is
// not asked for again: what gave it back may be under way for longer than we wait, and would take away what this copy got.
func (p *replica) acquire(ctx context.Context, req backend.AcquireRequest, order uint64) (backend.AcquireReply, error) {
	if p.closed.before(order, req.Epoch) || req.Epoch <= p.spent {
		return backend.AcquireReply{Status: backend.Stale}, nil
	}
	answer, err := p.remote.Acquire(ctx, req)
	p.noteUnknown(err, req.NotAfter)
	return answer, err
}

// restore puts a hold back, unless the attempt has been given back here. Whether it is to be held still, the caller looks
// when it has the turn: so it is not sent after the hold's release, and one that may be under way by then is as doubtful as
// any copy. What comes of it the next renewal tells.
func (p *replica) restore(ctx context.Context, h hold, lease time.Duration, until time.Time) error {
	if h.epoch <= p.spent {
		return nil
	}
	var d wire.ArgWriter
	d.Add(h.epoch)
	d.Add(uint64(h.holds))
	d.Add(wire.Millis(lease))
	d.Add(uint64(p.remote.Clock.NotAfter(clock.InstantOf(until))))
	d.Add(uint64(h.last) - uint64(h.tokens) + 1)
	d.Add(uint64(h.last))
	d.Add(wire.KeepFor(lease))
	n := d.Strings()
	_, err := p.remote.Run(ctx, &wire.LoadQuorumScripts().Restore, p.remote.Keys[:2],
		[]string{p.remote.Conn.Session, n[0], h.owner, n[1], n[2], n[3], n[4], n[5], n[6]}, 0)
	p.noteUnknown(err, until)
	return err
}

// noteUnknown takes note of a copy that may be under way.
func (p *replica) noteUnknown(err error, until time.Time) {
	if backend.OutcomeUnknown(err) && until.After(p.unknownUntil) {
		p.unknownUntil = until
	}
}

// giveBack gives up what an attempt may have here.
func (p *replica) giveBack(epoch uint64) {
	p.spent = max(p.spent, epoch)
	p.retry(func(ctx context.Context) error {
		_, err := p.remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch, Until: p.unknownUntil})
		return err
	})
}

const (
	// quorumTries is how often a node is told that something is given back. The lease is the hedge.
	quorumTries = 3
	quorumPause = 50 * time.Millisecond
)

// retry does something until it is answered, a few times.
func (p *replica) retry(do func(context.Context) error) {
	for try := range quorumTries {
		if try > 0 {
			time.Sleep(quorumPause << try)
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.limit)
		err := do(ctx)
		cancel()
		if err == nil || backend.Refused(err) {
			return
		}
	}
}

// write writes a token back.
func (p *replica) write(ctx context.Context, epoch uint64, first, last backend.Token) error {
	var d wire.ArgWriter
	d.Add(epoch)
	d.Add(uint64(first))
	d.Add(uint64(last))
	n := d.Strings()
	a, err := p.remote.Run(ctx, &wire.LoadQuorumScripts().Token, p.remote.Keys[:2],
		[]string{p.remote.Conn.Session, n[0], n[1], n[2]}, 0)
	if err == nil && a.Code != 1 {
		err = errors.New("the node has lost the hold")
	}
	return err
}

// Want notes at the node that the session waits. It is a hint, and so is what became of it.
func (p *replica) Want(patience time.Duration) {
	var d wire.ArgWriter
	d.Add(wire.Millis(patience))
	p.hint(&wire.LoadQuorumScripts().Want, d.Strings()[0], p.remote.Conn.Deployment.Channels)
}

// call tells a waiting session that the lock is free.
func (p *replica) call() {
	p.hint(&wire.LoadQuorumScripts().Call, p.remote.Conn.Deployment.Channels)
}

func (p *replica) hint(s *wire.Script, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	keys := []string{p.wanted, p.remote.Keys.Hold(), p.remote.Keys[1]}
	_, _ = p.remote.Run(ctx, s, keys, append([]string{p.remote.Conn.Session}, args...), 0)
}

// force takes the lock from its holder.
func (p *replica) force(ctx context.Context) (bool, error) {
	var d wire.ArgWriter
	d.Add(wire.RoundUp(crossing*p.limit, time.Microsecond))
	a, err := p.remote.Run(ctx, &wire.LoadQuorumScripts().Force, p.remote.Keys[:2], []string{d.Strings()[0]}, 0)
	return a.Code == single.ForceHeld, err
}

// crossing is for how many limits of a node nothing is put back where a lock was forced: one until the others are forced
// too, two for a renewal that was there before and what it puts back, and one more.
const crossing = 4

// readWanted is the session that is known to wait, "" for none.
func (p *replica) readWanted(ctx context.Context) (string, error) {
	client := p.remote.Conn.Deployment.Client
	session, err := client.Do(ctx, client.B().Get().Key(p.wanted).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return session, err
}

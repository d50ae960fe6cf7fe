package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var _ backend.Sharer = (*remote)(nil)

// keepShared is how long a shared name keeps its kind after its last use.
const keepShared = 10 * time.Second

// sharedLocked returns the server's state of a shared name, or an error if the name is in use as that of a Lock.
func (b *Backend) sharedLocked(name string, now protocol.Instant) (*protocol.Shared, error) {
	if l := b.locks[name]; l != nil && l.InUse(now) {
		return nil, protocol.ErrWrongKind
	}
	s := b.shared[name]
	if s == nil {
		s = &protocol.Shared{Name: name, Keep: keepShared, Publish: b.publishLocked}
		b.shared[name] = s
	}
	return s, nil
}

// claimLocked does the work of sharedLocked for a session that keeps no units. Such a session may take over the name of a Lock
// that is not in use.
func (b *Backend) claimLocked(name string, now protocol.Instant) (*protocol.Shared, error) {
	var after backend.Token
	if l := b.locks[name]; l != nil {
		after = l.Disuse(now)
	}
	s, err := b.sharedLocked(name, now)
	if err == nil && after > 0 {
		s.After = after
	}
	return s, err
}

// exclusiveLocked returns the lock with a name, or an error if the name is in use as a shared one.
func (b *Backend) exclusiveLocked(name string, now protocol.Instant) (*protocol.Lock, error) {
	if s := b.shared[name]; s != nil && s.InUse(now) {
		return nil, protocol.ErrWrongKind
	}
	return b.lockLocked(name), nil
}

// Share sends a copy of a request. If the server refuses the copy as late because the server's clock was stepped, Share sends
// another one, as Acquire does.
func (r *remote) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	op := r.op(Share, req.Epoch)
	if err := protocol.CheckShare(&req); err != nil {
		return backend.ShareReply{}, wrapped(op, err)
	}
	type answer struct {
		reply backend.ShareReply
		err   error
	}
	name := r.c.b.sharedLocked
	if req.Keep == 0 && req.Want > 0 {
		name = r.c.b.claimLocked
	}
	for {
		notAfter, memory := r.c.instant(req.NotAfter), r.c.instant(req.Memory)
		got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
			var a answer
			s, err := name(r.name, now)
			if a.err = err; err == nil {
				a.reply, a.err = s.Share(now, r.c.session, req, notAfter, memory)
			}
			return a, func() string { return fmt.Sprintf("%s %s → %s", op, asked(req), outcome(a.err, shared(a.reply))) }
		})
		if err == nil && errors.Is(got.err, protocol.ErrLate) {
			if time.Now().Before(req.NotAfter) {
				continue
			}
			got.err = fmt.Errorf("%w: %w", backend.ErrUnavailable, got.err)
		}
		return got.reply, wrapped(op, cmp.Or(err, got.err))
	}
}

// InspectShared implements backend.Sharer.
func (r *remote) InspectShared(ctx context.Context) (backend.SharedState, error) {
	op := r.op(Inspect, 0)
	type answer struct {
		state backend.SharedState
		err   error
	}
	got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
		var a answer
		s, err := r.c.b.sharedLocked(r.name, now)
		if a.err = err; err == nil {
			a.state = s.Inspect(now)
		}
		return a, op.String
	})
	return got.state, wrapped(op, cmp.Or(err, got.err))
}

// ForceShared implements backend.Sharer.
func (r *remote) ForceShared(ctx context.Context, kind backend.ShareKind, notAfter time.Time) (bool, error) {
	return r.force(ctx, notAfter, func(now, limit protocol.Instant) (bool, error) {
		s, err := r.c.b.sharedLocked(r.name, now)
		if err != nil {
			return false, err
		}
		return s.Force(now, limit, kind)
	})
}

// asked formats a request for a trace.
func asked(req backend.ShareRequest) string {
	words := []string{"keep=" + units(req.Keep)}
	if req.Want > req.Keep {
		words = append(words, "want="+units(req.Want))
		if req.Least != req.Want {
			words = append(words, "least="+units(req.Least))
		}
	}
	if req.Tail > 0 {
		words = append(words, fmt.Sprintf("tail=%d", req.Tail))
	}
	if req.Try {
		words = append(words, "try")
	}
	if req.Answer > 0 {
		words = append(words, fmt.Sprintf("answer=%d", req.Answer))
	}
	return strings.Join(words, " ")
}

// shared formats a reply for a trace.
func shared(reply backend.ShareReply) string {
	switch reply.Status {
	case backend.StaleShare:
		return fmt.Sprintf("stale e%d", reply.Epoch)
	case backend.ShareLost:
		return "lost"
	}
	return units(reply.Units) + underBlock(reply.Units, reply.First, reply.Last) +
		either(reply.Placed, ", placed", "") + allowed(reply.May) + tried(reply.Try)
}

// underBlock formats the tokens of units, "" with none.
func underBlock(units int, first, last backend.Token) string {
	return either(units > 0, " under "+block(first, last), "")
}

// allowed formats how many units a session may keep, "" if there is no limit.
func allowed(may int) string { return either(may < backend.Unlimited, ", may keep "+units(may), "") }

// tried formats the number of a try, "" for none.
func tried(try uint64) string { return either(try > 0, fmt.Sprintf(", try %d", try), "") }

// units formats a number of units, AllUnits as "all".
func units(n int) string { return either(n == backend.AllUnits, "all", fmt.Sprint(n)) }

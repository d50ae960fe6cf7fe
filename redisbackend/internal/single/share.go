package single

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Sharer = (*Remote)(nil)

// The codes that share.lua returns; its header explains them.
const shareShared, shareStale, shareLost, shareLate = 1, 2, 3, 4

// Share implements backend.Sharer. As Acquire does, it sends a second copy if Redis refuses the first as late although
// req.NotAfter has not come.
func (r *Remote) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	if err := wire.CheckShare(&req); err != nil {
		return backend.ShareReply{}, err
	}
	limit := clock.InstantOf(req.NotAfter)
	a, err := r.share(ctx, &req, r.Clock.NotAfter(limit))
	if err == nil && a.code == shareLate && a.sample.Received < limit {
		a, err = r.share(ctx, &req, clock.Mapping{}.With(a.sample).NotAfter(limit))
	}
	if err != nil {
		return backend.ShareReply{}, err
	}
	reply := backend.ShareReply{
		Epoch: uint64(a.epoch), Units: int(a.units), Placed: a.placed == 1,
		First: backend.Token(a.first), Last: backend.Token(a.last), May: int(a.may), Share: int(a.part),
		Try: uint64(a.try),
	}
	switch a.code {
	case shareShared:
		reply.Status = backend.Shared
	case shareStale:
		reply.Status = backend.StaleShare
	case shareLost:
		reply.Status = backend.ShareLost
	case shareLate:
		return backend.ShareReply{}, wire.Unavailable(errors.New("it reached Redis too late and was not carried out"))
	default:
		return backend.ShareReply{}, wire.Unexpected(fmt.Errorf("code %d", a.code))
	}
	if err := a.check(); err != nil {
		return backend.ShareReply{}, wire.Unexpected(err)
	}
	if reply.Placed {
		r.Conn.Listen(r)
	}
	return reply, nil
}

// A shareAnswer is the reply of share.lua.
type shareAnswer struct {
	code, units, placed, first, last, may, part, epoch, try int64
	sample                                                  clock.Sample
}

// check returns an error for a reply that the script does not give.
func (a *shareAnswer) check() error {
	if a.units < 0 || a.units > backend.AllUnits || a.may < 0 || a.may > backend.Unlimited || a.epoch < 0 || a.try < 0 {
		return fmt.Errorf("%d units, may keep %d, epoch %d, try %d", a.units, a.may, a.epoch, a.try)
	}
	if a.units == 0 {
		return nil
	}
	return (&answer{sample: a.sample}).checkTokens(a.first, a.last)
}

// share sends one copy.
func (r *Remote) share(ctx context.Context, req *backend.ShareRequest, notAfter int64) (a shareAnswer, err error) {
	memory := max(notAfter, r.Clock.Latest(clock.InstantOf(req.Memory)))
	args := []string{r.Conn.Session, strconv.FormatUint(req.Epoch, 10), wire.KindLetter(req.Kind)}
	for _, n := range []uint64{
		uint64(req.Keep), uint64(req.Want), uint64(req.Least), uint64(req.Limit), uint64(req.Under), uint64(req.Tail),
		uint64(max(req.Tokens, 1)), uint64(req.Seen), wire.Millis(req.Lease), wire.Millis(req.GrantTTL),
		wire.RoundUp(req.Patience, time.Millisecond), uint64(notAfter), uint64(memory),
	} {
		args = append(args, strconv.FormatUint(n, 10))
	}
	args = append(args, r.Conn.Deployment.Channels, strconv.FormatUint(wire.SharedKeepFor(0), 10), r.Keys.Hold(),
		flag(req.Try), strconv.FormatUint(req.Answer, 10))
	if req.Want > req.Keep && r.awaitsReplicas() {
		return r.shareReplicated(ctx, args, req)
	}
	list, at, err := r.exec(ctx, &r.Conn.Deployment.scripts.Share, r.shareKeys(req), args)
	if err != nil {
		return a, err
	}
	return r.decodeShare(list, at)
}

// decodeShare reads the reply of share.
func (r *Remote) decodeShare(list []rueidis.RedisMessage, at clock.Sample) (a shareAnswer, err error) {
	l := reader{list: list}
	a.code, at.Stamp = l.number(), l.number()
	for _, n := range []*int64{&a.units, &a.placed, &a.first, &a.last, &a.may, &a.part, &a.epoch, &a.try} {
		*n = l.number()
	}
	if l.err != nil {
		return a, wire.Unexpected(l.err)
	}
	r.Clock.Saw(at)
	a.sample = at
	return a, nil
}

// shareKeys returns the keys of a request: the record and, if the session keeps nothing and wants units, a Lock's hold and
// queue, which must not exist. Other requests leave these two out: in a slot that moves, a Cluster refuses a script that
// names a missing key together with one that exists.
func (r *Remote) shareKeys(req *backend.ShareRequest) []string {
	if req.Keep == 0 && req.Want > 0 {
		return []string{r.Keys[1], r.Keys[0], r.Keys[2]}
	}
	return r.Keys[1:2]
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// InspectShared implements backend.Sharer.
func (r *Remote) InspectShared(ctx context.Context) (st backend.SharedState, err error) {
	list, at, err := r.exec(ctx, &r.Conn.Deployment.scripts.ShareInspect, r.Keys[:2], nil)
	if err != nil {
		return st, err
	}
	l, fields := reader{list: list}, map[string]string{}
	for at.Stamp = l.number(); l.err == nil && len(l.list) > 0; {
		field := l.word()
		fields[field] = l.word()
	}
	if l.err != nil {
		return st, wire.Unexpected(l.err)
	}
	r.Clock.Saw(at)
	if len(fields) == 0 {
		return st, nil
	}
	now := protocol.Instant(at.Stamp) * time.Microsecond
	name := protocol.Shared{Expires: now}
	if !wire.ReadShared(&name, fields) {
		return st, wire.Judged(errForeign, errForeign.Error())
	}
	return name.Inspect(now), nil
}

// errForeign is the error that the scripts return for a key that has something else than a shared name's record.
var errForeign = errors.New("WRONGTYPE the name is that of another kind of lock")

// ForceShared implements backend.Sharer.
func (r *Remote) ForceShared(ctx context.Context, kind backend.ShareKind, notAfter time.Time) (bool, error) {
	return r.Force(ctx, &r.Conn.Deployment.scripts.ShareForce, r.Keys[:2], notAfter,
		wire.KindLetter(kind), r.Conn.Deployment.Channels, strconv.FormatUint(wire.SharedKeepFor(0), 10))
}

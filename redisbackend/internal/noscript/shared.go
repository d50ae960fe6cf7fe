package noscript

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Sharer = noscript{}

// A sharedSnapshot is a snapshot of a shared name: its hash, in the format of shared.lua.
type sharedSnapshot struct {
	keys     wire.Keys
	channels string

	now    protocol.Instant
	was    map[string]string
	ttl    time.Duration // of the key; not positive if there is none
	shared protocol.Shared
	told   []message
}

// notThere is PTTL's reply for a missing key.
const notThere = -2

// noName is the field that belongs to no session.
const noName = "="

// Share implements backend.Sharer. As in Acquire, a copy whose time is over is not sent.
func (r noscript) Share(ctx context.Context, req backend.ShareRequest) (reply backend.ShareReply, err error) {
	if err := wire.CheckShare(&req); err != nil {
		return reply, err
	}
	var refused error
	err = r.transactShared(ctx, func(i *sharedSnapshot) {
		if refused = tooLate(req.NotAfter); refused == nil {
			memory := protocol.Instant(r.Clock.Latest(clock.InstantOf(req.Memory))) * time.Microsecond
			reply, refused = i.shared.Share(i.now, r.Conn.Session, req, i.now, memory)
		}
	})
	switch {
	case err != nil:
		return backend.ShareReply{}, err
	case refused != nil:
		return backend.ShareReply{}, fmt.Errorf("redisbackend: %w", refused)
	case reply.Placed:
		r.Conn.Listen(r.Remote)
	}
	return reply, nil
}

// InspectShared implements backend.Sharer.
func (r noscript) InspectShared(ctx context.Context) (st backend.SharedState, err error) {
	err = r.transactShared(ctx, func(i *sharedSnapshot) { st = i.shared.Inspect(i.now) })
	return st, err
}

// ForceShared implements backend.Sharer.
func (r noscript) ForceShared(ctx context.Context, kind backend.ShareKind) (had bool, err error) {
	var refused error
	err = r.transactShared(ctx, func(i *sharedSnapshot) { had, refused = i.shared.Force(i.now, kind) })
	if err == nil && refused != nil {
		err = fmt.Errorf("redisbackend: %w", refused)
	}
	return had, err
}

// renewShared renews units of a shared name. A server without free memory refuses this, since it writes the hash.
func (r noscript) renewShared(ctx context.Context, w *backend.Renewal) error {
	err := r.transactShared(ctx, func(i *sharedSnapshot) {
		w.Units = i.shared.Renew(i.now, r.Conn.Session, w.Epoch, w.Under, min(w.Lease, wire.MaxTTL))
	})
	w.Gone = err == nil && w.Units == 0
	return err
}

// transactShared is transact for a shared name.
func (r noscript) transactShared(ctx context.Context, run func(*sharedSnapshot)) error {
	return r.rounds(ctx, func(client rueidis.DedicatedClient) (bool, error) {
		i, err := r.lookShared(ctx, client)
		if err != nil {
			return false, err
		}
		run(i)
		return r.commit(ctx, client, i.changes(client))
	})
}

// lookShared is look for a shared name.
func (r noscript) lookShared(ctx context.Context, client rueidis.DedicatedClient) (*sharedSnapshot, error) {
	sent := time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		return nil, fmt.Errorf("redisbackend: not done: %w", err)
	}
	i := &sharedSnapshot{keys: r.Keys, channels: r.Conn.Deployment.Channels}
	answers := client.DoMulti(ctx,
		client.B().Watch().Key(r.Keys[:2]...).Build(),
		client.B().Time().Build(),
		client.B().Hgetall().Key(r.Keys[1]).Build(),
		client.B().Pttl().Key(r.Keys[1]).Build(),
		client.B().Pttl().Key(r.Keys[0]).Build())
	at := clock.Sample{Sent: clock.InstantOf(sent), Received: clock.InstantOf(time.Now())}
	err := i.parse(answers)
	if err == nil {
		at.Stamp = i.now.Microseconds()
		r.Clock.Saw(at)
		return i, nil
	}
	return nil, r.notRead(ctx, err)
}

// parse reads the replies.
func (i *sharedSnapshot) parse(answers []rueidis.RedisResult) error {
	for _, a := range answers {
		if err := a.Error(); err != nil {
			return err
		}
	}
	now, err := parseTime(answers[1])
	if err != nil {
		return err
	}
	i.now = now
	i.shared = protocol.Shared{Name: i.keys.Hold(), Keep: wire.MinKeep, Publish: i.publish}
	i.was, _ = answers[2].AsStrMap()
	ttl, _ := answers[3].AsInt64()
	hold, _ := answers[4].AsInt64()
	i.ttl = time.Duration(ttl) * time.Millisecond
	if len(i.was) == 0 || i.ttl <= 0 {
		i.was, i.ttl = nil, 0
		if hold != notThere {
			return errForeign
		}
		return nil
	}
	kind, token, _ := strings.Cut(i.was[noName], " ")
	last, _ := strconv.ParseUint(token, 10, 64)
	i.shared.Kind, i.shared.Token, i.shared.Expires = wire.KindOf(kind), backend.Token(last), i.now+i.ttl
	for session, raw := range i.was {
		if session != noName {
			i.shared.Entries = append(i.shared.Entries, parseEntry(session, raw))
		}
	}
	slices.SortFunc(i.shared.Entries, func(a, b protocol.Entry) int { return cmp.Compare(a.Session, b.Session) })
	return nil
}

// parseEntry reads "epoch units until memory first under limit order want least deadline grant tokens seen".
func parseEntry(session, raw string) protocol.Entry {
	var n [14]int64
	for i, word := range strings.Fields(raw) {
		if i < len(n) {
			n[i], _ = strconv.ParseInt(word, 10, 64)
		}
	}
	return protocol.Entry{
		Session: session, Epoch: uint64(n[0]), Units: int(n[1]), Until: micros(n[2]), Memory: micros(n[3]),
		First: backend.Token(n[4]), Under: backend.Token(n[5]), Limit: int(n[6]),
		Place: protocol.Place{
			Order: uint64(n[7]), Want: int(n[8]), Least: int(n[9]), Deadline: micros(n[10]),
			TTL: time.Duration(n[11]) * time.Millisecond, Tokens: int(n[12]), Seen: backend.Token(n[13]),
		},
	}
}

func writeEntry(e protocol.Entry) string {
	p := e.Place
	return fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d", e.Epoch, e.Units, e.Until.Microseconds(), e.Memory.Microseconds(),
		e.First, e.Under, e.Limit, p.Order, p.Want, p.Least, p.Deadline.Microseconds(), wire.Millis(p.TTL), p.Tokens, p.Seen)
}

// publish sends a session a message of the protocol, in the format of share.lua.
func (i *sharedSnapshot) publish(session string, m protocol.Message) {
	text := wire.Message{Kind: wire.ShareWanted, Hold: i.keys.Hold(), Epoch: m.Epoch, Units: m.Units, May: m.May,
		First: uint64(m.First), Last: uint64(m.Last), TTL: m.TTL, Stamp: m.At.Microseconds()}
	if m.Kind == protocol.SharedGrant {
		text.Kind = wire.ShareGranted
	}
	i.told = append(i.told, message{i.channels + session, text.String()})
}

// changes returns the commands that make Redis's hash equal to the snapshot, none if it is.
func (i *sharedSnapshot) changes(c rueidis.DedicatedClient) (commands rueidis.Commands) {
	if i.shared.Kind == 0 {
		return nil
	}
	key, is := i.keys[1], map[string]string{noName: fmt.Sprintf("%s %d", wire.KindLetter(i.shared.Kind), i.shared.Token)}
	for _, e := range i.shared.Entries {
		is[e.Session] = writeEntry(e)
	}
	set, changed := c.B().Hset().Key(key).FieldValue(), false
	for field, text := range is {
		if i.was[field] != text {
			set, changed = set.FieldValue(field, text), true
		}
	}
	if changed {
		commands = append(commands, set.Build())
	}
	for field := range i.was {
		if _, ok := is[field]; !ok {
			commands = append(commands, c.B().Hdel().Key(key).Field(field).Build())
		}
	}
	if ttl := i.shared.Expires - i.now; ttl > i.ttl {
		commands = append(commands, c.B().Pexpire().Key(key).Milliseconds(int64(wire.Millis(ttl))).Build())
	}
	for _, m := range i.told {
		commands = append(commands, c.B().Publish().Channel(m.channel).Message(m.text).Build())
	}
	return commands
}

// parseTime reads the reply to TIME.
func parseTime(answer rueidis.RedisResult) (protocol.Instant, error) {
	clock, err := answer.AsIntSlice()
	if err != nil || len(clock) != 2 {
		return 0, errors.New("no time")
	}
	return protocol.Instant(clock[0])*time.Second + protocol.Instant(clock[1])*time.Microsecond, nil
}

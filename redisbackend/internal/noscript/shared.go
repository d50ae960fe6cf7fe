package noscript

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var (
	_ backend.Sharer     = noscript{}
	_ backend.ShareNoter = noscript{}
)

// A sharedSnapshot is a snapshot of a shared name: its hash, in the format of shared.lua.
type sharedSnapshot struct {
	keys     wire.Keys
	channels string

	now    protocol.Instant
	was    map[string]string // the hash as it was read
	before map[string]string // the hash as this package would write it: its summary may be more exact than the one in was
	ttl    time.Duration     // of the key; not positive if there is none
	shared protocol.Shared
	told   []message
}

// What PTTL replies for a missing key, and for one that does not expire.
const notThere, noExpiry = -2, -1

// keepShared is how long a shared name keeps its kind after its last use.
const keepShared = 10 * time.Second

// Share implements backend.Sharer. It does not send a copy whose time is over.
func (n noscript) Share(ctx context.Context, req backend.ShareRequest) (reply backend.ShareReply, err error) {
	if err := wire.CheckShare(&req); err != nil {
		return reply, err
	}
	var refused error
	newcomer := req.Keep == 0 && req.Want > 0
	err = n.transactShared(ctx, newcomer, func(i *sharedSnapshot) {
		if refused = tooLate(req.NotAfter); refused == nil {
			memory := protocol.Instant(n.Clock.Latest(clock.InstantOf(req.Memory))) * time.Microsecond
			reply, refused = i.shared.Share(i.now, n.Conn.Session, req, i.now, memory)
		}
	})
	switch {
	case err != nil:
		return backend.ShareReply{}, err
	case refused != nil:
		return backend.ShareReply{}, fmt.Errorf("redisbackend: %w", refused)
	case reply.Placed:
		n.Conn.Listen(n.Remote)
	}
	return reply, nil
}

// InspectShared implements backend.Sharer.
func (n noscript) InspectShared(ctx context.Context) (st backend.SharedState, err error) {
	err = n.transactShared(ctx, true, func(i *sharedSnapshot) { st = i.shared.Inspect(i.now) })
	return st, err
}

// ForceShared implements backend.Sharer. It does not send a copy whose time is over.
func (n noscript) ForceShared(ctx context.Context, kind backend.ShareKind, notAfter time.Time) (had bool, err error) {
	var refused error
	err = n.transactShared(ctx, true, func(i *sharedSnapshot) {
		if refused = tooLate(notAfter); refused == nil {
			had, refused = i.shared.Force(i.now, forever, kind)
		}
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("redisbackend: %w", refused)
	}
	return had, err
}

// NoteShared implements backend.ShareNoter.
func (n noscript) NoteShared(ctx context.Context, req backend.NoteRequest) (kept bool, err error) {
	if err := wire.CheckNote(&req); err != nil {
		return false, err
	}
	err = n.transactShared(ctx, false, func(i *sharedSnapshot) { kept = i.shared.SetNote(i.now, n.Conn.Session, req) })
	return kept, err
}

// renewShared renews units of a shared name. A server without free memory refuses that, since the hash has to be written.
func (n noscript) renewShared(ctx context.Context, w *backend.Renewal) error {
	err := n.transactShared(ctx, false, func(i *sharedSnapshot) {
		w.Units = i.shared.Renew(i.now, n.Conn.Session, w.Epoch, w.Under, min(w.Lease, wire.MaxTTL))
	})
	w.Gone = err == nil && w.Units == 0
	return err
}

// transactShared does for a shared name what transact does for a lock. If withHold is set, it also reads the hold key, which
// must not exist. Not every verb sets withHold, since in a slot that moves, a Cluster refuses a command that names a missing
// key together with the record.
func (n noscript) transactShared(ctx context.Context, withHold bool, run func(*sharedSnapshot)) error {
	return n.rounds(ctx, func(client rueidis.DedicatedClient) (bool, error) {
		i, err := n.lookShared(ctx, client, withHold)
		if err != nil {
			return false, err
		}
		run(i)
		return n.commit(ctx, client, i.changes(client))
	})
}

// lookShared reads a snapshot of a shared name under WATCH.
func (n noscript) lookShared(ctx context.Context, client rueidis.DedicatedClient, withHold bool) (*sharedSnapshot, error) {
	sent := time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		return nil, fmt.Errorf("redisbackend: not done: %w", err)
	}
	i := &sharedSnapshot{keys: n.Keys, channels: n.Conn.Deployment.Channels}
	watched := n.Keys[1:2]
	if withHold {
		watched = n.Keys[:2]
	}
	commands := rueidis.Commands{
		client.B().Watch().Key(watched...).Build(),
		client.B().Time().Build(),
		client.B().Hgetall().Key(n.Keys[1]).Build(),
		client.B().Pttl().Key(n.Keys[1]).Build(),
	}
	if withHold {
		commands = append(commands, client.B().Pttl().Key(n.Keys[0]).Build())
	}
	answers := client.DoMulti(ctx, commands...)
	at := clock.SampleSince(sent)
	err := i.parse(answers)
	if err == nil {
		at.Stamp = i.now.Microseconds()
		n.Clock.Saw(at)
		return i, nil
	}
	return nil, n.notRead(ctx, err)
}

// parse reads the replies.
func (s *sharedSnapshot) parse(answers []rueidis.RedisResult) error {
	for _, a := range answers {
		if err := a.Error(); err != nil {
			return err
		}
	}
	now, err := parseTime(answers[1])
	if err != nil {
		return err
	}
	s.now = now
	s.shared = protocol.Shared{Name: s.keys.Hold(), Keep: keepShared, Publish: s.publish}
	s.was, _ = answers[2].AsStrMap()
	ttl, _ := answers[3].AsInt64()
	if s.ttl = time.Duration(ttl) * time.Millisecond; ttl == noExpiry { // a script has stopped before it gave the record an expiry
		s.ttl = forever - s.now
	}
	if len(s.was) == 0 || s.ttl <= 0 {
		s.was, s.ttl = nil, 0
		return absent(answers[4:])
	}
	s.shared.Expires = s.now + s.ttl
	if !wire.ReadShared(&s.shared, s.was) {
		return errForeign
	}
	s.before = s.hash()
	if s.shared.Held() {
		return nil
	}
	return absent(answers[4:])
}

// absent returns an error if the hold key exists. parse calls it if no session has units of the name: then the key is that of
// a Lock, or has other data.
func absent(hold []rueidis.RedisResult) error {
	for _, answer := range hold {
		if ttl, _ := answer.AsInt64(); ttl != notThere {
			return errForeign
		}
	}
	return nil
}

func writeEntry(s *protocol.Shared, e *protocol.Entry) string {
	p, pending := e.Place, wire.NoTry
	if p.Try {
		pending = s.Pending(e)
	}
	return fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d", e.Epoch, e.Units, e.Until.Microseconds(), e.Memory.Microseconds(),
		e.First, e.Under, e.Limit, p.Order, p.Want, p.Least, p.Deadline.Microseconds(), wire.Millis(p.TTL), p.Tokens, p.Seen,
		p.Since.Microseconds(), pending, e.Asked, e.Got.Microseconds())
}

func writeSummary(s *protocol.Shared) string {
	m := s.Summary()
	return fmt.Sprintf("%s %d %d %d %d %d %d %d %d", wire.KindLetter(s.Kind), s.Token, m.Units, m.Holders, m.Sessions,
		m.Soonest.Microseconds(), m.First, s.Last, s.Told)
}

// hash returns the whole state, as the scripts keep it.
func (s *sharedSnapshot) hash() map[string]string {
	shared := &s.shared
	fields := map[string]string{wire.SummaryField: writeSummary(shared)}
	for i := range shared.Entries {
		e := &shared.Entries[i]
		fields[e.Session] = writeEntry(shared, e)
		if p := e.Place.Order; p > 0 {
			fields[wire.PlacePrefix+strconv.FormatUint(p, 10)] = e.Session
		}
		if e.Note != "" {
			fields[wire.NotePrefix+e.Session] = fmt.Sprintf("%d %s", e.Got.Microseconds(), e.Note)
		}
	}
	return fields
}

// publish sends a session a message of the protocol, in the format of share.lua.
func (s *sharedSnapshot) publish(session string, m protocol.Message) {
	hold, text := s.keys.Hold(), ""
	if m.Kind == protocol.SharedGrant {
		text = wire.Message{Kind: wire.ShareGranted, Hold: hold, Epoch: m.Epoch, Units: m.Units, May: m.May, First: uint64(m.First),
			Last: uint64(m.Last), TTL: m.TTL, Stamp: m.At.Microseconds()}.String()
	} else {
		text = fmt.Sprintf("%c %d %d %s", wire.ShareWanted, m.May, m.Try, hold)
	}
	s.told = append(s.told, message{s.channels + session, text})
}

// changes returns the commands that make Redis's hash equal to the snapshot, and those that publish the verb's messages. It
// returns none if the verb changed nothing.
func (s *sharedSnapshot) changes(c rueidis.DedicatedClient) (commands rueidis.Commands) {
	if s.shared.Kind == 0 {
		return nil
	}
	is := s.hash()
	if !maps.Equal(is, s.before) {
		commands = s.writes(c, is)
	}
	if ttl := s.shared.Expires - s.now; ttl != s.ttl {
		commands = append(commands, c.B().Pexpire().Key(s.keys[1]).Milliseconds(int64(wire.Millis(ttl))).Build())
	}
	for _, m := range s.told {
		commands = append(commands, c.B().Publish().Channel(m.channel).Message(m.text).Build())
	}
	return commands
}

// writes returns the commands that turn the hash, as it was read, into the new one.
func (s *sharedSnapshot) writes(c rueidis.DedicatedClient, is map[string]string) (commands rueidis.Commands) {
	key, set, changed := s.keys[1], c.B().Hset().Key(s.keys[1]).FieldValue(), false
	for field, text := range is {
		if s.was[field] != text {
			set, changed = set.FieldValue(field, text), true
		}
	}
	if changed {
		commands = append(commands, set.Build())
	}
	for field := range s.was {
		if _, ok := is[field]; !ok {
			commands = append(commands, c.B().Hdel().Key(key).Field(field).Build())
		}
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

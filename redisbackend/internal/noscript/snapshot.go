package noscript

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A snapshot is the state of a lock in Redis at one moment, in the format of common.lua, and then with the changes of a verb.
// It is for sessions with a Redis that runs no scripts.
type snapshot struct {
	keys      wire.Keys
	condition string              // the condition whose tickets are in it; "" for none
	ticketing *wire.ConditionKeys // nil for none
	note      string              // the key of the note, if the snapshot has the note; else ""
	channels  string

	now      protocol.Instant
	was      held
	record   string
	lasts    protocol.Instant // when the record expires, as it was read: s.now + 1 if it has no expiry; forever if not read
	queue    []string         // "session place", in order
	lists    [2][]string
	lock     protocol.Lock
	messages []message
}

// A held is what a lock's hash had when it was read.
type held struct {
	field   string
	others  []string // further fields, left by a script that stopped half-way: see sole in common.lua
	count   int
	expires protocol.Instant
}

type message struct{ channel, text string }

// forever is later than any lease ends.
const forever = protocol.Instant(math.MaxInt64)

// readers returns the commands that read a snapshot, in the order in which parse expects their replies.
func (s *snapshot) readers(c rueidis.DedicatedClient) rueidis.Commands {
	k := s.keys
	commands := rueidis.Commands{
		c.B().Time().Build(),
		c.B().Get().Key(k[1]).Build(),
		c.B().Hgetall().Key(k[0]).Build(),
		c.B().Pttl().Key(k[0]).Build(),
		c.B().Lrange().Key(k[2]).Start(0).Stop(-1).Build(),
		c.B().Hgetall().Key(k[3]).Build(),
	}
	if t := s.ticketing; t != nil {
		commands = append(commands,
			c.B().Zrange().Key(t[4]).Min("0").Max("-1").Withscores().Build(),
			c.B().Zrange().Key(t[5]).Min("0").Max("-1").Withscores().Build(),
			c.B().Hgetall().Key(t[6]).Build(),
			c.B().Pttl().Key(k[1]).Build())
	}
	if s.note != "" {
		commands = append(commands, c.B().Get().Key(s.note).Build())
	}
	return commands
}

// parse reads the replies.
func (s *snapshot) parse(answers []rueidis.RedisResult) error {
	read := answers
	if s.note != "" {
		read = answers[:len(answers)-1] // if the note's key is of another type, the lock has no note
	}
	for _, a := range read {
		if err := a.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
	}
	now, err := parseTime(answers[0])
	if err != nil {
		return err
	}
	s.now = now
	s.lock = protocol.Lock{Keep: wire.MinKeep, Brief: wire.BriefKeep, Publish: s.publish}
	text, none := answers[1].ToString()
	if record, ok := wire.ParseRecord(text); ok {
		s.record, s.lock.Record = text, protocol.Record(record)
	} else if none == nil {
		return errRecord
	}
	s.lasts = forever
	hash, _ := answers[2].AsStrMap()
	ttl, _ := answers[3].AsInt64()
	if err := s.parseHold(hash, ttl); err != nil {
		return err
	}
	order, _ := answers[4].AsStrSlice()
	places, _ := answers[5].AsStrMap()
	for _, session := range order {
		if raw, ok := places[session]; ok {
			s.queue = append(s.queue, session+" "+raw)
			s.lock.Queue = append(s.lock.Queue, parsePlace(session, raw))
		}
	}
	if s.ticketing != nil {
		terms, _ := answers[8].AsStrMap()
		waiting, _ := answers[6].AsZScores()
		signalled, _ := answers[7].AsZScores()
		s.lock.Conditions = map[string]*protocol.Condition{s.condition: {
			Waiting: tickets(waiting, terms, false), Signalled: tickets(signalled, terms, true),
		}}
		s.lists = s.tickets()
		switch ttl, err := answers[9].AsInt64(); { // an odd nanosecond: the end of a record that is saved never equals lasts
		case err == nil && ttl == noExpiry:
			s.lasts = s.now + 1
		case err == nil && ttl >= 0:
			s.lasts = s.now + max(time.Duration(ttl)*time.Millisecond, 2) - 1
		}
	}
	s.lock.Record.Expires = s.lasts
	if s.note != "" {
		text, _ := answers[len(answers)-1].ToString()
		s.parseNote(text)
	}
	return nil
}

// errForeign is the error of the scripts for a hash that is no lock.
var errForeign = garbage("a hash that is not a lock")

// errRecord is the error of the scripts for a text that is no record.
var errRecord = garbage("a text that is not the record of a lock")

// errGarbage marks the errors of keys whose value no session has written.
var errGarbage = errors.New("WRONGTYPE")

func garbage(what string) error {
	return backend.WithRefused(fmt.Errorf("%w: %w the key has %s", backend.ErrWrongKind, errGarbage, what))
}

func (s *snapshot) parseHold(hash map[string]string, ttl int64) error {
	if ttl == notThere { // the hold has ended since the hash was read
		return nil
	}
	for field, count := range hash {
		session, owner, named := strings.Cut(field, ":")
		if !named || ttl == noExpiry {
			return errForeign
		}
		if s.was.field != "" {
			if session != s.lock.Record.Session {
				s.was.others = append(s.was.others, field)
				continue
			}
			s.was.others = append(s.was.others, s.was.field)
		}
		s.was.field, s.was.expires = field, s.now+time.Duration(ttl)*time.Millisecond
		var err error
		if s.was.count, err = strconv.Atoi(count); err != nil || s.was.count < 1 || len(count) > 10 {
			return errForeign
		}
		s.lock.Hold = protocol.Hold{Session: session, Owner: owner, Count: s.was.count, Expires: s.was.expires}
	}
	return nil
}

// parseNote reads "token text".
func (s *snapshot) parseNote(raw string) {
	if token, text, ok := strings.Cut(raw, " "); ok {
		n, _ := strconv.ParseUint(token, 10, 64)
		s.lock.Note = protocol.Note{Token: backend.Token(n), Text: text, Expires: forever}
	}
}

func micros(n int64) protocol.Instant { return protocol.Instant(n) * time.Microsecond }

// parsePlace reads "epoch deadline grant holds tokens seen keep owner". A place that cannot be read is dead.
func parsePlace(session, raw string) protocol.Waiter {
	words := strings.SplitN(raw, " ", 8)
	if len(words) < 8 {
		return protocol.Waiter{Session: session}
	}
	var n [7]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return protocol.Waiter{Session: session}
		}
	}
	return protocol.Waiter{
		Session: session, Epoch: uint64(n[0]), Deadline: micros(n[1]), TTL: time.Duration(n[2]) * time.Millisecond,
		Holds: int(n[3]), Tokens: int(n[4]), Seen: backend.Token(n[5]), Keep: time.Duration(n[6]) * time.Second, Owner: words[7],
	}
}

func writePlace(w protocol.Waiter) string {
	return fmt.Sprintf("%d %d %s", w.Epoch, w.Deadline.Microseconds(), writeTerms(w))
}

// writeTerms returns the terms on which a waiter gets the lock: the text with which both a place and a ticket's terms end.
func writeTerms(w protocol.Waiter) string {
	return fmt.Sprintf("%d %d %d %d %d %s", wire.Millis(w.TTL), w.Holds, w.Tokens, w.Seen, wire.RoundUp(w.Keep, time.Second), w.Owner)
}

// tickets reads the tickets of a condition: their order, and their terms "deadline patience grant holds tokens seen
// keep owner".
func tickets(order []rueidis.ZScore, terms map[string]string, signalled bool) (list []protocol.Ticket) {
	for _, z := range order {
		i := strings.LastIndexByte(z.Member, ':')
		raw, ok := terms[z.Member]
		words := strings.SplitN(raw, " ", 3)
		if i < 0 || !ok || len(words) < 3 {
			continue
		}
		epoch, _ := strconv.ParseUint(z.Member[i+1:], 10, 64)
		deadline, _ := strconv.ParseInt(words[0], 10, 64)
		patience, _ := strconv.ParseInt(words[1], 10, 64)
		t := protocol.Ticket{Token: backend.Token(z.Score), Patience: time.Duration(patience) * time.Millisecond}
		t.Waiter = parsePlace(z.Member[:i], fmt.Sprintf("%d %d %s", epoch, deadline, words[2]))
		if signalled {
			t.Deadline = micros(int64(z.Score))
		}
		list = append(list, t)
	}
	return list
}

// tickets returns the condition's present tickets, waiting and signalled, a line each.
func (s *snapshot) tickets() (lists [2][]string) {
	c := s.lock.Conditions[s.condition]
	for n, list := range [][]protocol.Ticket{c.Waiting, c.Signalled} {
		for _, t := range list {
			lists[n] = append(lists[n], fmt.Sprintf("%s:%d %d %s", t.Session, t.Epoch, t.Deadline, t.Patience))
		}
	}
	return lists
}

// publish sends a session a message of the protocol, in the format of the scripts.
func (s *snapshot) publish(session string, m protocol.Message) {
	text := wire.Message{Kind: wire.Granted, Hold: s.keys.Hold(), Epoch: m.Epoch, Placed: m.Placed,
		First: uint64(m.First), Last: uint64(m.Last), TTL: m.TTL, Stamp: m.At.Microseconds()}
	switch m.Kind {
	case protocol.Signalled:
		text.Kind = wire.Signalled
	case protocol.Wanted:
		text.Kind = wire.Wanted
	case protocol.Taken:
		text.Kind = wire.Taken
	}
	s.messages = append(s.messages, message{s.channels + session, text.String()})
}

// changes returns the commands that make Redis's state equal to the snapshot, and those that publish the verb's messages. It
// returns none if the verb changed nothing.
func (s *snapshot) changes(c rueidis.DedicatedClient) (commands rueidis.Commands) {
	commands = append(commands, s.holdChanges(c)...)
	k := s.keys
	if r := &s.lock.Record; r.Expires != s.lasts { // the record was saved, or prolonged
		seconds := int64(wire.RoundUp(r.Expires-s.now, time.Second))
		if record := (*wire.Record)(r).Format(); record == s.record { // a full server still extends the expiry of its keys
			commands = append(commands, c.B().Expire().Key(k[1]).Seconds(seconds).Build())
		} else {
			commands = append(commands, c.B().Set().Key(k[1]).Value(record).ExSeconds(seconds).Build())
		}
	}
	var places []string
	for _, w := range s.lock.Queue {
		places = append(places, w.Session+" "+writePlace(w))
	}
	if !slices.Equal(places, s.queue) {
		commands = append(commands, s.queueChanges(c)...)
	}
	if n := s.lock.Note; s.note != "" && n.Token > 0 && n.Expires != forever { // the verb wrote the note
		seconds := int64(wire.RoundUp(n.Expires-s.now, time.Second))
		commands = append(commands, c.B().Set().Key(s.note).Value(fmt.Sprintf("%d %s", n.Token, n.Text)).ExSeconds(seconds).Build())
	}
	if s.ticketing != nil && !equalLists(s.tickets(), s.lists) {
		commands = append(commands, s.ticketChanges(c)...)
	}
	for _, m := range s.messages {
		commands = append(commands, c.B().Publish().Channel(m.channel).Message(m.text).Build())
	}
	return commands
}

func equalLists(a, b [2][]string) bool { return slices.Equal(a[0], b[0]) && slices.Equal(a[1], b[1]) }

func (s *snapshot) holdChanges(c rueidis.DedicatedClient) (commands rueidis.Commands) {
	h, key := s.lock.Hold, s.keys.Hold()
	if h.Count == 0 {
		if s.was.field != "" {
			commands = append(commands, c.B().Del().Key(key).Build())
		}
		return commands
	}
	field := h.Session + ":" + h.Owner
	if field != s.was.field || h.Count != s.was.count {
		commands = append(commands, c.B().Hset().Key(key).FieldValue().FieldValue(field, strconv.Itoa(h.Count)).Build())
	}
	if s.was.field != "" && field != s.was.field {
		gone := slices.DeleteFunc(append(s.was.others, s.was.field), func(f string) bool { return f == field })
		commands = append(commands, c.B().Hdel().Key(key).Field(gone...).Build())
	}
	if h.Expires != s.was.expires || s.was.field == "" {
		commands = append(commands, c.B().Pexpire().Key(key).Milliseconds(int64(wire.Millis(h.Expires-s.now))).Build())
	}
	return commands
}

func (s *snapshot) queueChanges(c rueidis.DedicatedClient) rueidis.Commands {
	k := s.keys
	commands := rueidis.Commands{c.B().Del().Key(k[2], k[3]).Build()}
	if len(s.lock.Queue) == 0 {
		return commands
	}
	var order []string
	var keep time.Duration
	places := c.B().Hset().Key(k[3]).FieldValue()
	for _, w := range s.lock.Queue {
		order, keep = append(order, w.Session), max(keep, w.Keep)
		places = places.FieldValue(w.Session, writePlace(w))
	}
	seconds := int64(wire.RoundUp(keep, time.Second))
	return append(commands,
		c.B().Rpush().Key(k[2]).Element(order...).Build(), places.Build(),
		c.B().Expire().Key(k[2]).Seconds(seconds).Build(), c.B().Expire().Key(k[3]).Seconds(seconds).Build())
}

func (s *snapshot) ticketChanges(c rueidis.DedicatedClient) rueidis.Commands {
	t, cond := s.ticketing, s.lock.Conditions[s.condition]
	commands := rueidis.Commands{c.B().Del().Key(t[4], t[5], t[6]).Build()}
	all := slices.Concat(cond.Waiting, cond.Signalled)
	if len(all) == 0 {
		return commands
	}
	terms := c.B().Hset().Key(t[6]).FieldValue()
	keep := slices.MaxFunc(all, func(a, b protocol.Ticket) int { return cmp.Compare(a.Keep, b.Keep) }).Keep
	for n, w := range all {
		member := fmt.Sprintf("%s:%d", w.Session, w.Epoch)
		key, score := t[4], float64(w.Token)
		if n >= len(cond.Waiting) {
			key, score = t[5], float64(w.Deadline.Microseconds())
		}
		commands = append(commands, c.B().Zadd().Key(key).ScoreMember().ScoreMember(score, member).Build())
		terms = terms.FieldValue(member, fmt.Sprintf("%d %d %s", w.Deadline.Microseconds(), wire.Millis(w.Patience), writeTerms(w.Waiter)))
	}
	commands = append(commands, terms.Build())
	for _, key := range t[4:] {
		commands = append(commands, c.B().Expire().Key(key).Seconds(int64(wire.RoundUp(keep, time.Second))).Build())
	}
	return commands
}

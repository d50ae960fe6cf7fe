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

// A snapshot is the state of a lock in Redis at one moment, in the format of common.lua, with the changes of a verb
// since. It is for sessions with a Redis that runs no scripts.
type snapshot struct {
	keys      wire.Keys
	condition string              // the condition whose tickets are in it; "" for none
	ticketing *wire.ConditionKeys // nil for none
	note      string              // the key of the note, if that is in it; "" for none
	channels  string

	now      protocol.Instant
	was      held
	record   string
	queue    []string // "session record", in order
	lists    [2][]string
	lock     protocol.Lock
	messages []message
}

// held is the hash as it was read.
type held struct {
	field   string
	others  []string // left there by a script that stopped: see sole in common.lua
	count   int
	expires protocol.Instant
}

type message struct{ channel, text string }

// forever is later than any lease ends.
const forever = protocol.Instant(math.MaxInt64)

// readers returns the commands that read a snapshot, in the order in which parse expects their replies.
func (i *snapshot) readers(c rueidis.DedicatedClient) rueidis.Commands {
	k := i.keys
	commands := rueidis.Commands{
		c.B().Time().Build(),
		c.B().Get().Key(k[1]).Build(),
		c.B().Hgetall().Key(k[0]).Build(),
		c.B().Pttl().Key(k[0]).Build(),
		c.B().Lrange().Key(k[2]).Start(0).Stop(-1).Build(),
		c.B().Hgetall().Key(k[3]).Build(),
	}
	if t := i.ticketing; t != nil {
		commands = append(commands,
			c.B().Zrange().Key(t[4]).Min("0").Max("-1").Withscores().Build(),
			c.B().Zrange().Key(t[5]).Min("0").Max("-1").Withscores().Build(),
			c.B().Hgetall().Key(t[6]).Build())
	}
	if i.note != "" {
		commands = append(commands, c.B().Get().Key(i.note).Build())
	}
	return commands
}

// parse reads the replies.
func (i *snapshot) parse(answers []rueidis.RedisResult) error {
	read := answers
	if i.note != "" {
		read = answers[:len(answers)-1] // if the note's key has something else, there is no note
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
	i.now = now
	i.lock = protocol.Lock{Keep: wire.MinKeep, Publish: i.publish}
	text, none := answers[1].ToString()
	if record, ok := wire.ParseRecord(text); ok {
		i.record, i.lock.Record = text, protocol.Record(record)
	} else if none == nil {
		return errRecord
	}
	i.lock.Record.Expires = forever
	hash, _ := answers[2].AsStrMap()
	ttl, _ := answers[3].AsInt64()
	if err := i.parseHold(hash, ttl); err != nil {
		return err
	}
	order, _ := answers[4].AsStrSlice()
	places, _ := answers[5].AsStrMap()
	for _, session := range order {
		if raw, ok := places[session]; ok {
			i.queue = append(i.queue, session+" "+raw)
			i.lock.Queue = append(i.lock.Queue, parsePlace(session, raw))
		}
	}
	if i.ticketing != nil {
		terms, _ := answers[8].AsStrMap()
		waiting, _ := answers[6].AsZScores()
		signalled, _ := answers[7].AsZScores()
		i.lock.Conditions = map[string]*protocol.Condition{i.condition: {
			Waiting: tickets(waiting, terms, false), Signalled: tickets(signalled, terms, true),
		}}
		i.lists = i.tickets()
	}
	if i.note != "" {
		text, _ := answers[len(answers)-1].ToString()
		i.parseNote(text)
	}
	return nil
}

// errForeign is the error of the scripts for a hash that is no lock.
var errForeign = garbage("a hash that is not a lock")

// errRecord is that for a text that is no record.
var errRecord = garbage("a text that is not the record of a lock")

// errGarbage is in the errors of keys that have what no session has written there.
var errGarbage = errors.New("WRONGTYPE")

func garbage(what string) error {
	return backend.WithRefused(fmt.Errorf("%w: %w the key has %s", backend.ErrWrongKind, errGarbage, what))
}

func (i *snapshot) parseHold(hash map[string]string, ttl int64) error {
	const expired, never = -2, -1
	if ttl == expired { // since the hash was read
		return nil
	}
	for field, count := range hash {
		session, owner, named := strings.Cut(field, ":")
		if !named || ttl == never {
			return errForeign
		}
		if i.was.field != "" {
			if session != i.lock.Record.Session {
				i.was.others = append(i.was.others, field)
				continue
			}
			i.was.others = append(i.was.others, i.was.field)
		}
		i.was.field, i.was.expires = field, i.now+time.Duration(ttl)*time.Millisecond
		var err error
		if i.was.count, err = strconv.Atoi(count); err != nil || i.was.count < 1 || len(count) > 10 {
			return errForeign
		}
		i.lock.Hold = protocol.Hold{Session: session, Owner: owner, Count: i.was.count, Expires: i.was.expires}
	}
	return nil
}

// parseNote reads "token text".
func (i *snapshot) parseNote(raw string) {
	if token, text, ok := strings.Cut(raw, " "); ok {
		n, _ := strconv.ParseUint(token, 10, 64)
		i.lock.Note = protocol.Note{Token: backend.Token(n), Text: text, Expires: forever}
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

// writeTerms returns the terms of a waiter's return: the end of a place, and of a ticket.
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
func (i *snapshot) tickets() (lists [2][]string) {
	c := i.lock.Conditions[i.condition]
	for n, list := range [][]protocol.Ticket{c.Waiting, c.Signalled} {
		for _, t := range list {
			lists[n] = append(lists[n], fmt.Sprintf("%s:%d %d %s", t.Session, t.Epoch, t.Deadline, t.Patience))
		}
	}
	return lists
}

// publish sends a session a message of the protocol, in the format of the scripts.
func (i *snapshot) publish(session string, m protocol.Message) {
	text := wire.Message{Kind: wire.Granted, Hold: i.keys.Hold(), Epoch: m.Epoch, Placed: m.Placed,
		First: uint64(m.First), Last: uint64(m.Last), TTL: m.TTL, Stamp: m.At.Microseconds()}
	switch m.Kind {
	case protocol.Signalled:
		text.Kind = wire.Signalled
	case protocol.Wanted:
		text.Kind = wire.Wanted
	case protocol.Taken:
		text.Kind = wire.Taken
	}
	i.messages = append(i.messages, message{i.channels + session, text.String()})
}

// changes returns the commands that make Redis's state equal to the snapshot, none if it is.
func (i *snapshot) changes(c rueidis.DedicatedClient) (commands rueidis.Commands) {
	commands = append(commands, i.holdChanges(c)...)
	k := i.keys
	if r := &i.lock.Record; r.Expires != forever { // it was saved
		seconds := int64(wire.RoundUp(r.Expires-i.now, time.Second))
		if record := (*wire.Record)(r).Format(); record == i.record { // a full server still extends the expiry of its keys
			commands = append(commands, c.B().Expire().Key(k[1]).Seconds(seconds).Build())
		} else {
			commands = append(commands, c.B().Set().Key(k[1]).Value(record).ExSeconds(seconds).Build())
		}
	}
	var places []string
	for _, w := range i.lock.Queue {
		places = append(places, w.Session+" "+writePlace(w))
	}
	if !slices.Equal(places, i.queue) {
		commands = append(commands, i.queueChanges(c)...)
	}
	if n := i.lock.Note; i.note != "" && n.Token > 0 && n.Expires != forever { // it was written
		seconds := int64(wire.RoundUp(n.Expires-i.now, time.Second))
		commands = append(commands, c.B().Set().Key(i.note).Value(fmt.Sprintf("%d %s", n.Token, n.Text)).ExSeconds(seconds).Build())
	}
	if i.ticketing != nil && !equalLists(i.tickets(), i.lists) {
		commands = append(commands, i.ticketChanges(c)...)
	}
	for _, m := range i.messages {
		commands = append(commands, c.B().Publish().Channel(m.channel).Message(m.text).Build())
	}
	return commands
}

func equalLists(a, b [2][]string) bool { return slices.Equal(a[0], b[0]) && slices.Equal(a[1], b[1]) }

func (i *snapshot) holdChanges(c rueidis.DedicatedClient) (commands rueidis.Commands) {
	h, key := i.lock.Hold, i.keys.Hold()
	if h.Count == 0 {
		if i.was.field != "" {
			commands = append(commands, c.B().Del().Key(key).Build())
		}
		return commands
	}
	field := h.Session + ":" + h.Owner
	if field != i.was.field || h.Count != i.was.count {
		commands = append(commands, c.B().Hset().Key(key).FieldValue().FieldValue(field, strconv.Itoa(h.Count)).Build())
	}
	if i.was.field != "" && field != i.was.field {
		gone := slices.DeleteFunc(append(i.was.others, i.was.field), func(f string) bool { return f == field })
		commands = append(commands, c.B().Hdel().Key(key).Field(gone...).Build())
	}
	if h.Expires != i.was.expires || i.was.field == "" {
		commands = append(commands, c.B().Pexpire().Key(key).Milliseconds(int64(wire.Millis(h.Expires-i.now))).Build())
	}
	return commands
}

func (i *snapshot) queueChanges(c rueidis.DedicatedClient) rueidis.Commands {
	k := i.keys
	commands := rueidis.Commands{c.B().Del().Key(k[2], k[3]).Build()}
	if len(i.lock.Queue) == 0 {
		return commands
	}
	var order []string
	var keep time.Duration
	places := c.B().Hset().Key(k[3]).FieldValue()
	for _, w := range i.lock.Queue {
		order, keep = append(order, w.Session), max(keep, w.Keep)
		places = places.FieldValue(w.Session, writePlace(w))
	}
	seconds := int64(wire.RoundUp(keep, time.Second))
	return append(commands,
		c.B().Rpush().Key(k[2]).Element(order...).Build(), places.Build(),
		c.B().Expire().Key(k[2]).Seconds(seconds).Build(), c.B().Expire().Key(k[3]).Seconds(seconds).Build())
}

func (i *snapshot) ticketChanges(c rueidis.DedicatedClient) rueidis.Commands {
	t, cond := i.ticketing, i.lock.Conditions[i.condition]
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

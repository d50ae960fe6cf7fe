package explore

import (
	"bufio"
	"bytes"
	_ "embed"
	"hash/maphash"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// A tick is one instant of the discrete time of a world. For the scripts a tick is a second, counted from epoch on.
type tick uint8

const (
	second       = time.Second
	far     tick = 255 // a TTL of minutes: beyond the end of every world
	eternal tick = 254 // no TTL at all
)

// epoch is Redis's clock at tick 0, in microseconds: larger than any number of tokens, as it is in life.
const epoch = 1_700_000_000_000_000

// micros is Redis's clock at a tick.
func (t tick) micros() int64 { return epoch + int64(t)*second.Microseconds() }

// The keys of a lock and of one condition, in the order in which the scripts take them.
const (
	keyHold = iota
	keyRecord
	keyQueue
	keyWaiters
	keyTickets
	keySignalled
	keyTerms
	keyCount
)

// A value is what is at one key: a hash as field, value, field, value and so on, sorted by field; a list as it is; a
// sorted set as score, member and so on; a string as one. It is nil if the key is not there.
type value struct {
	items   []string
	expires tick
}

// A memory is everything that Redis knows of the lock. Equal memories are one *memory.
type memory struct {
	id   uint32
	keys [keyCount]value
	lock
}

// A result is what a script changed and returned.
type result struct {
	after    *memory
	code     int
	numbers  []int64
	messages []message
	note     string // how the record of an acquire that is granted ends
	lingers  bool   // an acquire that waits: the holder was asked for a lock that may be idle
	err      string
}

// A store runs the scripts in an embedded Redis. It remembers the result of each call on each memory, so every one is
// run once.
type store struct {
	redis *server.Server
	names [keyCount]string
	now   tick

	job  []string                // for the driver
	run  func() ([]string, bool) // lets the driver do the job, and returns its result
	peer *server.Peer            // inside the driver's script, so that commands come between those of the scripts
	out  *bytes.Buffer           // the replies to peer
	in   *bufio.Reader           // reads from out

	has   *memory // what Redis has; nil if that is not known
	said  []message
	ids   map[string]*memory
	known map[run]result
	count int // of runs

	scratch  [maxSessions]machine.Machine[uint8] // the machines that a step changes
	machines map[uint64]*machine.Machine[uint8]  // by their hashes
	seed     maphash.Seed
}

// A run is a call that reaches Redis at some moment.
type run struct {
	memory uint32
	now    tick
	call   call
	stop   uint8 // after how many commands the script stops; 0: it does not
}

//go:embed driver.lua
var driver string

func newStore(t testing.TB, s *sources) *store {
	redis := miniredis.NewMiniRedis()
	must(redis.Dial()) // this starts the server, without a network
	r := &store{redis: redis.Server(), names: s.keys,
		out: new(bytes.Buffer), ids: map[string]*memory{}, known: map[run]result{},
		machines: map[uint64]*machine.Machine[uint8]{}, seed: maphash.MakeSeed()}
	r.peer, r.in = server.NewPeer(bufio.NewWriter(r.out)), bufio.NewReader(r.out)
	r.redis.SetPreHook(r.hear)
	run, stop := iter.Pull(func(yield func([]string) bool) { r.drive(s, yield) })
	r.run = run
	r.run()
	t.Cleanup(func() {
		stop()
		redis.Close()
	})
	return r
}

// drive runs the driver, which passes its results to yield. The caller of drive makes it a coroutine, because a change to
// another goroutine for each run would take much of the time, and nearly all of it on a busy machine.
func (r *store) drive(s *sources, yield func([]string) bool) {
	// The command by which the driver returns a result and takes the next job.
	must(0, r.redis.Register("EXPLORE", func(c *server.Peer, _ string, args []string) {
		r.peer.Ctx = c.Ctx
		if !yield(args) {
			c.WriteNull()
			return
		}
		c.WriteStrings(r.job)
	}))
	command := []string{"EVAL", driver, "0"}
	for v := verbAcquire; v < verbCount; v++ {
		command = append(command, s.texts[v])
	}
	r.redis.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), command)
}

// hear replies to a script's PUBLISH, PUBSUB and TIME, and notes when anything is written.
func (r *store) hear(c *server.Peer, cmd string, args ...string) bool {
	switch cmd {
	case "TIME":
		micros := r.now.micros()
		c.WriteStrings([]string{strconv.FormatInt(micros/1e6, 10), strconv.FormatInt(micros%1e6, 10)})
	case "PUBLISH":
		r.said = append(r.said, parseMessage(strings.TrimPrefix(args[0], channels), args[1]))
		c.WriteInt(1)
	case "PUBSUB": // every channel has a subscriber
		c.WriteLen(2)
		c.WriteBulk(args[1])
		c.WriteInt(1)
	default:
		if r.has != nil && !r.redis.IsReadOnlyCommand(cmd) && cmd != "EXPLORE" {
			r.has = nil
		}
		return false
	}
	return true
}

// do runs a command outside of the scripts.
func (r *store) do(command ...string) any {
	r.redis.Dispatch(r.peer, command)
	r.peer.Flush()
	return must(server.ParseReply(r.in))
}

// exec carries out a call that reaches Redis at a moment, or a part of it, and returns its result.
func (r *store) exec(before *memory, now tick, c call, stop uint8) result {
	key := run{before.id, now, c, stop}
	res, ok := r.known[key]
	if !ok {
		res = r.eval(before, now, c, stop)
		r.known[key] = res
	}
	return res
}

// eval has Redis run the script of a call.
func (r *store) eval(before *memory, now tick, c call, stop uint8) (res result) {
	r.count++
	r.load(before, now)
	r.now, r.said = now, nil
	keys, args := c.arguments(r.names)
	number := strconv.Itoa(int(c.verb))
	if stop > 0 {
		number += "/" + strconv.Itoa(int(stop))
	}
	r.job = slices.Concat([]string{number, strconv.Itoa(len(keys))}, keys, args)
	answer, _ := r.run()
	res.messages = r.said
	if r.has == nil {
		r.has = r.save(now)
	}
	res.after = r.has
	if answer[0] != "ok" {
		res.err = answer[1]
		return res
	}
	for i, text := range answer[1:] {
		if i == 5 && (c.verb == verbAcquire || c.verb == verbResume) { // how the record ends, or a note
			res.note = text
			break
		}
		res.numbers = append(res.numbers, num[int64](text))
	}
	if c.verb == verbRenew || c.verb == verbBeat { // these return the time first, and not always a code
		res.numbers = append(res.numbers[1:], res.numbers[0])
	}
	if c.verb == verbAcquire && len(res.numbers) == 1 { // the token and the time of a lock that was free
		at := res.numbers[0]
		res.numbers, res.note = []int64{granted, at, at, at, 0}, c.briefly()
	}
	if first := res.numbers[0]; c.verb == verbRenew && first > 0 { // the first token of the hold
		res.numbers = []int64{1, res.numbers[1], first, first, 0}
	}
	res.code = int(res.numbers[0])
	res.lingers = c.verb == verbAcquire && res.code == waiting && res.numbers[3] == 1
	if c.verb.lean() && c.verb != verbFree { // the time, if a lease begins
		got := epoch + int64(max(c.least(), token(res.numbers[0])))
		if ttl := -res.numbers[0]; ttl > 0 { // it has yielded
			res.code, res.numbers = waiting, []int64{waiting, 0, ttl}
			return res
		}
		res.code, res.numbers = min(res.code, 1), []int64{res.numbers[0], 0, got, got, 0}
	}
	return res
}

// load writes a memory to Redis.
func (r *store) load(m *memory, now tick) {
	if r.has == m && r.now == now {
		return
	}
	for i, v := range m.keys {
		name := r.names[i]
		r.do("DEL", name)
		if v.items == nil {
			continue
		}
		r.do(append([]string{writers[i], name}, v.items...)...)
		switch v.expires {
		case eternal:
		case far:
			r.do("EXPIRE", name, keep)
		default:
			r.do("EXPIRE", name, strconv.Itoa(int(v.expires-now)))
		}
	}
	r.has = m
}

// The commands that write and read each key.
var (
	writers = [keyCount]string{"HSET", "SET", "RPUSH", "HSET", "ZADD", "ZADD", "HSET"}
	readers = [keyCount][]string{{"HGETALL"}, {"GET"}, {"LRANGE", "0", "-1"}, {"HGETALL"},
		{"ZRANGE", "0", "-1", "WITHSCORES"}, {"ZRANGE", "0", "-1", "WITHSCORES"}, {"HGETALL"}}
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// save returns the memory that Redis has.
func (r *store) save(now tick) *memory {
	var keys [keyCount]value
	for i, name := range r.names {
		ttl := r.do("PTTL", name).(int)
		if ttl == -2 {
			continue
		}
		command := append([]string{readers[i][0], name}, readers[i][1:]...)
		keys[i] = value{r.items(i, r.do(command...)), expiry(now, ttl)}
	}
	return r.intern(keys)
}

// expiry is when a key with a TTL in milliseconds ends.
func expiry(now tick, ttl int) tick {
	switch {
	case ttl < 0:
		return eternal
	case ttl > 20_000:
		return far
	}
	return now + tick((ttl+999)/1000)
}

// items returns what a reader read, in the form that its writer takes.
func (r *store) items(i int, reply any) []string {
	if text, ok := reply.(string); ok {
		return []string{text}
	}
	var items []string
	for _, x := range reply.([]any) {
		items = append(items, x.(string))
	}
	if readers[i][0] == "LRANGE" {
		return items
	}
	pairs := slices.Collect(slices.Chunk(items, 2))
	if readers[i][0] == "ZRANGE" {
		for _, p := range pairs {
			p[0], p[1] = strconv.FormatInt(int64(must(strconv.ParseFloat(p[1], 64))), 10), p[0]
		}
	}
	slices.SortFunc(pairs, slices.Compare)
	return slices.Concat(pairs...)
}

// intern returns the only memory with the given keys.
func (r *store) intern(keys [keyCount]value) *memory {
	var text strings.Builder
	for _, v := range keys {
		for _, item := range v.items {
			text.WriteString(item)
			text.WriteByte(0)
		}
		text.WriteByte(byte(v.expires))
		text.WriteByte(1)
	}
	m := r.ids[text.String()]
	if m == nil {
		m = &memory{id: uint32(len(r.ids)), keys: keys}
		m.lock = parseLock(&keys)
		r.ids[text.String()] = m
	}
	return m
}

// pass returns a memory without the keys that have expired by now.
func (r *store) pass(m *memory, now tick) *memory {
	keys, gone := m.keys, false
	for i, v := range keys {
		if v.items != nil && v.expires <= now {
			keys[i], gone = value{}, true
		}
	}
	if !gone {
		return m
	}
	return r.intern(keys)
}

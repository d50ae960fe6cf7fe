package explore

import (
	"bufio"
	"bytes"
	_ "embed"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A tick is one instant of the discrete time. For the scripts it is a second after epoch. never is later than
// everything that happens in a world.
type tick uint8

const (
	second       = time.Second
	far     tick = 255 // a TTL of minutes: it outlasts every world
	eternal tick = 254 // no TTL
)

// epoch is Redis's clock at tick 0, in microseconds: larger than any number of tokens, as in production.
const epoch = 1_700_000_000_000_000

// micros returns Redis's clock at a tick.
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

// A value is the content of one key: of a hash field, value, field, value and so on, sorted by field; of a list its
// items; of a sorted set score, member and so on; of a string itself. It is nil if the key does not exist.
type value struct {
	items   []string
	expires tick
}

// A memory is everything that Redis stores for the lock. Equal memories are the same *memory.
type memory struct {
	id   uint32
	keys [keyCount]value
	lock
}

// A result is what a script has changed and returned.
type result struct {
	after    *memory
	code     int
	numbers  []int64
	messages []message
	note     string // the end of the record after a granted acquire
	err      string
}

// A store runs the scripts in an embedded Redis. It remembers the result of each call on each memory, so that each is
// run only once.
type store struct {
	redis *server.Server
	names [keyCount]string
	now   tick

	job  []string                // for the driver, with the fields below
	run  func() ([]string, bool) // passes a job to the driver and returns the result
	peer *server.Peer            // a connection within the driver's script: commands run between those of the scripts
	out  *bytes.Buffer           // replies on that connection
	in   *bufio.Reader           // reads those replies

	has   *memory // what Redis has now; nil if that is unknown
	said  []message
	ids   map[string]*memory
	known map[run]result
	count int // number of runs
}

// A run is a call that reaches Redis at a certain time.
type run struct {
	memory uint32
	now    tick
	call   call
	stop   uint8 // the number of commands after which the script stops; 0: it does not
}

//go:embed driver.lua
var driver string

func newStore(t testing.TB, s *sources) *store {
	redis := miniredis.NewMiniRedis()
	must(redis.Dial()) // starts the driver, without a network
	r := &store{redis: redis.Server(), names: s.keys,
		out: new(bytes.Buffer), ids: map[string]*memory{}, known: map[run]result{}}
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

// drive runs the driver, which passes its results to yield. The driver is a coroutine: changing to another goroutine
// for each run would take much of the time, and almost all of it on a busy machine.
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

// hear replies to a script's PUBLISH, PUBSUB and TIME, and records when anything is written.
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

// do runs a command that is not part of a script.
func (r *store) do(command ...string) any {
	r.redis.Dispatch(r.peer, command)
	r.peer.Flush()
	return must(server.ParseReply(r.in))
}

// exec carries out a call, or a part of it, that reaches Redis at a certain time, and returns its result.
func (r *store) exec(before *memory, now tick, c call, stop uint8) result {
	key := run{before.id, now, c, stop}
	res, ok := r.known[key]
	if !ok {
		res = r.eval(before, now, c, stop)
		r.known[key] = res
	}
	return res
}

// eval makes Redis run the script of a call.
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
		if i == 5 && c.verb == verbAcquire { // the end of the record
			res.note = text
			break
		}
		res.numbers = append(res.numbers, num[int64](text))
	}
	if c.verb == verbRenew || c.verb == verbBeat { // these scripts return the time first, and not always a code
		res.numbers = append(res.numbers[1:], res.numbers[0])
	}
	res.code = int(res.numbers[0])
	if c.verb.lean() && c.verb != verbFree { // the time is returned if a lease begins
		got := epoch + int64(max(c.least(), token(res.numbers[0])))
		if ttl := -res.numbers[0]; ttl > 0 { // the script has yielded the lock
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

// save returns what Redis has as a memory.
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

// expiry returns when a key with a TTL in milliseconds expires.
func expiry(now tick, ttl int) tick {
	switch {
	case ttl < 0:
		return eternal
	case ttl > 100_000:
		return far
	}
	return now + tick((ttl+999)/1000)
}

// items converts what a reader returned to what its writer takes.
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

// pass returns a memory without the keys that have expired by then.
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

package explore

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend"
)

// A shareStore runs each command twice: by package protocol, and by the script. They must agree about the reply, about
// what is kept, and about which session gets which message. A run that was compared is not compared again.
type shareStore struct {
	t      *testing.T
	redis  *server.Server
	run    func() ([]string, bool)
	job    []string
	peer   *server.Peer
	out    *bytes.Buffer
	in     *bufio.Reader
	now    tick
	said   []string
	known  map[string]struct{}
	script string
	key    string
}

// sharedMemory is what the server has of the name, comparable.
type sharedMemory struct {
	kind    backend.ShareKind
	token   backend.Token
	entries [maxSessions]protocol.Entry
	count   int
}

// A shareCall is a copy of a request, or of a renewal.
type shareCall struct {
	session          int
	req              backend.ShareRequest // without its times
	notAfter, memory tick
	renew            bool
}

func newShareStore(t *testing.T) *shareStore {
	t.Helper()
	s := &shareStore{t: t, out: new(bytes.Buffer), known: map[string]struct{}{}}
	s.overhear()
	redis := miniredis.NewMiniRedis()
	must(redis.Dial())
	s.redis = redis.Server()
	s.peer, s.in = server.NewPeer(bufio.NewWriter(s.out)), bufio.NewReader(s.out)
	s.redis.SetPreHook(s.hear)
	run, stop := iter.Pull(s.drive)
	s.run = run
	s.run()
	t.Cleanup(func() {
		stop()
		redis.Close()
	})
	return s
}

// overhear takes the script's text, and the key that it writes to, from the backend.
func (s *shareStore) overhear() {
	redis, p := miniredis.RunT(s.t), &tap{texts: map[string]string{}}
	redis.Server().SetPreHook(p.hear)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis.Addr()}, DisableCache: true, ForceSingleClient: true})
	require.NoError(s.t, err)
	defer client.Close()
	b, err := redisbackend.New(client)
	require.NoError(s.t, err)
	conn, err := b.Connect(s.t.Context(), "a", deaf{})
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close()) }()
	lock, err := conn.Bind(lockName)
	require.NoError(s.t, err)
	req := backend.ShareRequest{Kind: backend.ReadWrite, Epoch: 3, Want: backend.AllUnits, Least: backend.AllUnits, Limit: backend.AllUnits,
		Tokens: 2, Lease: time.Second, GrantTTL: 2 * time.Second, Patience: 3 * time.Second, Seen: 5,
		NotAfter: time.Now().Add(time.Minute), Memory: time.Now().Add(2 * time.Minute)}
	p.take() // what Connect sent
	_, err = lock.(backend.Sharer).Share(s.t.Context(), req)
	require.NoError(s.t, err)
	text, sent := p.take()
	require.Equal(s.t, lockName, sent[0])
	s.script, s.key = text, sent[1]
	want := s.arguments(shareCall{session: 0, req: req})
	got := slices.Clone(sent[2:])
	got[14], want[14], got[15], want[15] = "", "", "", "" // the times after which it is refused and forgotten
	require.Equal(s.t, want, got, "the model sends what the backend sends")
}

func (s *shareStore) drive(yield func([]string) bool) {
	must(0, s.redis.Register("EXPLORE", func(c *server.Peer, _ string, args []string) {
		s.peer.Ctx = c.Ctx
		if !yield(args) {
			c.WriteNull()
			return
		}
		c.WriteStrings(s.job)
	}))
	s.redis.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"EVAL", driver, "0", s.script})
}

func (s *shareStore) hear(c *server.Peer, cmd string, args ...string) bool {
	switch cmd {
	case "TIME":
		micros := s.now.micros()
		c.WriteStrings([]string{strconv.FormatInt(micros/1e6, 10), strconv.FormatInt(micros%1e6, 10)})
	case "PUBLISH":
		s.said = append(s.said, strings.TrimPrefix(args[0], channels)+" "+args[1])
		c.WriteInt(1)
	default:
		return false
	}
	return true
}

func (s *shareStore) do(command ...string) any {
	s.redis.Dispatch(s.peer, command)
	s.peer.Flush()
	return must(server.ParseReply(s.in))
}

func (s *shareStore) arguments(c shareCall) []string {
	kind := "r"
	if c.req.Kind == backend.Permits {
		kind = "p"
	}
	args := []string{sessionName(uint8(c.session)), strconv.FormatUint(c.req.Epoch, 10), kind}
	for _, n := range []uint64{uint64(c.req.Keep), uint64(c.req.Want), uint64(c.req.Least), uint64(c.req.Limit), uint64(c.req.Under),
		uint64(c.req.Tail), uint64(c.req.Tokens), uint64(c.req.Seen), uint64(c.req.Lease.Milliseconds()), uint64(c.req.GrantTTL.Milliseconds()),
		uint64(c.req.Patience.Milliseconds()), uint64(c.notAfter.micros()), uint64(c.memory.micros())} {
		args = append(args, strconv.FormatUint(n, 10))
	}
	return append(args, channels, keep)
}

func instantOf(t tick) protocol.Instant { return time.Duration(t.micros()) * time.Microsecond }

// shared returns the server that has a memory.
func (m *sharedMemory) shared(tell func(string, protocol.Message)) *protocol.Shared {
	return &protocol.Shared{Name: lockName, Kind: m.kind, Token: m.token, Entries: slices.Clone(m.entries[:m.count]),
		Expires: 1 << 62, Keep: 300 * time.Second, Publish: tell}
}

// memoryOf returns the memory of a server. The entries stand in the order of their sessions, as miniredis has them.
func memoryOf(s *protocol.Shared) (m sharedMemory) {
	m.kind, m.token, m.count = s.Kind, s.Token, len(s.Entries)
	copy(m.entries[:], s.Entries)
	slices.SortFunc(m.entries[:m.count], func(a, b protocol.Entry) int { return strings.Compare(a.Session, b.Session) })
	return m
}

// exec carries out a command that reaches the server. It returns the reply, the messages and what the server then has. bad says how the two
// servers disagree.
func (s *shareStore) exec(m sharedMemory, now tick, c shareCall) (after sharedMemory, reply backend.ShareReply, told []shareItem, bad string) {
	var said []string
	sh := m.shared(func(to string, msg protocol.Message) {
		it := shareItem{kind: shareWanted, session: int(to[0] - 'a'), reply: backend.ShareReply{May: msg.May}}
		text := fmt.Sprintf("%s x %d %s", to, msg.May, lockName)
		if msg.Kind == protocol.SharedGrant {
			it.kind, it.until = sharePush, now+tick(msg.TTL/time.Second)
			it.reply = backend.ShareReply{Epoch: msg.Epoch, Units: msg.Units, First: msg.First, Last: msg.Last, May: msg.May}
			text = fmt.Sprintf("%s h %d %d %d %d %d %d %d %s", to, msg.Epoch, msg.Units, msg.First, msg.Last, msg.May,
				(msg.At + msg.TTL).Microseconds(), msg.At.Microseconds(), lockName)
		}
		told, said = append(told, it), append(said, text)
	})
	name := sessionName(uint8(c.session))
	if c.renew {
		reply.Units = sh.Renew(instantOf(now), name, c.req.Epoch, c.req.Under, c.req.Lease)
		return memoryOf(sh), reply, nil, ""
	}
	reply, err := sh.Share(instantOf(now), name, c.req, instantOf(c.notAfter), instantOf(c.memory))
	if err != nil { // late: nothing was touched
		return m, backend.ShareReply{}, nil, ""
	}
	after = memoryOf(sh)
	key := fmt.Sprintf("%v %d %+v", m, now, c)
	if _, ok := s.known[key]; !ok {
		s.known[key] = struct{}{}
		bad = s.compare(m, now, c, after, reply, said)
	}
	return after, reply, told, bad
}

// entryText returns an entry as the script writes it.
func entryText(e protocol.Entry) string {
	p := e.Place
	return fmt.Sprintf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d", e.Epoch, e.Units, e.Until.Microseconds(), e.Memory.Microseconds(), e.First,
		e.Under, e.Limit, p.Order, p.Want, p.Least, p.Deadline.Microseconds(), p.TTL.Milliseconds(), p.Tokens, p.Seen)
}

// hash returns a memory as the script keeps it.
func (m *sharedMemory) hash() (pairs []string) {
	letters := map[backend.ShareKind]string{backend.ReadWrite: "r", backend.Permits: "p"}
	if m.kind != 0 {
		pairs = append(pairs, "=", fmt.Sprintf("%s %d", letters[m.kind], m.token))
	}
	for _, e := range m.entries[:m.count] {
		pairs = append(pairs, e.Session, entryText(e))
	}
	return pairs
}

// compare runs the script, and returns how it differs.
func (s *shareStore) compare(m sharedMemory, now tick, c shareCall, after sharedMemory, reply backend.ShareReply, said []string) string {
	s.do("DEL", s.key)
	if before := m.hash(); len(before) > 0 {
		s.do(append([]string{"HSET", s.key}, before...)...)
		s.do("EXPIRE", s.key, keep)
	}
	s.now, s.said = now, nil
	s.job = slices.Concat([]string{"1", "2", lockName, s.key}, s.arguments(c))
	answer, _ := s.run()
	codes := map[backend.ShareStatus]int{backend.Shared: 1, backend.StaleShare: 2, backend.ShareLost: 3}
	placed := 0
	if reply.Placed {
		placed = 1
	}
	want := fmt.Sprint("ok ", codes[reply.Status], " ", now.micros(), " ", reply.Units, " ", placed, " ", reply.First, " ", reply.Last, " ", reply.May,
		" ", reply.Share, " ", reply.Epoch)
	if got := strings.Join(answer, " "); got != want {
		return fmt.Sprintf("the script answers %s, package protocol %s", got, want)
	}
	var hash []string
	for _, x := range s.do("HGETALL", s.key).([]any) {
		hash = append(hash, x.(string))
	}
	slices.SortFunc(said, strings.Compare)
	slices.SortFunc(s.said, strings.Compare)
	got, want := fmt.Sprint(sortedPairs(hash), s.said), fmt.Sprint(sortedPairs(after.hash()), said)
	if got != want {
		return fmt.Sprintf("the script leaves and says\n%s\npackage protocol\n%s", got, want)
	}
	if ttl := s.do("PTTL", s.key).(int); ttl < 300_000 && len(hash) > 0 {
		return fmt.Sprintf("the key is kept for %d ms", ttl)
	}
	return ""
}

func sortedPairs(items []string) [][]string {
	pairs := slices.Collect(slices.Chunk(slices.Clone(items), 2))
	slices.SortFunc(pairs, slices.Compare)
	return pairs
}

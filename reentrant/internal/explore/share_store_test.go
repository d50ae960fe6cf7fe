package explore

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
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

// A shareStore runs each command twice, by package protocol and by the script. Both must agree on the reply, on what is
// kept, and on which session gets which message. The next command finds what the script has left. A pair of runs is
// compared only once.
type shareStore struct {
	t     *testing.T
	redis *server.Server
	run   func() ([]string, bool)
	job   []string
	peer  *server.Peer
	out   *bytes.Buffer
	in    *bufio.Reader
	now   tick
	said  []string
	texts [runForce]string
	key   string
	queue string // the key of a Lock's queue
	known map[shareRun]shareResult
	ids   map[string]*sharedMemory
}

// The number of each script: share.lua, share_renew.lua and share_force.lua.
const (
	runShare = iota + 1
	runRenew
	runForce
)

// sharedKeep is the least number of seconds for which the scripts keep a record.
const sharedKeep = 10

// A sharedMemory is what Redis stores for the name. Equal memories are the same *sharedMemory.
type sharedMemory struct {
	fields  map[string]string
	expires tick
	shared  protocol.Shared  // the parsed fields; summary is without its last two numbers
	summary protocol.Summary // totals computed from all entries
}

// A shareCall is a copy of a request, or of a renewal, or a command that takes the units of all sessions.
type shareCall struct {
	session          int
	req              backend.ShareRequest // without the times in it
	notAfter, memory tick
	renew, force     bool
}

func (c *shareCall) script() int {
	switch {
	case c.renew:
		return runRenew
	case c.force:
		return runForce
	}
	return runShare
}

// A shareRun is a call that reaches Redis at a certain time.
type shareRun struct {
	memory *sharedMemory
	now    tick
	call   shareCall
}

// A shareResult is the result of a run. bad says how the two servers disagree, or what is wrong with what the script
// has stored.
type shareResult struct {
	after *sharedMemory
	reply backend.ShareReply
	told  []shareItem
	bad   string
}

func newShareStore(t *testing.T) *shareStore {
	t.Helper()
	s := &shareStore{t: t, out: new(bytes.Buffer), known: map[shareRun]shareResult{}, ids: map[string]*sharedMemory{}}
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

// overhear records the scripts' texts, and the key that they write to, as the backend sends them.
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
		Tokens: 2, Lease: time.Second, GrantTTL: 2 * time.Second, Patience: 3 * time.Second, Seen: 5, Try: true, Answer: 6,
		NotAfter: time.Now().Add(time.Minute), Memory: time.Now().Add(2 * time.Minute)}
	p.take() // Connect's own commands
	_, err = lock.(backend.Sharer).Share(s.t.Context(), req)
	require.NoError(s.t, err)
	text, sent := p.take()
	require.Equal(s.t, lockName, sent[1])
	s.texts[0], s.key, s.queue = text, sent[0], sent[2]
	want := s.arguments(shareCall{session: 0, req: req})
	got := slices.Clone(sent[3:])
	got[14], want[14], got[15], want[15] = "", "", "", "" // the times after which the request is refused, and the session forgotten
	require.Equal(s.t, want, got, "the model sends what the backend sends")
	req.Keep, req.Under = 1, 8
	conn.Renew(s.t.Context(), []backend.Renewal{{Remote: lock, Epoch: req.Epoch, Under: req.Under, Lease: req.Lease}})
	s.texts[1], sent = p.take()
	require.Equal(s.t, append(s.keys(shareCall{renew: true}), s.arguments(shareCall{req: req, renew: true})...), sent)
	_, err = lock.(backend.Sharer).ForceShared(s.t.Context(), req.Kind, req.NotAfter)
	require.NoError(s.t, err)
	s.texts[2], sent = p.take()
	want = append(s.keys(shareCall{force: true}), s.arguments(shareCall{req: req, force: true})...)
	want[len(want)-1] = sent[len(sent)-1] // the time after which the renewal is refused
	require.Equal(s.t, want, sent)
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
	s.redis.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), append([]string{"EVAL", driver, "0"}, s.texts[:]...))
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

// keys returns the keys of a call: the record, and also the hold key and the queue if the session has nothing yet.
func (s *shareStore) keys(c shareCall) []string {
	switch {
	case c.force:
		return []string{lockName, s.key}
	case !c.renew && c.req.Keep == 0 && c.req.Want > 0:
		return []string{s.key, lockName, s.queue}
	}
	return []string{s.key}
}

func (s *shareStore) arguments(c shareCall) []string {
	name, req := sessionName(uint8(c.session)), c.req
	switch {
	case c.force:
		return []string{kindLetters[req.Kind], channels, strconv.Itoa(sharedKeep), "9000000000000000"}
	case c.renew:
		return []string{name, fmt.Sprint(req.Epoch), fmt.Sprint(req.Under), fmt.Sprint(req.Lease.Milliseconds()), strconv.Itoa(sharedKeep)}
	}
	args := []string{name, strconv.FormatUint(req.Epoch, 10), kindLetters[req.Kind]}
	for _, n := range []uint64{uint64(req.Keep), uint64(req.Want), uint64(req.Least), uint64(req.Limit), uint64(req.Under),
		uint64(req.Tail), uint64(req.Tokens), uint64(req.Seen), uint64(req.Lease.Milliseconds()), uint64(req.GrantTTL.Milliseconds()),
		uint64(req.Patience.Milliseconds()), uint64(c.notAfter.micros()), uint64(c.memory.micros())} {
		args = append(args, strconv.FormatUint(n, 10))
	}
	return append(args, channels, strconv.Itoa(sharedKeep), lockName, strconv.Itoa(btoi(req.Try)), strconv.FormatUint(req.Answer, 10))
}

var kindLetters = map[backend.ShareKind]string{backend.ReadWrite: "r", backend.Permits: "p"}

func instantOf(t tick) protocol.Instant { return time.Duration(t.micros()) * time.Microsecond }

// pass returns what is left of a memory at a later time.
func (s *shareStore) pass(m *sharedMemory, now tick) *sharedMemory {
	if m.expires > now {
		return m
	}
	return s.intern(nil, 0)
}

// intern returns the only memory with the given fields.
func (s *shareStore) intern(fields map[string]string, expires tick) *sharedMemory {
	var text strings.Builder
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&text, "%s\x00%s\x00", f, fields[f])
	}
	text.WriteByte(byte(expires))
	m := s.ids[text.String()]
	if m == nil {
		m = &sharedMemory{fields: fields, expires: expires}
		m.read()
		s.ids[text.String()] = m
	}
	return m
}

// exec carries out a call that reaches the server.
func (s *shareStore) exec(m *sharedMemory, now tick, c shareCall) shareResult {
	run := shareRun{m, now, c}
	res, ok := s.known[run]
	if !ok {
		res = s.both(m, now, c)
		s.known[run] = res
	}
	return res
}

// both runs a call by package protocol and by the script, and compares them.
func (s *shareStore) both(m *sharedMemory, now tick, c shareCall) (res shareResult) {
	sh, said := m.shared, []string(nil)
	sh.Name, sh.Keep, sh.Entries, sh.Expires = lockName, sharedKeep*second, slices.Clone(sh.Entries), instantOf(m.expires)
	sh.Publish = func(to string, msg protocol.Message) {
		it, text := itemOf(to, msg, now)
		res.told, said = append(res.told, it), append(said, text)
	}
	name, want := sessionName(uint8(c.session)), ""
	switch {
	case c.force:
		had := must(sh.Force(instantOf(now), math.MaxInt64, c.req.Kind))
		name, want = "", fmt.Sprint("ok ", btoi(had), " ", now.micros())
		if !had { // the script then writes nothing
			sh = m.shared
		}
	case c.renew:
		res.reply.Units = sh.Renew(instantOf(now), name, c.req.Epoch, c.req.Under, c.req.Lease)
		want = fmt.Sprint("ok ", now.micros(), " ", res.reply.Units)
	default:
		reply, err := sh.Share(instantOf(now), name, c.req, instantOf(c.notAfter), instantOf(c.memory))
		if res.reply = reply; err != nil {
			sh = m.shared
		}
		want = replyText(reply, err, now)
	}
	got := s.script(m, now, c)
	var left map[string]string
	left, res.after = s.save(now)
	slices.Sort(said)
	slices.Sort(s.said)
	switch {
	case got != want:
		res.bad = fmt.Sprintf("the script returns %s, package protocol %s", got, want)
	case !slices.Equal(s.said, said):
		res.bad = fmt.Sprintf("the script sends\n%s\npackage protocol\n%s", strings.Join(s.said, "\n"), strings.Join(said, "\n"))
	default:
		res.bad = res.after.agrees(left, &sh, now, name)
	}
	if res.bad == "" && res.after != m {
		res.bad = res.after.sound()
	}
	if res.bad == "" && res.after != m && !c.renew && res.after.summary.Soonest < instantOf(now) {
		res.bad = "the next run has to look at all entries again"
	}
	return res
}

// itemOf formats a message in the same way for the world and for the script.
func itemOf(to string, msg protocol.Message, now tick) (it shareItem, text string) {
	it = shareItem{kind: shareWanted, sent: now, session: int(to[0] - 'a'), try: msg.Try, reply: backend.ShareReply{May: msg.May}}
	if msg.Kind != protocol.SharedGrant {
		return it, fmt.Sprintf("%s x %d %d %s", to, msg.May, msg.Try, lockName)
	}
	it.kind, it.sent, it.ttl = sharePush, tickAt(msg.At), msg.TTL
	it.reply = backend.ShareReply{Epoch: msg.Epoch, Units: msg.Units, First: msg.First, Last: msg.Last, May: msg.May}
	return it, fmt.Sprintf("%s h %d %d %d %d %d %d %d %s", to, msg.Epoch, msg.Units, msg.First, msg.Last, msg.May,
		(msg.At + msg.TTL).Microseconds(), msg.At.Microseconds(), lockName)
}

// replyText formats a reply as share.lua returns it.
func replyText(r backend.ShareReply, err error, now tick) string {
	code := map[backend.ShareStatus]int{backend.Shared: 1, backend.StaleShare: 2, backend.ShareLost: 3}[r.Status]
	if err != nil {
		code = 4 // the request was late
	}
	return fmt.Sprint("ok ", code, " ", now.micros(), " ", r.Units, " ", btoi(r.Placed), " ", r.First, " ", r.Last, " ", r.May, " ", r.Share, " ", r.Epoch, " ", r.Try)
}

// script runs the script on a memory, and returns its reply.
func (s *shareStore) script(m *sharedMemory, now tick, c shareCall) string {
	s.do("DEL", s.key)
	if len(m.fields) > 0 {
		command := []string{"HSET", s.key}
		for f, text := range m.fields {
			command = append(command, f, text)
		}
		s.do(command...)
		s.do("EXPIRE", s.key, strconv.Itoa(int(m.expires-now)))
	}
	s.now, s.said = now, nil
	keys := s.keys(c)
	s.job = slices.Concat([]string{strconv.Itoa(c.script()), strconv.Itoa(len(keys))}, keys, s.arguments(c))
	answer, _ := s.run()
	return strings.Join(answer, " ")
}

// save returns the fields that Redis has, and the same fields as a memory: without the times at which units were granted,
// since no rule asks for them.
func (s *shareStore) save(now tick) (left map[string]string, m *sharedMemory) {
	fields := map[string]string{}
	for p := range slices.Chunk(s.do("HGETALL", s.key).([]any), 2) {
		fields[p[0].(string)] = p[1].(string)
	}
	if len(fields) == 0 {
		return nil, s.intern(nil, 0)
	}
	left = maps.Clone(fields)
	for f, text := range fields {
		if f != "=" && f[0] != '#' {
			fields[f] = text[:strings.LastIndexByte(text, ' ')] + " 0"
		}
	}
	return left, s.intern(fields, expiry(now, s.do("PTTL", s.key).(int)))
}

// read parses the fields.
func (m *sharedMemory) read() {
	if m.fields == nil {
		return
	}
	letter, rest, _ := strings.Cut(m.fields["="], " ")
	for kind, l := range kindLetters {
		if l == letter {
			m.shared.Kind = kind
		}
	}
	n := parseInts(rest)
	m.shared.Token, m.shared.Last, m.shared.Told = backend.Token(n[0]), uint64(n[6]), int(n[7])
	m.summary = protocol.Summary{Units: int(n[1]), Holders: int(n[2]), Sessions: int(n[3]), Soonest: instantAt(n[4]), First: uint64(n[5])}
	for _, f := range slices.Sorted(maps.Keys(m.fields)) {
		if f != "=" && f[0] != '#' {
			m.shared.Entries = append(m.shared.Entries, parseShare(f, parseInts(m.fields[f])))
		}
	}
}

// String formats the fields, the summary first.
func (m *sharedMemory) String() string {
	var b strings.Builder
	for _, f := range slices.Sorted(maps.Keys(m.fields)) {
		fmt.Fprintf(&b, "%s: %s | ", f, strings.ReplaceAll(m.fields[f], strconv.Itoa(epoch/1_000_000), "t"))
	}
	return b.String()
}

// tickAt is the tick of a moment at the server.
func tickAt(i protocol.Instant) tick {
	return tick((i.Microseconds() - tick(0).micros()) / second.Microseconds())
}

func instantAt(micros int64) protocol.Instant { return time.Duration(micros) * time.Microsecond }

func parseInts(text string) (n []int64) {
	for _, word := range strings.Fields(text) {
		n = append(n, must(strconv.ParseInt(word, 10, 64)))
	}
	return n
}

// parseShare parses an entry that the script has written.
func parseShare(session string, n []int64) protocol.Entry {
	return protocol.Entry{
		Session: session, Epoch: uint64(n[0]), Units: int(n[1]), Until: instantAt(n[2]), Memory: instantAt(n[3]),
		First: backend.Token(n[4]), Under: backend.Token(n[5]), Limit: int(n[6]), Asked: uint64(n[16]), Got: instantAt(n[17]),
		Place: protocol.Place{Order: uint64(n[7]), Want: int(n[8]), Least: int(n[9]), Deadline: instantAt(n[10]),
			TTL: time.Duration(n[11]) * time.Millisecond, Tokens: int(n[12]), Seen: backend.Token(n[13]), Since: instantAt(n[14]), Try: n[15] >= 0},
	}
}

// entryText formats an entry as the script writes it.
func entryText(s *protocol.Shared, e *protocol.Entry) string {
	p, pending := e.Place, -1
	if p.Try {
		pending = s.Pending(e)
	}
	return fmt.Sprint(e.Epoch, e.Units, e.Until.Microseconds(), e.Memory.Microseconds(), e.First, e.Under, e.Limit, p.Order, p.Want, p.Least,
		p.Deadline.Microseconds(), p.TTL.Milliseconds(), p.Tokens, p.Seen, p.Since.Microseconds(), pending, e.Asked, e.Got.Microseconds())
}

// agrees returns how a memory, of which the script has left these fields, differs from that of package protocol after the
// same call, "" if it does not. For a while the script may keep empty entries that package protocol has already deleted.
func (m *sharedMemory) agrees(left map[string]string, s *protocol.Shared, now tick, caller string) string {
	for i := range s.Entries {
		e := &s.Entries[i]
		if want := entryText(s, e); left[e.Session] != want {
			return fmt.Sprintf("the script leaves %s: %s\npackage protocol %s", e.Session, left[e.Session], want)
		}
		delete(left, e.Session)
	}
	for _, e := range m.shared.Entries {
		if _, ok := left[e.Session]; ok && (e.Units > 0 || e.Place.Order > 0 || instantOf(now) <= e.Memory || e.Session == caller) {
			return fmt.Sprintf("the script leaves %s: %s\npackage protocol nothing", e.Session, m.fields[e.Session])
		}
	}
	got := fmt.Sprint(m.shared.Kind, m.shared.Token, m.shared.Last, m.shared.Told)
	if want := fmt.Sprint(s.Kind, s.Token, s.Last, s.Told); got != want {
		return fmt.Sprintf("the script leaves kind, token, last and told %s, package protocol %s", got, want)
	}
	if late := s.Expires - instantOf(m.expires); late > time.Millisecond {
		return fmt.Sprintf("the script keeps the record for %v less than package protocol", late)
	}
	return ""
}

// sound returns what is wrong with the record's summary, compared with its own entries, after a run.
func (m *sharedMemory) sound() string {
	is, says := m.shared.Summary(), m.summary
	switch {
	case is.Units != says.Units || is.Holders != says.Holders || is.Sessions != says.Sessions:
		return fmt.Sprintf("the summary has the totals %+v, the entries %+v", says, is)
	case says.Soonest > is.Soonest:
		return fmt.Sprintf("an entry ends at %v, but the summary says that none does before %v", is.Soonest, says.Soonest)
	case says.First > is.First:
		return fmt.Sprintf("the head has place %d, but the summary says that the first is %d", is.First, says.First)
	}
	places := 0
	for _, e := range m.shared.Entries {
		if o := e.Place.Order; o > 0 {
			places++
			if at := m.fields["#"+strconv.FormatUint(o, 10)]; at != e.Session || o > m.shared.Last {
				return fmt.Sprintf("%s has place %d of %d, which is %s's", e.Session, o, m.shared.Last, at)
			}
		}
	}
	if extra := len(m.fields) - 1 - len(m.shared.Entries) - places; extra > 0 {
		return fmt.Sprintf("there are %d places too many", extra)
	}
	return ""
}

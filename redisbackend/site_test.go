package redisbackend_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// A site is one lock on one server, and the sessions that a test opens there.
type site struct {
	*testing.T
	client rueidis.Client
	b      *redisbackend.Backend
	name   string
	began  time.Time // the time at which it was opened, for assertFull
}

// each runs a test on the embedded Redis and on a real one, in parallel with other tests. Each run has a server of its own.
// Where a real Redis is installed, the test runs only on that, unless RELOCK_TOPOLOGIES=1 asks for both.
func each(t *testing.T, test func(*testing.T, *site)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		onlyWithoutAServer(t)
		test(t, embedded(t))
	})
	t.Run("redis", func(t *testing.T) { test(t, realRedis(t)) })
}

func embedded(t *testing.T) *site {
	option := redistest.Start(t).ClientOption()
	option.ConnWriteTimeout, option.Dialer.Timeout = limit, limit // as those of connect
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	return &site{T: t, client: client, b: b, name: "lock", began: time.Now()}
}

func realRedis(t *testing.T, options ...string) *site {
	server := redisserver.Start(t, options...)
	client := connect(t, server.Addr())
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	return &site{T: t, client: client, b: b, name: "lock", began: time.Now()}
}

// smallRing and smallBuffer are sizes of a connection's ring of commands and of its buffers that are enough for a test. Larger
// ones would be most of what a new connection costs a process, and a test makes many connections.
const smallRing, smallBuffer = 6, 1 << 12

// connect makes a client that is closed at the end of the test. The client waits for replies longer than the machine may stand
// still.
func connect(t testing.TB, addr string, change ...func(*rueidis.ClientOption)) rueidis.Client {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, PipelineMultiplex: -1, RingScaleEachConn: smallRing,
		ReadBufferEachConn: smallBuffer, WriteBufferEachConn: smallBuffer, ConnWriteTimeout: limit}
	option.Dialer.Timeout = limit
	for _, f := range change {
		f(&option)
	}
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// A member is a session at the site.
type member struct {
	*site
	id      string
	conn    backend.Conn
	remote  backend.Remote
	grants  chan backend.Grant
	signals chan signal
	wanted  chan uint64
	taken   chan uint64
	resumed chan struct{}
}

type signal struct {
	ticket uint64
	placed bool
}

func newMember() *member {
	return &member{grants: make(chan backend.Grant, 1000), signals: make(chan signal, 100), wanted: make(chan uint64, 100), taken: make(chan uint64, 100), resumed: make(chan struct{}, 100)}
}

func (m *member) Granted(g backend.Grant)                        { m.grants <- g }
func (m *member) Signalled(_ string, ticket uint64, placed bool) { m.signals <- signal{ticket, placed} }
func (m *member) Wanted(_ string, epoch uint64)                  { m.wanted <- epoch }
func (m *member) Taken(_ string, epoch uint64)                   { m.taken <- epoch }

// A session may call its Sink on every connection, and most tests never read the messages. A Sink must not block, so the
// channels are large.
func (m *member) Reconnected() {
	select {
	case m.resumed <- struct{}{}:
	default:
	}
}

// join opens a session.
func (s *site) join(id string) *member { return s.joinVia(s.b, id) }

// withoutScripts gives the site a backend that runs no scripts.
func (s *site) withoutScripts() *site {
	s.Helper()
	b, err := redisbackend.New(s.client, redisbackend.WithoutScripts())
	require.NoError(s, err)
	return &site{T: s.T, name: s.name, client: s.client, b: b}
}

func (s *site) joinVia(b *redisbackend.Backend, id string) *member {
	s.Helper()
	m := newMember()
	m.site, m.id = s, id
	var err error
	m.conn, err = b.Connect(s.ctx(), id, m)
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, m.conn.Close()) })
	m.remote = m.bind(s.name)
	return m
}

// conditions returns the verbs of the lock's conditions.
func (m *member) conditions() backend.Conditions { return m.remote.(backend.Conditions) }

func (m *member) bind(name string) backend.Remote {
	m.Helper()
	remote, err := m.conn.Bind(name)
	require.NoError(m, err)
	return remote
}

// ctx returns a context for one command.
func (s *site) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	s.Cleanup(cancel)
	return ctx
}

// These times are so long that none of them passes while a test runs, however busy the machine is. A test can end them by lapse
// or impatient.
const (
	lease    = 2 * time.Minute
	grantTTL = 40 * time.Second
	patience = time.Minute
)

// brief is the field keep in the record of a lock for which no session waits: twice the lease, in seconds.
const brief = "240"

// request makes an ordinary attempt, with as much time to arrive as a command may take.
func request(epoch uint64, change ...func(*backend.AcquireRequest)) backend.AcquireRequest {
	req := backend.AcquireRequest{Epoch: epoch, Owner: "1", Holds: 1, Lease: lease, NotAfter: time.Now().Add(limit),
		Tokens: 1, Patience: patience, GrantTTL: grantTTL}
	for _, f := range change {
		f(&req)
	}
	return req
}

func queue(r *backend.AcquireRequest) { r.Queue = true }
func barge(r *backend.AcquireRequest) { r.Barge = true }
func yield(r *backend.AcquireRequest) { r.Yield, r.Queue = true, true }
func fixed(r *backend.AcquireRequest) { r.Fixed = true }
func keep(r *backend.AcquireRequest)  { r.KeepTTL = true }

// impatient makes a waiter's patience end at once.
func impatient(r *backend.AcquireRequest) { r.Patience = 10 * time.Millisecond }

func owned(owner string) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Owner = owner }
}

func (m *member) acquire(epoch uint64, change ...func(*backend.AcquireRequest)) backend.AcquireReply {
	m.Helper()
	reply, err := m.remote.Acquire(m.ctx(), request(epoch, change...))
	require.NoError(m, err)
	return reply
}

// take acquires the lock, which must succeed, and returns its token.
func (m *member) take(epoch uint64, change ...func(*backend.AcquireRequest)) backend.Token {
	m.Helper()
	reply := m.acquire(epoch, change...)
	require.Equal(m, backend.Granted, reply.Status)
	return reply.First
}

// wait joins the queue of waiters.
func (m *member) wait(epoch uint64, change ...func(*backend.AcquireRequest)) {
	m.Helper()
	reply := m.acquire(epoch, append(change, queue)...)
	require.Equal(m, backend.Waiting, reply.Status)
}

func (m *member) reenter(epoch, op uint64, holds int, lease time.Duration) backend.ReenterReply {
	m.Helper()
	reply, err := m.remote.Reenter(m.ctx(), backend.ReenterRequest{Epoch: epoch, Owner: "1", Op: op, Holds: holds, Lease: lease})
	require.NoError(m, err)
	return reply
}

func (m *member) release(epoch uint64, change ...func(*backend.ReleaseRequest)) backend.ReleaseResult {
	m.Helper()
	req := backend.ReleaseRequest{Epoch: epoch}
	for _, f := range change {
		f(&req)
	}
	result, err := m.remote.Release(m.ctx(), req)
	require.NoError(m, err)
	return result
}

// doubtfulFor says that a copy of the attempt may still arrive for d.
func doubtfulFor(d time.Duration) func(*backend.ReleaseRequest) {
	return func(r *backend.ReleaseRequest) { r.Until = time.Now().Add(d) }
}

// renews sends one renewal, and reports whether the hold was renewed.
func (m *member) renews(epoch uint64, lease time.Duration) bool {
	m.Helper()
	one := []backend.Renewal{{Remote: m.remote, Epoch: epoch, Lease: lease}}
	m.conn.Renew(m.ctx(), one)
	require.NoError(m, one[0].Err)
	return !one[0].Gone
}

func (m *member) inspect() backend.State {
	m.Helper()
	state, err := m.remote.Inspect(m.ctx())
	require.NoError(m, err)
	return state
}

// granted waits for the message that grants the lock to this session.
func (m *member) granted() backend.Grant {
	m.Helper()
	select {
	case g := <-m.grants:
		return g
	case <-time.After(silence):
		require.FailNow(m, "no grant arrived", "session %s", m.id)
		return backend.Grant{}
	}
}

// silence is how long a test waits before it fails, like limit.
var silence = testsize.Patience(limit)

// eventually waits for a condition.
func (s *site) eventually(condition func() bool, what string) {
	s.Helper()
	require.Eventually(s, condition, silence, 2*time.Millisecond, what)
}

// The functions below use plain commands to read what the server has.

func (s *site) do(words ...string) rueidis.RedisResult {
	return s.client.Do(s.ctx(), s.client.B().Arbitrary(words...).Build())
}

func (s *site) run(words ...string) {
	s.Helper()
	require.NoError(s, s.do(words...).Error())
}

func (s *site) side(kind string) string { return "relock:{" + s.name + "}:" + kind + ":" + s.name }

// hash returns the hold's hash as "field=holds", or "" if the lock is free.
func (s *site) hash() string {
	s.Helper()
	pairs, err := s.do("HGETALL", s.name).AsStrMap()
	require.NoError(s, err)
	var text strings.Builder
	for field, holds := range pairs {
		text.WriteString(field + "=" + holds)
	}
	return text.String()
}

func (s *site) ttl() time.Duration {
	s.Helper()
	n, err := s.do("PTTL", s.name).ToInt64()
	require.NoError(s, err)
	return time.Duration(n) * time.Millisecond
}

// record returns the fields of the record: first, last, session, epoch, op, state, keep, tombstones….
func (s *site) record() []string {
	s.Helper()
	text, err := s.do("GET", s.side("t")).ToString()
	require.NoError(s, err)
	return strings.Split(text, " ")
}

// queued returns the sessions in the queue, whether their places are dead or alive.
func (s *site) queued() []string {
	s.Helper()
	sessions, err := s.do("LRANGE", s.side("q"), "0", "-1").AsStrSlice()
	require.NoError(s, err)
	return sessions
}

// shorten halves what is left of the holder's lease, so that it differs from a full lease.
func (s *site) shorten() {
	s.Helper()
	s.run("PEXPIRE", s.name, text((lease / 2).Milliseconds()))
}

// assertFull asserts that a TTL is a full one: except for the time for which the test has run, at most a second is missing.
func (s *site) assertFull(want, got time.Duration, why ...any) {
	s.Helper()
	require.False(s, s.began.IsZero())
	assert.Greater(s, got, want-time.Second-time.Since(s.began), why...)
	assert.LessOrEqual(s, got, want, why...)
}

// assertShort asserts that the lease is still the one to which shorten has cut it.
func (s *site) assertShort(why ...any) {
	s.Helper()
	assert.Positive(s, s.ttl(), why...)
	assert.LessOrEqual(s, s.ttl(), lease/2, why...)
}

// lapse ends the holder's lease now.
func (s *site) lapse() {
	s.Helper()
	s.run("PEXPIRE", s.name, "1")
	s.eventually(func() bool { return s.hash() == "" }, "the lease ends")
}

// settle ends the doubt about a session's attempt now, so that no copy of the attempt can arrive later. The record must have
// this one tombstone only.
func (s *site) settle(session string, epoch int64) {
	s.Helper()
	words := s.record()
	require.Len(s, words, 8)
	words[7] = session + ":" + text(epoch) + ":" + text(s.clock()-1)
	s.run("SET", s.side("t"), strings.Join(words, " "), "KEEPTTL")
}

// stuck waits until the session's place is dead, because the place's deadline has passed by Redis's clock. The place must have
// been taken with impatient.
func (s *site) stuck(session string) {
	s.Helper()
	s.eventually(func() bool {
		raw, err := s.do("HGET", s.side("w"), session).ToString()
		require.NoError(s, err)
		return s.clock() > number(s, strings.Fields(raw)[1])
	}, "the place's deadline passes")
}

// clock returns the time of Redis's clock, in µs.
func (s *site) clock() int64 {
	s.Helper()
	t, err := s.do("TIME").AsStrSlice()
	require.NoError(s, err)
	return number(s, t[0])*1e6 + number(s, t[1])
}

func number(t require.TestingT, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// unique returns a name that no other test uses.
func unique(what string) string { return fmt.Sprintf("%s-%s", what, rand.Text()) }

func newBackend(client rueidis.Client, prefix string) (*redisbackend.Backend, error) {
	return redisbackend.New(client, redisbackend.WithPrefix(prefix))
}

// scriptCalls returns how many scripts a server has run.
func scriptCalls(s *site) int {
	s.Helper()
	info, err := s.do("INFO", "commandstats").ToString()
	require.NoError(s, err)
	return countScripts(s, info)
}

func countScripts(t require.TestingT, info string) int {
	calls := 0
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_eval"); ok {
			_, count, _ := strings.Cut(rest, "calls=")
			count, _, _ = strings.Cut(count, ",")
			calls += int(number(t, count))
		}
	}
	return calls
}

// connections returns the ids of a server's clients: all, or those that CLIENT LIST returns with the given words.
func connections(s *site, words ...string) []string {
	s.Helper()
	list, err := s.do(append([]string{"CLIENT", "LIST"}, words...)...).ToString()
	require.NoError(s, err)
	var ids []string
	for line := range strings.Lines(list) {
		// a type may precede the first id, even if there is no client
		if _, id, ok := strings.Cut(line, "id="); ok {
			id, _, _ = strings.Cut(id, " ")
			ids = append(ids, id)
		}
	}
	return ids
}

// everConnected returns how many connections a server has accepted since it was started.
func everConnected(s *site) int64 {
	s.Helper()
	info, err := s.do("INFO", "stats").ToString()
	require.NoError(s, err)
	_, rest, ok := strings.Cut(info, "total_connections_received:")
	require.True(s, ok)
	count, _, _ := strings.Cut(rest, "\r\n")
	return number(s, count)
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

func password(p string) func(*rueidis.ClientOption) {
	return func(o *rueidis.ClientOption) { o.Password = p }
}

package redisbackend_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
)

// These tests count, by Redis's own statistics, the commands that scripts run for a name with many sessions. Times depend on
// the machine, so they are only printed.

// A crowd is many sessions of one name, on a server of its own.
type crowd struct {
	testing.TB
	server  *redisserver.Server
	backend *redisbackend.Backend
	members []*crowdMember
}

// A crowdMember sends the least that a session must send for one name. A reader whose unit another session wants gives the unit
// back, and asks for a new one.
type crowdMember struct {
	remote backend.Remote
	name   string
	limit  int
	kind   backend.ShareKind
	asked  atomic.Bool   // true if the unit is given back when another session wants it
	given  chan struct{} // a grant was received

	mu    sync.Mutex
	epoch uint64
	under backend.Token
	units int
	work  sync.WaitGroup
}

func newCrowd(t testing.TB, kind backend.ShareKind, limit, sessions int) *crowd {
	c := &crowd{TB: t, server: redisserver.Start(t)}
	var err error
	c.backend, err = newBackend(connect(t, c.server.Addr()), "")
	require.NoError(t, err)
	for i := range sessions {
		c.join(fmt.Sprintf("session-%d", i), kind, limit)
	}
	return c
}

func (c *crowd) join(session string, kind backend.ShareKind, limit int) *crowdMember {
	m := &crowdMember{name: "x", kind: kind, limit: limit, given: make(chan struct{}, 1)}
	conn, err := c.backend.Connect(c.Context(), session, m)
	require.NoError(c, err)
	m.remote, err = conn.Bind("x")
	require.NoError(c, err)
	c.Cleanup(func() { m.work.Wait(); _ = conn.Close() })
	c.members = append(c.members, m)
	return m
}

func (*crowdMember) Granted(backend.Grant)          {}
func (*crowdMember) Signalled(string, uint64, bool) {}
func (*crowdMember) Wanted(string, uint64)          {}
func (*crowdMember) Taken(string, uint64)           {}
func (*crowdMember) Reconnected()                   {}

func (m *crowdMember) Shared(g backend.ShareGrant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g.Epoch != m.epoch {
		return
	}
	m.units, m.under = g.Units, g.First
	select {
	case m.given <- struct{}{}:
	default:
	}
}

func (m *crowdMember) SharedWanted(_ string, may int, _ uint64) {
	if may != backend.Unlimited && m.asked.CompareAndSwap(true, false) {
		m.work.Go(func() { _, _ = m.share(0, 1) })
	}
}

// share sends a new request, with what the session keeps and wants from now on.
func (m *crowdMember) share(keep, want int) (backend.ShareReply, error) {
	m.mu.Lock()
	m.epoch++
	m.mu.Unlock()
	return m.beat(keep, want)
}

// beat sends the last request again.
func (m *crowdMember) beat(keep, want int) (backend.ShareReply, error) {
	m.mu.Lock()
	req := backend.ShareRequest{
		Kind: m.kind, Epoch: m.epoch, Keep: keep, Want: want, Least: want, Limit: m.limit, Under: m.under, Tokens: 1,
		Lease: 10 * time.Minute, GrantTTL: 10 * time.Minute, Patience: 10 * time.Minute, NotAfter: time.Now().Add(limit),
	}
	req.Memory = req.NotAfter
	m.mu.Unlock()
	r, err := m.remote.(backend.Sharer).Share(context.Background(), req)
	if err == nil {
		m.mu.Lock()
		m.units, m.under = r.Units, r.First
		m.mu.Unlock()
	}
	return r, err
}

// A bill says how often a server ran each command, and how long its scripts took.
type bill struct {
	calls   map[string]int
	scripts time.Duration
}

func (b bill) published() int { return b.calls["publish"] + b.calls["spublish"] }

func (b bill) commands() (n int) {
	for name, calls := range b.calls {
		switch name {
		case "info", "config|resetstat", "evalsha", "eval", "time":
		default:
			n += calls
		}
	}
	return n
}

var statLine = regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+),usec=(\d+)`)

// measure returns the server's bill for f.
func (c *crowd) measure(f func()) bill {
	c.Helper()
	_, err := c.server.Command("CONFIG", "RESETSTAT")
	require.NoError(c, err)
	f()
	info, err := c.server.Command("INFO", "commandstats")
	require.NoError(c, err)
	b := bill{calls: map[string]int{}}
	for _, line := range statLine.FindAllStringSubmatch(info, -1) {
		b.calls[line[1]] = int(number(c, line[2]))
		if strings.HasPrefix(line[1], "eval") {
			b.scripts += time.Duration(number(c, line[3])) * time.Microsecond
		}
	}
	return b
}

// quickest measures f several times, and returns the bill with the least script time.
func (c *crowd) quickest(f func()) bill {
	c.Helper()
	best := c.measure(f)
	for range 4 {
		if b := c.measure(f); b.scripts < best.scripts {
			best = b
		}
	}
	return best
}

const crowded = 1000

// waiting returns sessions that wait for a shared name, and a function that sends one heartbeat of each, one after the other.
func waiting(t testing.TB, kind backend.ShareKind, sessions int) (c *crowd, heartbeat func()) {
	most, want := backend.AllUnits, backend.AllUnits
	if kind == backend.Permits {
		most, want = 3, 1
	}
	c = newCrowd(t, kind, most, sessions)
	r, err := c.join("holder", kind, most).share(0, most)
	require.NoError(t, err)
	require.Equal(t, most, r.Units)
	for _, m := range c.members[:sessions] {
		r, err := m.share(0, want)
		require.NoError(t, err)
		require.True(t, r.Placed)
	}
	return c, func() {
		for _, m := range c.members[:sessions] {
			r, err := m.beat(0, want)
			require.NoError(t, err)
			require.True(t, r.Placed)
		}
	}
}

// waitingForLock does for a Lock what waiting does for a shared name.
func waitingForLock(t testing.TB, sessions int) (c *crowd, heartbeat func()) {
	c = newCrowd(t, 0, 0, sessions)
	beat := func(m *crowdMember) backend.AcquireStatus {
		r, err := m.remote.Acquire(t.Context(), backend.AcquireRequest{
			Epoch: 1, Owner: "owner", Holds: 1, Lease: 10 * time.Minute, NotAfter: time.Now().Add(limit),
			Queue: true, Tokens: 1, Patience: 10 * time.Minute, GrantTTL: 10 * time.Minute,
		})
		require.NoError(t, err)
		return r.Status
	}
	require.Equal(t, backend.Granted, beat(c.join("holder", 0, 0)))
	heartbeat = func() {
		for _, m := range c.members[:sessions] {
			require.Equal(t, backend.Waiting, beat(m))
		}
	}
	heartbeat()
	return c, heartbeat
}

func (b bill) each(n int) string {
	return fmt.Sprintf("%.1f µs and %.1f commands for each heartbeat", float64(b.scripts.Nanoseconds())/1000/float64(n), float64(b.commands())/float64(n))
}

func TestABeatOfManyWaitingSessionsCostsNoMoreThanTwoOfALock(t *testing.T) {
	many := testsize.Of(crowded, crowded/10)
	c, heartbeat := waitingForLock(t, many)
	lock := c.quickest(heartbeat)
	t.Logf("Lock: %s", lock.each(many))
	for name, kind := range map[string]backend.ShareKind{"RWLock": backend.ReadWrite, "Semaphore": backend.Permits} {
		c, heartbeat := waiting(t, kind, many)
		b := c.quickest(heartbeat)
		t.Logf("%s: %s, %.2f × the time of a Lock's", name, b.each(many), float64(b.scripts)/float64(lock.scripts))
		assert.LessOrEqual(t, b.calls["hgetall"], 2, "%s: only a heartbeat of the head reads all entries", name)
		assert.LessOrEqual(t, b.published(), 2, "%s: a heartbeat of the head sends a message to the holder", name)
		assert.LessOrEqual(t, b.commands(), lock.commands(), name)
	}
}

// reading returns sessions that read, and a function that writes once among them. For this write each reader gives its unit
// back, and gets a unit again.
func reading(t testing.TB, readers int) (c *crowd, write func()) {
	c = newCrowd(t, backend.ReadWrite, backend.AllUnits, readers)
	writer := c.join("writer", backend.ReadWrite, backend.AllUnits)
	for _, m := range c.members[:readers] {
		r, err := m.share(0, 1)
		require.NoError(t, err)
		require.Equal(t, 1, r.Units)
	}
	return c, func() {
		for _, m := range c.members[:readers] {
			m.asked.Store(true)
		}
		r, err := writer.share(0, backend.AllUnits)
		require.NoError(t, err)
		require.True(t, r.Placed)
		<-writer.given
		_, err = writer.share(0, 0)
		require.NoError(t, err)
		for _, m := range c.members[:readers] {
			<-m.given
		}
	}
}

func TestAWriteAmongManyReadingSessionsIsThreeMessagesForEach(t *testing.T) {
	const readers = 400
	c, write := reading(t, readers)
	b := c.measure(write)
	t.Logf("%d messages, %v of scripts; %v", b.published(), b.scripts, b.calls)
	assert.LessOrEqual(t, b.published(), 3*readers)
	assert.LessOrEqual(t, b.calls["hgetall"], 10)
}

// BenchmarkBeatOfOneOfManyWaiting prints what one heartbeat costs Redis, by its own statistics.
func BenchmarkBeatOfOneOfManyWaiting(b *testing.B) {
	for _, sessions := range []int{10, 100, 1000} {
		kinds := map[string]func() (*crowd, func()){
			"Lock":      func() (*crowd, func()) { return waitingForLock(b, sessions) },
			"RWLock":    func() (*crowd, func()) { return waiting(b, backend.ReadWrite, sessions) },
			"Semaphore": func() (*crowd, func()) { return waiting(b, backend.Permits, sessions) },
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			b.Run(fmt.Sprintf("%s/sessions=%d", kind, sessions), func(b *testing.B) {
				c, heartbeat := kinds[kind]()
				heartbeats := 0
				bill := c.measure(func() {
					for ; b.Loop(); heartbeats++ {
						heartbeat()
					}
				})
				bill.report(b, heartbeats*sessions, "beat")
			})
		}
	}
}

// BenchmarkWriteAmongReadingSessions prints what one write costs Redis.
func BenchmarkWriteAmongReadingSessions(b *testing.B) {
	for _, sessions := range []int{10, 100, 400} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			c, write := reading(b, sessions)
			writes := 0
			bill := c.measure(func() {
				for ; b.Loop(); writes++ {
					write()
				}
			})
			bill.report(b, writes, "write")
		})
	}
}

func (b bill) report(tb *testing.B, n int, of string) {
	tb.ReportMetric(float64(b.scripts.Nanoseconds())/1000/float64(n), "redis-µs/"+of)
	tb.ReportMetric(float64(b.commands())/float64(n), "commands/"+of)
	tb.ReportMetric(float64(b.published())/float64(n), "messages/"+of)
}

// When a session has given everything back, its entry is kept only for late copies of its commands. The session's lease, which
// is ten minutes here, does not matter.
func TestAnEntryIsGoneSoonAfterItsSessionGaveAllBack(t *testing.T) {
	c := &crowd{TB: t, server: redisserver.StartWithClock(t)}
	var err error
	c.backend, err = newBackend(connect(t, c.server.Addr()), "")
	require.NoError(t, err)
	stays, leaves := c.join("stays", backend.Permits, 3), c.join("leaves", backend.Permits, 3)
	for _, m := range []*crowdMember{stays, leaves} {
		r, err := m.share(0, 1)
		require.NoError(t, err)
		require.Equal(t, 1, r.Units)
	}
	_, err = leaves.share(0, 0)
	require.NoError(t, err)
	entries := func() int {
		key, err := c.server.Command("RANDOMKEY") // the only key is the record
		require.NoError(t, err)
		n, err := c.server.Command("HLEN", key)
		require.NoError(t, err)
		return int(number(t, n))
	}
	before := entries()
	c.server.Clock().Step(limit + 30*time.Second)
	r, err := stays.beat(0, 1)
	require.NoError(t, err)
	require.Equal(t, 1, r.Units)
	assert.Equal(t, before-1, entries())
}

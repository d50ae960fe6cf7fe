package redisbackend_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// sharing is a request for units of a read-write lock.
func sharing(epoch uint64, keep, want int) backend.ShareRequest {
	return backend.ShareRequest{Kind: backend.ReadWrite, Epoch: epoch, Keep: keep, Want: want, Least: want, Limit: backend.AllUnits,
		Tokens: 1, Lease: time.Minute, GrantTTL: time.Minute, Patience: time.Minute,
		NotAfter: time.Now().Add(time.Minute), Memory: time.Now().Add(time.Minute)}
}

func (m *member) share(req backend.ShareRequest) (backend.ShareReply, error) {
	return m.remote.(backend.Sharer).Share(m.ctx(), req)
}

// A shared name leaves only one key in Redis, and this key expires.
func TestShareLeavesOneKeyThatExpires(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, name: "lock", client: connect(t, server.Addr())}
	b, err := redisbackend.New(s.client)
	require.NoError(t, err)
	s.b = b
	a, w := s.join("a"), s.join("w")
	_, err = a.share(sharing(1, 0, 1))
	require.NoError(t, err)
	_, err = w.share(sharing(1, 0, backend.AllUnits))
	require.NoError(t, err)
	keys, err := s.do("KEYS", "*").AsStrSlice()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	ttl, err := s.do("PTTL", keys[0]).ToInt64()
	require.NoError(t, err)
	assert.Greater(t, ttl, time.Minute.Milliseconds())
	fields, err := s.do("HLEN", keys[0]).ToInt64()
	require.NoError(t, err)
	assert.EqualValues(t, 4, fields, "the summary, two sessions and a place")
}

// A session's entry and its note are deleted when no copy of the session's commands can arrive any more, and not before.
func TestShareForgetsSessions(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	s := &site{T: t, name: "lock", client: connect(t, server.Addr())}
	b, err := redisbackend.New(s.client)
	require.NoError(t, err)
	s.b = b
	a, w := s.join("a"), s.join("w")
	req := sharing(1, 0, 1)
	req.Lease = 50 * time.Millisecond
	key := "relock:{lock}:t:lock"
	for memory := 2 * time.Second; ; memory *= 2 { // the request must arrive in time, and so must the note
		req.NotAfter = time.Now().Add(memory)
		req.Memory = req.NotAfter
		_, err = a.share(req)
		s.run("HSET", key, "#na", "1 text")
		if err == nil && time.Now().Before(req.Memory) {
			break
		}
		require.Less(t, memory, limit, "%v", err)
		s.run("DEL", key)
	}
	epoch := uint64(0)
	run := func() bool {
		epoch++
		_, err := w.share(sharing(epoch, 0, 0))
		require.NoError(t, err)
		there, err := s.do("HEXISTS", key, "a").ToInt64()
		require.NoError(t, err)
		return there == 1
	}
	for time.Now().Before(req.Memory.Add(-100 * time.Millisecond)) {
		sent := time.Now()
		there := run()
		require.True(t, there || time.Since(req.Memory) > 0, "deleted %v too early", req.Memory.Sub(sent))
		time.Sleep(20 * time.Millisecond)
	}
	require.Eventually(t, func() bool { return !run() }, time.Minute, 20*time.Millisecond)
	note, err := s.do("HEXISTS", key, "#na").ToInt64()
	require.NoError(t, err)
	assert.Zero(t, note, "its note goes with it")
}

// The record of a shared name is kept until nothing in it is needed any more: a place and the grant that may follow it, the
// memory of every session, and tokens that are ahead of the clock. After the record, new tokens start from the clock.
func TestTheRecordOfASharedNameIsKeptWhileItIsNeeded(t *testing.T) {
	server := redisserver.Start(t)
	client := connect(t, server.Addr())
	const long = 10 * time.Hour
	for mode, options := range map[string][]redisbackend.Option{"scripts": nil, "transactions": {redisbackend.WithoutScripts()}} {
		b, err := redisbackend.New(client, options...)
		require.NoError(t, err)
		called := func(what string) (*site, *member, *member) {
			s := &site{T: t, name: what + "-" + mode, client: client, b: b}
			return s, s.join("a-" + s.name), s.join("b-" + s.name)
		}
		kept := func(s *site) time.Duration {
			return time.Duration(must(s.do("PTTL", s.side("t")).ToInt64())) * time.Millisecond
		}

		s, a, w := called("place")
		_, err = a.share(sharing(1, 0, backend.AllUnits))
		require.NoError(t, err)
		place := sharing(1, 0, 1)
		place.Patience, place.GrantTTL = long, long
		_, err = w.share(place)
		require.NoError(t, err)
		assert.Greater(t, kept(s), 19*time.Hour, s.name)

		s, a, _ = called("tokens")
		write := sharing(1, 0, backend.AllUnits)
		write.Seen = backend.Token(time.Now().Add(long).UnixMicro())
		_, err = a.share(write)
		require.NoError(t, err)
		assert.Greater(t, kept(s), 9*time.Hour, s.name)

		s, a, w = called("memory")
		remembered := sharing(1, 0, 0)
		remembered.Memory = time.Now().Add(long)
		_, err = a.share(remembered)
		require.NoError(t, err)
		lasting := sharing(1, 0, 1)
		lasting.Lease = 2 * long
		got, err := w.share(lasting)
		require.NoError(t, err)
		require.Equal(t, 1, got.Units)
		back := sharing(2, 0, 0)
		back.Under = got.First
		_, err = w.share(back)
		require.NoError(t, err)
		assert.InDelta(t, long, kept(s), float64(time.Hour), s.name)
	}
}

// On a Redis without free memory, units can still be renewed and given back.
func TestShareOnAFullServer(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, name: "lock", client: connect(t, server.Addr())}
	b, err := redisbackend.New(s.client)
	require.NoError(t, err)
	s.b = b
	a, w := s.join("a"), s.join("w")
	got, err := a.share(sharing(1, 0, backend.AllUnits))
	require.NoError(t, err)
	s.run("CONFIG", "SET", "maxmemory", "1")
	renewals := []backend.Renewal{{Remote: a.remote, Epoch: 1, Under: got.First, Lease: time.Hour}}
	a.conn.Renew(s.ctx(), renewals)
	require.NoError(t, renewals[0].Err)
	assert.Equal(t, backend.AllUnits, renewals[0].Units)
	back := sharing(2, 0, 0)
	back.Under = got.First
	reply, err := a.share(back)
	require.NoError(t, err)
	assert.Zero(t, reply.Units)
	fresh := &site{T: t, name: "another", client: s.client, b: b}
	_, err = fresh.join("c").share(sharing(1, 0, 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	s.run("CONFIG", "SET", "maxmemory", "0")
	reply, err = w.share(sharing(1, 0, 1))
	require.NoError(t, err)
	assert.Equal(t, 1, reply.Units)
}

// A key that belongs to the user is not changed.
func TestShareOfAKeyThatIsNoLock(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, name: "lock", client: connect(t, server.Addr())}
	for _, opts := range [][]redisbackend.Option{nil, {redisbackend.WithoutScripts()}} {
		b, err := redisbackend.New(s.client, opts...)
		require.NoError(t, err)
		s.b = b
		s.run("DEL", "lock")
		s.run("SET", "lock", "mine")
		a := s.join("a" + strconv.Itoa(len(opts)))
		_, err = a.share(sharing(1, 0, 1))
		require.ErrorIs(t, err, backend.ErrWrongKind)
		keys, err := s.do("KEYS", "*").AsStrSlice()
		require.NoError(t, err)
		assert.Equal(t, []string{"lock"}, keys)

		s.run("DEL", "lock")
		_, err = a.share(sharing(2, 0, 1))
		require.NoError(t, err)
		s.run("HSET", s.side("t"), a.id, "mine")
		_, err = a.share(sharing(3, 0, 1))
		require.ErrorIs(t, err, backend.ErrWrongKind, "its own entry cannot be read")
		s.run("DEL", s.side("t"))
	}
}

// Units are granted only when enough replicas have acknowledged them.
func TestShareIsAcknowledgedByReplicas(t *testing.T) {
	t.Parallel()
	s, replica := replicated(t)
	a, b := s.with(1, limit).join("a"), s.with(2, 20*time.Millisecond).join("b")
	reply, err := a.share(sharing(1, 0, 1))
	require.NoError(t, err)
	require.Equal(t, 1, reply.Units)
	copied := &site{T: t, name: s.name, client: connect(t, replica.Addr())}
	there, err := copied.do("HEXISTS", "relock:{lock}:t:lock", "a").ToInt64()
	require.NoError(t, err)
	assert.EqualValues(t, 1, there)
	_, err = b.share(sharing(1, 0, 1))
	require.ErrorIs(t, err, backend.ErrNotReplicated)
	assert.True(t, backend.OutcomeUnknown(err), "the master has the unit")
	assert.True(t, backend.Refused(err), "the error says not to try again")
	reply, err = b.share(sharing(2, 0, 0)) // giving units back needs no acknowledgement
	require.NoError(t, err)
	assert.Zero(t, reply.Units)
	reply, err = b.share(sharing(3, 0, backend.AllUnits)) // nor does a place in the queue behind another session
	require.NoError(t, err)
	assert.True(t, reply.Placed)
}

// Shared names need a queue on one server, which a quorum does not have.
func TestAQuorumHasNoSharedNames(t *testing.T) {
	var clients []rueidis.Client
	for range 3 {
		clients = append(clients, redistest.Start(t).Client())
	}
	q, err := redisbackend.NewQuorum(clients)
	require.NoError(t, err)
	redisbackend.SetNodeLimit(q, patient)
	conn, err := q.Connect(t.Context(), "a", newMember())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	remote, err := conn.Bind("lock")
	require.NoError(t, err)
	_, ok := remote.(backend.Sharer)
	assert.False(t, ok)
}

// One run of the script can change any number of sessions. It writes them in portions, since Lua can pass only some thousand
// arguments at once.
func TestShareWritesManySessionsInOneRun(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, name: "lock", client: connect(t, server.Addr())}
	b, err := redisbackend.New(s.client)
	require.NoError(t, err)
	s.b = b
	a := s.join("a")
	_, err = a.share(sharing(1, 0, 1))
	require.NoError(t, err)
	key := "relock:{lock}:t:lock"
	const changed, forgotten = 5_000, 9_000
	fields := []string{"HSET", key, "=", "r 2 1 1 1 0 1 14000 0"} // one of the summary's times is over
	for i := range changed + forgotten {
		memory := "1" // the entry is over
		if i < changed {
			memory = "9000000000000000"
		}
		// The session had a place whose deadline has passed.
		fields = append(fields, "old"+strconv.Itoa(i), "1 0 0 "+memory+" 0 0 5 "+strconv.Itoa(i+1)+" 1 1 1 0 1 0 1 -1 0 0", "#"+strconv.Itoa(i+1), "old"+strconv.Itoa(i))
	}
	s.run(fields...)
	_, err = a.share(sharing(2, 1, 1))
	require.NoError(t, err)
	left, err := s.do("HLEN", key).ToInt64()
	require.NoError(t, err)
	assert.EqualValues(t, changed+2, left)
	entry, err := s.do("HGET", key, "old0").ToString()
	require.NoError(t, err)
	assert.Equal(t, "1 0 0 9000000000000000 0 0 5 0 0 0 0 0 0 0 0 -1 0 0", entry)
}

// When a writer leaves, one run of the script grants units to all waiting readers. The time of this run grows with the number
// of readers, and not with its square. The test compares the server's processor time, and takes the least of several tries.
func TestServingManyReadersTakesTimeInProportion(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, name: "lock", client: connect(t, server.Addr())}
	b, err := redisbackend.New(s.client)
	require.NoError(t, err)
	s.b = b
	a := s.join("a")
	key, epoch, under := "relock:{lock}:t:lock", uint64(0), backend.Token(0)
	share := func(keep, want int) {
		epoch++
		req := sharing(epoch, keep, want)
		req.Under = under
		reply, err := a.share(req)
		require.NoError(t, err)
		require.Equal(t, want, reply.Units)
		under = reply.First
	}
	serve := func(readers int) (spent float64) {
		s.run("DEL", key)
		share(0, backend.AllUnits)
		fields := []string{"HSET", key, "=", fmt.Sprintf("r 2 0 0 0 0 1 %d 0", readers)} // the summary is to be counted again
		for i := range readers {
			reader := "reader" + strconv.Itoa(i)
			entry := fmt.Sprintf("1 0 0 0 0 0 %d %d 1 1 9000000000000000 60000 1 0 1 -1 0 0", backend.AllUnits, i+1)
			fields = append(fields, reader, entry, "#"+strconv.Itoa(i+1), reader)
		}
		s.run(fields...)
		before := s.processor()
		share(0, 0)
		spent = s.processor() - before
		entry, err := s.do("HGET", key, "reader"+strconv.Itoa(readers-1)).ToString()
		require.NoError(t, err)
		require.Regexp(t, "^1 1 ", entry, "the last reader has a unit")
		return spent
	}
	few, many := math.Inf(1), math.Inf(1)
	for range 4 {
		few, many = min(few, serve(500)), min(many, serve(4_000))
	}
	t.Logf("500 readers: %.1f ms, 4,000: %.1f ms", 1000*few, 1000*many)
	assert.Less(t, many, 24*few, "8 times as many")
}

// processor returns how many seconds of processor time the server has used for commands.
func (s *site) processor() float64 {
	info, err := s.do("INFO", "cpu").ToString()
	require.NoError(s, err)
	var sum float64
	for _, x := range regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`).FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(x[1], 64)
		require.NoError(s, err)
		sum += seconds
	}
	return sum
}

// A read-write lock or semaphore can take over the name of a Lock half a minute after the Lock's record was last written,
// although the record is kept for longer. It cannot do so while the Lock has a holder or waiters, or refuses attempts. Tokens
// continue to rise.
func TestASharedNameTakesThatOfADisusedLock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		ends := func(seconds string) { s.run("EXPIRE", s.side("t"), seconds) }
		ahead := func(r *backend.AcquireRequest) { r.Seen = backend.Token(s.clock() + time.Minute.Microseconds()) }
		for why, change := range map[string]func(){
			"free": func() {},
			"free: no attempt is under way any more": func() {
				s.run("SET", s.side("t"), strings.Join(s.record(), " ")+" a:9:1", "EX", "269")
			},
			"it was used a moment ago":    func() { ends("345") },
			"it is held":                  func() { a.take(2); ends("269") },
			"it is waited for":            func() { s.run("RPUSH", s.side("q"), "b") },
			"an attempt may be under way": func() { a.release(9, doubtfulFor(time.Hour)); ends("269") },
			"it is no record":             func() { s.run("SET", s.side("t"), "mine", "EX", "269") },
			"it does not expire":          func() { s.run("PERSIST", s.side("t")) },
		} {
			s.run("FLUSHALL")
			left := a.take(1, ahead)
			a.release(1)
			require.Equal(t, "300", s.record()[6])
			ends("269")
			change()
			reply, err := b.share(sharing(1, 0, backend.AllUnits))
			if !strings.HasPrefix(why, "free") {
				require.ErrorIs(t, err, backend.ErrWrongKind, why)
				continue
			}
			require.NoError(t, err, why)
			assert.Equal(t, backend.AllUnits, reply.Units)
			assert.Greater(t, reply.First, left)
			_, err = a.remote.Acquire(s.ctx(), request(3, queue))
			require.ErrorIs(t, err, backend.ErrWrongKind)
		}
	})
}

package redisbackend_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// A heartbeat of a session that waits behind the head of a shared name's queue is handled by behind.lua, the first lines of
// share.lua. The explorer compares these lines with package protocol. The tests in this file begin with states that no rule of
// the protocol produces.

// behind makes one session hold a read-write lock, and two sessions wait for the lock. It returns a function that sends a
// heartbeat of the second waiter.
func (s *site) behind() (heartbeat func() (backend.ShareReply, error)) {
	for _, id := range []string{"holder", "head"} {
		_, err := s.join(id).share(sharing(1, 0, backend.AllUnits))
		require.NoError(s, err)
	}
	m, req := s.join("behind"), sharing(1, 0, 1)
	_, err := m.share(req)
	require.NoError(s, err)
	return func() (backend.ShareReply, error) { return m.share(req) }
}

// tamper changes one of the numbers in a field of a shared name's record, and returns the number that was there before.
func (s *site) tamper(field string, number int, text string) (before string) {
	raw, err := s.do("HGET", s.side("t"), field).ToString()
	require.NoError(s, err)
	words := strings.Fields(raw)
	before, words[number] = words[number], text
	s.run("HSET", s.side("t"), field, strings.Join(words, " "))
	return before
}

// entry returns the numbers of a session's entry. The second number is the units, and the eighth is the order of the session's
// place.
func (s *site) entry(session string) []string {
	raw, err := s.do("HGET", s.side("t"), session).ToString()
	require.NoError(s, err)
	return strings.Fields(raw)
}

func TestAHeartbeatBehindTheHeadIsEightCommands(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		heartbeat := s.behind()
		before := s.entry("behind")
		n, counted := s.inner(func() {
			r, err := heartbeat()
			require.NoError(t, err)
			assert.Equal(t, backend.ShareReply{Status: backend.Shared, Placed: true, Epoch: 1}, r)
		})
		if counted {
			assert.Equal(t, 8, n)
		}
		after := s.entry("behind")
		const deadline = 10
		assert.Greater(t, number(t, after[deadline]), number(t, before[deadline]))
		after[deadline] = before[deadline]
		assert.Equal(t, before, after, "nothing else has changed")
	})
}

// A heartbeat from behind the head serves the head if its request fits. If the head only tries, and cannot have the lock, the
// heartbeat refuses the head.
func TestAHeartbeatBehindTheHeadSettlesTheHead(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		heartbeat := s.behind()
		const units, pending = 2, 15
		s.tamper("=", units, "0")
		_, err := heartbeat()
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(backend.AllUnits), s.entry("head")[1], "it fits")

		s.run("FLUSHALL")
		s.name = "another"
		heartbeat = s.behind()
		s.tamper("head", pending, "0")
		_, err = heartbeat()
		require.NoError(t, err)
		assert.Equal(t, "0", s.entry("head")[7], "it is a try, and all have answered")
	})
}

func TestAHeartbeatBehindTheHeadIsRefusedAsEver(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		heartbeat := s.behind()
		token := s.tamper("=", 1, strconv.FormatInt(s.clock()+2*366*24*time.Hour.Microseconds(), 10))
		_, err := heartbeat()
		require.ErrorContains(t, err, "fencing tokens")
		s.tamper("=", 1, token)
		_, err = heartbeat()
		require.NoError(t, err)

		s.tamper("=", 0, "p")
		_, err = heartbeat()
		require.ErrorIs(t, err, backend.ErrWrongKind, "the name is a semaphore's")
		s.tamper("=", 0, "r")

		s.tamper("behind", 17, "garbage")
		_, err = heartbeat()
		require.ErrorIs(t, err, backend.ErrWrongKind)
		s.run("DEL", s.side("t"))
		s.run("SET", s.side("t"), "garbage")
		_, err = heartbeat()
		require.ErrorIs(t, err, backend.ErrWrongKind)
	})
}

// On a Redis without free memory, a heartbeat of a session behind the head still keeps the session's place.
func TestAHeartbeatBehindTheHeadOnAFullServer(t *testing.T) {
	t.Parallel()
	s := realRedis(t)
	heartbeat := s.behind()
	s.run("CONFIG", "SET", "maxmemory", "1")
	r, err := heartbeat()
	require.NoError(t, err)
	assert.True(t, r.Placed)
}

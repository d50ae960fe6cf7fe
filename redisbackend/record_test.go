package redisbackend_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	lua "github.com/relock-go/relock/redisbackend/internal/wire"
)

// Four kinds of writers write the record of a lock: save in common.lua, scripts that stand alone, sessions for these scripts,
// and transactions. All write exactly the same bytes, because the scripts that stand alone compare the record as text.

// recorded are runs. After each of them, the test looks at the record.
var recorded = append(slices.Clone(halfRuns),
	halfRun{name: "acquire a block of tokens", golden: func(s *scene) { s.a.epoch++ }, act: func(s *scene) error {
		return s.a.attempt(func(r *backend.AcquireRequest) { r.Tokens = 3 })
	}},
	halfRun{name: "quorum_token higher than here", golden: func(s *scene) { s.takes(s.a) }, act: func(s *scene) error {
		return s.raw("quorum_token", s.keys("", "t"), []string{"a", text(int64(s.a.epoch)), text(int64(s.last + 5)), text(int64(s.last + 7))})
	}})

// writes matches calls by which a script writes the record.
var writes = regexp.MustCompile(`\b(?:save|occupy|grant|vacate)\(|'SET', KEYS\[2\]`)

func TestAllWritersOfTheRecordAgree(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		byScripts, wrote := records(t, s.client)
		for name, script := range scenes(t, s.client)().scripts {
			_, own, _ := strings.Cut("\n"+script.Text, "\n-- "+name+": ") // without common.lua
			assert.Equal(t, writes.MatchString(own), wrote[name], "%s writes the record", name)
		}
		byTransactions, _ := records(t, s.client, redisbackend.WithoutScripts())
		for state, record := range byTransactions {
			assert.Equal(t, byScripts[state], record, state)
		}
	})
}

// records carries out each run to its end, while the record has a tombstone. It returns the record that each run leaves,
// without the parts that differ from one execution to the next, and which scripts have changed a record.
func records(t *testing.T, client rueidis.Client, options ...redisbackend.Option) (after map[string]lua.Record, wrote map[string]bool) {
	next := scenes(t, client, options...)
	after, wrote = map[string]lua.Record{}, map[string]bool{}
	for _, h := range recorded {
		if len(options) > 0 && (strings.HasPrefix(h.name, "quorum_") || slices.Contains([]string{"offer", "take"}, h.script())) {
			continue // this needs scripts
		}
		s := next()
		s.c.release(0, doubtfulFor(time.Hour))
		h.golden(s)
		before, _ := s.do("GET", s.side("t")).ToString()
		require.NoError(t, h.act(s), h.name)
		var text string
		after[h.name], text = s.parseRecord(h.name)
		wrote[h.script()] = wrote[h.script()] || text != before
	}
	return after, wrote
}

// parseRecord returns the record and its text, and checks that Format returns this text. In the record that it returns, the
// first token is 0, the last token is counted from the first, and tombstones have no end.
func (s *site) parseRecord(state string) (r lua.Record, text string) {
	s.Helper()
	text = strings.Join(s.record(), " ")
	r, ok := lua.ParseRecord(text)
	require.True(s, ok, "%s: %q", state, text)
	assert.Equal(s, text, r.Format(), state)
	r.First, r.Last, r.Keep = 0, r.Last-r.First, 0
	for i := range r.Tombs {
		r.Tombs[i].Until = 0
	}
	return r, text
}

// A lock that stays taken after its release is shown with its token and its note until it is free, so the record is kept until
// then. The session that had the lock gets no more messages about waiters.
func TestALockThatStaysTakenKeepsItsRecord(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for session, s := range map[string]*site{"a": s, "b": s.withoutScripts()} {
			m := s.join(session)
			m.take(1)
			_, err := m.remote.(backend.Watcher).Watch(s.ctx(), 1)
			require.NoError(t, err)
			require.Equal(t, "w", s.record()[5], session)
			require.Equal(t, backend.Released, m.release(1, func(r *backend.ReleaseRequest) { r.StaysUntil = time.Now().Add(2 * time.Hour) }))
			assert.Equal(t, "h", s.record()[5], session)
			assert.Greater(t, must(s.do("TTL", s.side("t")).ToInt64()), int64(90*60), session)
			s.run("FLUSHALL")
		}
	})
}

// While an owner waits for a condition, its lock may be free for a long time. The record stays: without it the name could
// become that of a semaphore or a read-write lock.
func TestALockOfAConditionsWaitersKeepsItsRecord(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for session, s := range map[string]*site{"a": s, "b": s.withoutScripts()} {
			m := s.join(session)
			m.take(1)
			_, err := m.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: 1, Ticket: 2, Owner: "o", Holds: 1,
				Patience: patience, GrantTTL: grantTTL})
			require.NoError(t, err)
			kept := must(s.do("TTL", s.side("t")).ToInt64())
			s.run("EXPIRE", s.side("t"), text(kept+60))
			beaten := func() int64 {
				_, err := m.conditions().Beat(s.ctx(), "ready", []uint64{2}, nil)
				require.NoError(t, err)
				return must(s.do("TTL", s.side("t")).ToInt64())
			}
			assert.Greater(t, beaten(), kept, "%s: it is not shortened", session)
			s.run("EXPIRE", s.side("t"), text(kept/2))
			assert.Greater(t, beaten(), kept*3/4, "%s: it lasts while its session beats", session)
			s.run("FLUSHALL")
		}
	})
}

// A grant may stop after it has written the waiter's hold, and before it changes the record and the queue. When the next
// attempt of that session takes the hold over, the session's place is deleted. Otherwise the place would be served once more,
// for an attempt that is over.
func TestAGrantThatStoppedLeavesNoPlace(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		b.wait(1)
		s.run("HSET", s.name, "b:1", "1")
		s.run("HDEL", s.name, "a:1")
		b.take(2)
		assert.Empty(t, s.queued())
	})
}

// If a grant stopped before it removed the waiter's place, a session has the lock and a place. The session does not count as a
// waiter for its own lock.
func TestAHolderIsNotToldOfAPlaceOfItsOwn(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, b := range []*member{s.join("a"), s.withoutScripts().join("b")} {
			b.take(1)
			s.run("HSET", s.side("w"), b.id, "1 9000000000000000 1000 1 1 0 300 1")
			s.run("RPUSH", s.side("q"), b.id)
			watched, err := b.remote.(backend.Watcher).Watch(s.ctx(), 1)
			require.NoError(t, err)
			assert.False(t, watched.Waiting, b.id)
			s.run("FLUSHALL")
		}
	})
}

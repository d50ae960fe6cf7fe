package redisbackend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// If no session has or waits for a lock, vacant.lua grants it. This script is the first lines of acquire.lua.

// inner returns how many commands scripts have run during f. On the embedded Redis, which does not count, it returns false.
func (s *site) inner(f func()) (n int, counted bool) {
	s.Helper()
	count := func() (all int) {
		text, err := s.do("INFO", "commandstats").ToString()
		counted = err == nil
		for line := range strings.Lines(text) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			calls, _, _ := strings.Cut(rest, ",")
			if name != "evalsha" && name != "info" && calls != "" {
				all += int(number(s, calls))
			}
		}
		return all
	}
	before := count()
	f()
	return count() - before, counted
}

func TestAcquireOfANewNameIsFiveCommands(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		a.take(1) // the session knows the clock, and Redis the script
		s.name = "another"
		a.remote = a.bind(s.name)
		n, counted := s.inner(func() { a.take(2) })
		if counted {
			assert.Equal(t, 5, n)
		}
		assert.Equal(t, brief, s.record()[6])
	})
}

func TestAcquireOfALockThatAnotherSessionLeft(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		left := b.take(1)
		b.release(1)
		var p backend.Prior
		n, counted := s.inner(func() { p = a.takeRemembered(1) })
		if counted {
			assert.Equal(t, 6, n)
		}
		assert.Greater(t, p.Token, left)
		assert.Equal(t, []string{"a", "1", "0", "h", brief}, s.record()[2:])
		assert.Equal(t, 1, s.scripts(func() { p = a.takeRemembered(2, remembering(p)) }), "it is remembered")

		s.run("DEL", s.name)
		s.run("SET", s.side("t"), strings.Join(append(s.record()[:6], "5000"), " "))
		p = b.takeRemembered(3)
		assert.Equal(t, "5000", s.record()[6], "the record is kept for no less than before")
		assert.Equal(t, 1, s.scripts(func() { b.takeRemembered(4, remembering(p)) }), "that is remembered too")
	})
}

func TestAcquireKeepsTheRecordForLongWhereCopiesMayBeUnderWay(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		kept := func() string {
			ttl := must(s.do("TTL", s.side("t")).ToInt64())
			assert.InDelta(t, number(s, s.record()[6]), ttl, 5+time.Since(s.began).Seconds())
			return s.record()[6]
		}
		a.take(1)
		assert.Equal(t, brief, kept())
		a.take(1)
		assert.Equal(t, "300", kept(), "it was sent twice")

		s.run("FLUSHALL")
		a.take(2, func(r *backend.AcquireRequest) { r.NotAfter = time.Now().Add(time.Hour) })
		assert.InDelta(t, 3600, number(s, kept()), limit.Seconds(), "a copy may arrive for an hour")

		s.run("FLUSHALL")
		a.release(2, doubtfulFor(time.Minute))
		b.take(3)
		assert.Equal(t, "300", kept(), "an attempt was given up")

		s.run("FLUSHALL")
		a.take(4, func(r *backend.AcquireRequest) { r.Tokens = 3 })
		assert.Equal(t, "300", kept(), "tokens that are ahead of the clock")

		s.run("FLUSHALL")
		a.take(5)
		_, err := a.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: 5, Ticket: 6, Owner: "o", Holds: 1,
			Patience: patience, GrantTTL: grantTTL, Until: time.Now().Add(time.Minute)})
		require.NoError(t, err)
		assert.Equal(t, "300", kept(), "an attempt that was given up for a condition")
	})
}

// If vacant.lua does not decide an attempt, the rest of acquire.lua does.
func TestAcquireOfAFreeLockIsRefusedAsEver(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		assert.Equal(t, backend.Stale, a.acquire(0).Status, "no session has such an epoch")
		a.take(5)
		s.lapse()
		assert.Equal(t, backend.Stale, a.acquire(5).Status, "it had its turn")
		assert.Equal(t, backend.Stale, a.acquire(4).Status)
		a.release(9, doubtfulFor(time.Minute))
		assert.Equal(t, backend.Stale, a.acquire(8).Status, "it was given up")
		b.take(1)
		b.release(1)
		assert.Equal(t, backend.Stale, a.acquire(8).Status)

		s.run("FLUSHALL")
		_, err := b.remote.Acquire(s.ctx(), request(2, func(r *backend.AcquireRequest) { r.NotAfter = time.Now().Add(-time.Second) }))
		require.ErrorIs(t, err, backend.ErrUnavailable)
		assert.Empty(t, s.hash())

		s.run("FLUSHALL")
		a.take(10)
		b.wait(10)
		s.run("DEL", s.name)
		require.Equal(t, backend.Waiting, a.acquire(11, queue).Status, "another session comes first")
		assert.Equal(t, uint64(10), b.granted().Epoch)
	})
}

func TestAcquireOfAFreeLockGivesTokensAboveAllThatWereSeen(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		seen := backend.Token(s.clock() + time.Hour.Microseconds())
		assert.Equal(t, seen+1, a.take(1, func(r *backend.AcquireRequest) { r.Seen = seen }), "by the session")
		a.release(1)
		assert.Equal(t, seen+2, b.take(1), "by the record")
	})
}

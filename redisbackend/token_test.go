package redisbackend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// A message with tokens that no script can have issued is not trusted. The session's next attempt asks Redis, and the reply has
// the right tokens.
func TestAGrantWithForgedTokensIsConfirmed(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		m := s.join("m")
		m.take(1)
		now := s.clock()
		say := func(first, last int64) backend.Grant {
			s.run("PUBLISH", "relock:session:m", "g 7 "+text(first)+" "+text(last)+" 1000 "+text(now)+" lock")
			return m.granted()
		}
		assert.False(t, say(now, now+64).NotBefore.IsZero())
		for _, last := range []int64{now + 3600e6, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1} {
			assert.True(t, say(now, last).NotBefore.IsZero(), "%d", last)
			assert.True(t, say(last, last).NotBefore.IsZero(), "%d", last)
		}
	})
}

// A forged grant does not change the tokens that a session gets.
func TestAForgedGrantDoesNotRaiseTokens(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		holder := s.join("holder")
		before := holder.take(1)
		session, err := reentrant.NewSession(s.b, calm...)
		require.NoError(t, err)
		defer func() { assert.NoError(t, session.Close(s.ctx())) }()
		lock, ctx := session.NewLock(s.name), reentrant.WithOwner(s.ctx(), "owner")
		locked := make(chan error, 1)
		go func() { locked <- lock.Lock(ctx) }()
		s.eventually(func() bool { return len(s.queued()) == 1 }, "the session waits")
		waiter := s.queued()[0]
		raw, err := s.do("HGET", s.side("w"), waiter).ToString()
		require.NoError(t, err)
		epoch, _, _ := strings.Cut(raw, " ")
		s.run("PUBLISH", "relock:session:"+waiter, "g "+epoch+" 9007199254740992 9007199254740992 3000 "+text(s.clock())+" "+s.name)
		holder.release(1)
		require.NoError(t, <-locked)
		token, err := lock.Token(ctx)
		require.NoError(t, err)
		require.NoError(t, orLater(lock.Unlock)(ctx))
		assert.Less(t, token, before+backend.Token(time.Hour.Microseconds()))
	})
}

// A record with tokens far ahead of the clock is not used: sessions do not see these tokens, and the record does not stay for
// ever.
func TestARecordWithForgedTokensIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for kind, s := range map[string]*site{"scripts": s, "transactions": s.withoutScripts()} {
			m := s.join("m" + kind[:1])
			for _, last := range []string{text(s.clock() + 367*86400e6), "9007199254740991", "9007199254740992", "9223372036854775807"} {
				s.run("FLUSHALL")
				m.take(1)
				forged := s.record()
				forged[0], forged[1] = last, last
				s.run("SET", s.side("t"), strings.Join(forged, " "))
				assert.True(t, m.renews(1, lease), "%s: %s", kind, last)
				kept, err := s.do("TTL", s.side("t")).ToInt64()
				require.NoError(t, err)
				assert.LessOrEqual(t, kept, int64(367*86400), "%s: %s", kind, last)
				for epoch := range uint64(3) {
					_, err = m.remote.Acquire(s.ctx(), request(epoch+1, queue))
					require.ErrorContains(t, err, "FARTOKEN", "%s: %s", kind, last)
					assert.True(t, backend.Refused(err), "%s: %s", kind, last)
				}
				assert.Equal(t, forged[:6], s.record()[:6], "the record is not changed")
				assert.Equal(t, backend.Released, m.release(1), "%s: %s", kind, last)
			}
		}
	})
}

// A number that is out of bounds is refused before it is sent.
func TestNumbersOutOfBoundsAreNotSent(t *testing.T) {
	s := embedded(t)
	tooMany := int64(1) << 31
	for _, s := range []*site{s, s.withoutScripts()} {
		m := s.join("m")
		for name, change := range map[string]func(*backend.AcquireRequest){
			"epoch":    func(r *backend.AcquireRequest) { r.Epoch = 1 << 53 },
			"holds":    func(r *backend.AcquireRequest) { r.Holds = int(tooMany) }, // negative where int has 32 bits
			"tokens":   func(r *backend.AcquireRequest) { r.Tokens = 1<<16 + 1 },
			"negative": func(r *backend.AcquireRequest) { r.Tokens = -1 },
		} {
			_, err := m.remote.Acquire(s.ctx(), request(1, change))
			assert.True(t, backend.Refused(err), "%s: %v", name, err)
		}
		assert.Empty(t, s.hash())
	}
}

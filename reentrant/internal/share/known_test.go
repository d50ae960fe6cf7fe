package share

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// writing returns a session with a writer inside, whose block of tokens is 20 to 40. The writer uses the first one.
func writing(t *testing.T) *session[*sharedqueue.RW[string]] {
	s := newReadWrite(t)
	w := enter(s, "w", sharedqueue.Write)
	c := s.command(1)
	c.reply <- backend.ShareReply{Status: backend.Shared, Units: backend.AllUnits, First: 20, Last: 40, May: backend.Unlimited}
	require.Equal(t, sharedqueue.Admitted, next(s, w.outcome))
	return s
}

// written returns the session of writing after the writer has left.
func written(t *testing.T) *session[*sharedqueue.RW[string]] {
	s := writing(t)
	_, ok, look := s.queue.ExitWrite("w")
	require.True(t, ok && look)
	s.name.Wake()
	s.command(2).grant(0)
	synctest.Wait()
	return s
}

// readsAbove asserts which token the next reader's request says that the session has seen.
func readsAbove(t *testing.T, s *session[*sharedqueue.RW[string]], token backend.Token) {
	t.Helper()
	enter(s, "r", sharedqueue.Read)
	c := s.command(3)
	assert.Equal(t, token, c.req.Seen, "what the session says that it has seen")
	c.grant(1)
}

// A server that fails over to a replica without the last writes has an older record. If a session knows a later token,
// it says so in its requests, so that its readers' versions never fall.
func TestAReadersRequestHasTheHighestTokenThatTheSessionKnows(t *testing.T) {
	t.Run("a token that was used", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { readsAbove(t, written(t), 20) })
	})
	t.Run("a later token of its block", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := writing(t)
			w := enter(s, "v", sharedqueue.Write)
			_, ok, _ := s.queue.ExitWrite("w")
			require.True(t, ok)
			require.Equal(t, sharedqueue.Admitted, next(s, w.outcome))
			_, ok, _ = s.queue.ExitWrite("v")
			require.True(t, ok)
			s.name.Wake()
			s.command(2).grant(0)
			synctest.Wait()
			readsAbove(t, s, 22)
		})
	})
	t.Run("a block that was lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := writing(t)
			require.True(t, s.name.Refute(1, "the server no longer has the units"))
			s.command(2).grant(0)
			readsAbove(t, s, 40)
		})
	})
	t.Run("a version that was read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newReadWrite(t)
			r := enter(s, "r", sharedqueue.Read)
			s.command(1).reply <- backend.ShareReply{Status: backend.Shared, Units: 1, First: 30, Last: 30, May: backend.Unlimited}
			require.Equal(t, sharedqueue.Admitted, next(s, r.outcome))
			_, ok, _ := s.queue.ExitRead("r")
			require.True(t, ok)
			s.name.Wake()
			s.command(2).grant(0)
			readsAbove(t, s, 30)
		})
	})
	t.Run("a name that was out of use", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := written(t)
			s.name.Leave()
			require.Zero(t, s.room.Len())
			s.name = s.room.Join("x", backend.ReadWrite, remote{shares: s.shares}, func() Tier {
				s.queue = sharedqueue.NewRW(func() time.Duration { return time.Since(s.room.session.Opened) }, keyOf, nil)
				return rwTier{s.queue, s.losses}
			})
			enter(s, "r", sharedqueue.Read)
			c := s.command(3) // an epoch is used once, whatever has become of the name
			assert.Equal(t, backend.Token(20), c.req.Seen)
			c.grant(1)
		})
	})
}

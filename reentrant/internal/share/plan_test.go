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

// withIdle returns the session of a semaphore that has four permits, of which its users have so many.
func withIdle(t *testing.T, used int) *session[permitTier] {
	s := newPermits(t)
	u := enter(s, 4, 0)
	s.command(1).grant(4)
	require.Equal(t, sharedqueue.Admitted, next(s, u.outcome))
	ok, _ := s.queue.Exit(4 - used)
	require.True(t, ok)
	return s
}

func TestUnitsAreOutOfUseBeforeTheServerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 1)
		s.room.Wanted("x", 1)
		told := s.command(2)
		assert.Equal(t, []int{1, 1}, []int{told.req.Keep, told.req.Want})
		o, _ := s.queue.Try(1)
		assert.Equal(t, sharedqueue.Busy, o, "what goes back is used while the server has not answered")
	})
}

func TestReadersThatAreNoLongerAskedBackKeepTheirRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		a := enter(s, "a", sharedqueue.Read)
		s.command(1).grant(1)
		require.Equal(t, sharedqueue.Admitted, next(s, a.outcome))
		s.room.Wanted("x", 0)
		b := enter(s, "b", sharedqueue.Read)
		s.command(2).grant(1) // the writer has left
		require.Equal(t, sharedqueue.Admitted, next(s, b.outcome))
		for _, owner := range []string{"a", "b"} {
			_, ok, _ := s.queue.ExitRead(owner)
			require.True(t, ok)
		}
		s.name.Wake()
		synctest.Wait()
		assert.Empty(t, s.shares, "the unit goes back although no other session waits")
		o, _, _ := s.queue.TryRead("c")
		assert.Equal(t, sharedqueue.Admitted, o)
	})
}

func TestAPlaceThatTheServerDroppedIsAskedForAgain(t *testing.T) {
	t.Run("with nothing kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newReadWrite(t)
			reader := enter(s, "reader", sharedqueue.Read)
			s.command(1).place(0)
			s.command(1).grant(0)
			again := s.command(2)
			assert.Equal(t, []int{0, 1}, []int{again.req.Keep, again.req.Want})
			again.grant(1)
			assert.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
		})
	})
	t.Run("with units kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := withIdle(t, 1)
			s.room.Wanted("x", 1)
			s.command(2).grant(1)
			synctest.Wait()
			more := enter(s, 2, 0)
			s.command(3).place(1)
			s.command(3).grant(1)
			again := s.command(4)
			assert.Equal(t, []int{1, 3}, []int{again.req.Keep, again.req.Want})
			again.grant(3)
			assert.Equal(t, sharedqueue.Admitted, next(s, more.outcome))
			assert.Empty(t, s.losses)
		})
	})
}

// The session goes on for its turn, so it asks the server for nothing before that ends.
func TestATryEndsAtOnceInASessionThatHasATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 3)
		o, w, _, _ := s.queue.Enter(2, sharedqueue.Once) // and before its Wake the session is asked for permits
		require.Equal(t, sharedqueue.Waiting, o)
		start := time.Now()
		s.room.Wanted("x", 2)
		o, _, _ = s.queue.Wait(w, nil, time.After(time.Minute))
		assert.Equal(t, sharedqueue.Busy, o)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 3, s.command(2).req.Want, "what is idle goes back, and nothing is asked for")
	})
}

// A message that was pushed before the session reconnected is lost, and the reply that was under way can be older.
func TestAReconnectHasARequestRepeatedThatIsUnderWay(t *testing.T) {
	answers := map[string]func(*shareCall){
		"it is answered": func(c *shareCall) { c.place(0) },
		"it fails":       func(c *shareCall) { c.reply <- backend.ShareReply{} },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newReadWrite(t)
				enter(s, "reader", sharedqueue.Read)
				underWay := s.command(1)
				s.room.Reconnected()
				synctest.Wait()
				answer(underWay)
				assert.Equal(t, underWay.at, s.command(1).at, "the copy that follows waits for a beat")
			})
		})
	}
}

func TestATryEndsWithTheAnswerThatItsSessionHasToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		try := enter(s, 1, sharedqueue.Once)
		asked := s.command(1)
		asked.place(0)
		assert.Equal(t, sharedqueue.Busy, next(s, try.outcome))
		left := s.command(2)
		assert.Equal(t, asked.at, left.at)
		assert.Zero(t, left.req.Want, "the place is given up")
	})
}

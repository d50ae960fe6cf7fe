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

// withShare returns a session that has its share of the permits, all in use.
func withShare(t *testing.T, share int) *session[permitTier] {
	s := newPermits(t)
	u := enter(s, share, 0)
	r := settled(share)
	r.Share = share
	s.command(1).reply <- r
	require.Equal(t, sharedqueue.Admitted, next(s, u.outcome))
	return s
}

// release gives a permit back.
func release(s *session[permitTier]) {
	ok, look := s.queue.Exit(1)
	require.True(s.t, ok)
	if look {
		s.name.Wake()
	}
}

// handOn makes a user wait for a permit of its own session for the given time.
func handOn(s *session[permitTier], wait time.Duration) {
	u := enter(s, 1, 0)
	time.Sleep(wait)
	release(s)
	require.Equal(s.t, sharedqueue.Admitted, next(s, u.outcome))
}

// A session with its share could get more only from other sessions' shares: it asks only to find out whether permits are free.
func TestASessionWhoseUsersServeItsHeadsAsksOncePerHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 3 * testTurn
		s := withShare(t, 2)
		began := time.Now()
		for wait := testTurn; wait < slow; wait += testTurn / 2 {
			handOn(s, wait)
		}
		for len(s.shares) == 0 {
			handOn(s, slow)
		}
		asked := s.command(2)
		assert.Equal(t, testHeartbeat, asked.at.Sub(began))
		assert.Equal(t, []int{2, 3, 3}, []int{asked.req.Keep, asked.req.Want, asked.req.Least})
	})
}

// The session has a place at the server for its head, which a user of the session then serves. The next head came later, so the
// session gives that place up and asks for another one.
func TestAPlaceEndsWhenAUserOfTheSessionServedItsHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withShare(t, 2)
		first, second := enter(s, 1, 0), enter(s, 1, 0)
		asked := s.command(2)
		asked.place(2)
		synctest.Wait()
		release(s)
		require.Equal(t, sharedqueue.Admitted, next(s, first.outcome))
		left := s.command(3)
		assert.Equal(t, []int{2, 2}, []int{left.req.Keep, left.req.Want})
		assert.Equal(t, backend.ShareGrace+time.Millisecond, left.at.Sub(asked.at), "no sooner: others give idle permits within this time")
		left.grant(2)
		again := s.command(4)
		assert.Equal(t, []int{2, 3}, []int{again.req.Keep, again.req.Want}, "no user served the next head")
		assert.Empty(t, second.outcome)
	})
}

func TestASessionKeepsAllButOneOfItsShareInUseForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withShare(t, 3)
		first, second := enter(s, 1, 0), enter(s, 1, 0)
		s.room.Wanted("x", 0, 0)
		time.Sleep(testTurn)
		release(s)
		less := s.command(2)
		assert.Equal(t, []int{2, 3}, []int{less.req.Keep, less.req.Least})
		r := settled(2)
		r.Placed, r.May, r.Share = true, 0, 3
		less.reply <- r
		time.Sleep(10 * testTurn)
		release(s)
		require.Equal(t, sharedqueue.Admitted, next(s, first.outcome))
		require.Empty(t, s.shares)
		time.Sleep(6 * testTurn)
		release(s)
		assert.Equal(t, 1, s.command(3).req.Keep, "the head of the queue can be in need of what is in use here alone")
		assert.Empty(t, second.outcome)
	})
}

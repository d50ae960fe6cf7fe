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

func TestAPushOfAnEarlierEpochGivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		first := enter(s, 3, 0)
		s.command(1).place(0)
		second := enter(s, 1, 0)
		synctest.Wait()
		first.leave()
		asked := s.command(2)
		s.push(1, 1, 0, 3*testHeartbeat)
		synctest.Wait()
		assert.Empty(t, second.outcome, "what the session asks for now has not been granted")
		asked.place(0)
		synctest.Wait()
		s.push(2, 1, 0, 3*testHeartbeat)
		assert.Equal(t, sharedqueue.Admitted, next(s, second.outcome))
		has, settled := s.name.Settled()
		assert.Equal(t, []any{uint64(2), 1, true}, []any{has.Epoch, has.Units, settled})
	})
}

func TestARenewalThatFindsNothingUnderAnEarlierEpochLosesNothing(t *testing.T) {
	answers := map[string]backend.Renewal{"gone": {Gone: true}, "fewer units": {Units: 1}}
	for name, answer := range answers {
		t.Run(name+", while the session says something", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPermits(t)
				old := renewing(s)
				more := enter(s, 2, 0)
				asked := s.command(2)
				old.reply <- answer
				synctest.Wait()
				assert.Empty(t, s.losses)
				asked.grant(4)
				assert.Equal(t, sharedqueue.Admitted, next(s, more.outcome))
			})
		})
		t.Run(name+", after the session has said something", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPermits(t)
				old := renewing(s)
				more := enter(s, 2, 0)
				s.command(2).grant(4)
				require.Equal(t, sharedqueue.Admitted, next(s, more.outcome))
				old.reply <- answer
				synctest.Wait()
				assert.Empty(t, s.losses)
			})
		})
	}
}

// A message can overtake the reply that says that the session is the head of the queue. In that case the session was granted
// units after that reply, and the message asks for them.
func TestAReplyFromBeforeAMessageForgetsNoTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		enter(s, 2, 0)
		asked := s.command(1)
		s.room.Wanted("x", 0, 7)
		asked.place(0)
		assert.Equal(t, uint64(7), s.command(2).req.Answer)
	})
}

// A renewal that the server carried out before it granted more says how many units the session had then.
func TestARenewalFromBeforeAGrantLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		first := enter(s, 2, 0)
		s.command(1).grant(2)
		require.Equal(t, sharedqueue.Admitted, next(s, first.outcome))
		second := enter(s, 1, 0)
		s.command(2).place(2)
		synctest.Wait()
		s.reconnected()
		renewal := next(s, s.renewals)
		require.Equal(t, uint64(2), renewal.batch[0].Epoch)
		s.command(2) // gets no reply in time
		s.command(2).grant(3)
		require.Equal(t, sharedqueue.Admitted, next(s, second.outcome))
		renewal.reply <- backend.Renewal{Units: 2}
		synctest.Wait()
		assert.Empty(t, s.losses)
	})
}

// The server may have carried out a copy of a claim before it refused another copy. Until the session has sent a later
// epoch, it does not know which epoch the server has, so a renewal or Verify that finds nothing proves nothing.
func TestARefusalAfterAnUnknownOutcomeLosesNothing(t *testing.T) {
	refused := func(t *testing.T) *session[permitTier] {
		s := withIdle(t, 2)
		time.Sleep(testLease/3 - time.Second)
		enter(s, 3, 0)
		s.command(2) // gets no reply, although the server has carried it out
		s.command(2).refuse()
		synctest.Wait()
		return s
	}
	settle := func(s *session[permitTier]) {
		said := s.command(3)
		assert.Equal(s.t, []int{4, 4}, []int{said.req.Keep, said.req.Want})
		said.grant(4)
		synctest.Wait()
		assert.Empty(s.t, s.losses)
	}
	t.Run("at a renewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := refused(t)
			renewal := next(s, s.renewals)
			assert.Equal(t, uint64(1), renewal.batch[0].Epoch)
			renewal.reply <- backend.Renewal{Gone: true}
			settle(s)
		})
	})
	t.Run("at Verify", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := refused(t)
			_, settled := s.name.Settled()
			assert.False(t, settled)
			assert.False(t, s.name.Refute(1, "the server no longer had the units"))
			settle(s)
		})
	})
}

// A heartbeat confirms the units under the epoch of the waiting claim. If a later heartbeat is refused, the server
// still has that epoch, and perhaps the place.
func TestARefusedBeatIsFollowedByAGiveBackAndRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 4)
		enter(s, 1, 0)
		for range 60 { // longer than the lease that the first copy may have got
			s.command(2).place(4)
		}
		s.command(2).refuse()
		said := s.command(3)
		assert.Equal(t, []int{4, 4}, []int{said.req.Keep, said.req.Want})
		said.refuse()
		for len(s.renewals) == 0 {
			next(s, s.shares).refuse()
			time.Sleep(testHeartbeat / 2)
		}
		assert.Equal(t, uint64(2), next(s, s.renewals).batch[0].Epoch)
		assert.Empty(t, s.losses)
	})
}

// If the server does not take units back, they expire. The session then forgets them, and does not go on sending for
// ever.
func TestUnitsThatTheServerDoesNotTakeBackAreForgottenWhenExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 1)
		s.name.Leave()
		ok, look := s.queue.Exit(1)
		require.True(t, ok)
		require.True(t, look)
		s.name.Wake()
		last := time.Now().Add(testLease + 30*time.Second + 2*time.Second)
		for s.room.Len() > 0 && time.Now().Before(last.Add(time.Minute)) {
			select {
			case c := <-s.shares:
				c.refuse()
			case <-time.After(time.Second):
			}
			synctest.Wait()
		}
		assert.Zero(t, s.room.Len())
		assert.WithinDuration(t, last, time.Now(), 2*testHeartbeat)
	})
}

// renewing gives the session two permits under its first epoch, and returns their renewal once it is under way.
func renewing(s *session[permitTier]) *renewCall {
	s.t.Helper()
	u := enter(s, 2, 0)
	s.command(1).grant(2)
	require.Equal(s.t, sharedqueue.Admitted, next(s, u.outcome))
	return next(s, s.renewals)
}

func TestACopyRepeatsAllButItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 2)
		enter(s, 3, 0)
		first := s.command(2) // gets no reply
		second := s.command(2)
		assert.Equal(t, []int{4, 5}, []int{second.req.Keep, second.req.Want})
		assert.Equal(t, backend.Token(2), second.req.Under)
		assert.Equal(t, second.at.Add(2*time.Second), second.req.NotAfter)
		assert.Equal(t, second.req.NotAfter, second.req.Memory)
		first.req.NotAfter, first.req.Memory = second.req.NotAfter, second.req.Memory
		assert.Equal(t, first.req, second.req)
	})
}

func TestAnEpochThatIsStaleIsFollowedByOneThatIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		reader := enter(s, "reader", sharedqueue.Read)
		s.command(1).reply <- backend.ShareReply{Status: backend.StaleShare, Epoch: 7}
		s.command(8).grant(1)
		assert.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
	})
}

// The server knows a session's units by the token under which the session got the first of them. A reply about kept
// units may be lost, so the session goes on naming that token.
func TestKeptUnitsAreNamedByTheTokenOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := writing(t)
		require.Equal(t, sharedqueue.Reentered, next(s, enter(s, "w", sharedqueue.Read).outcome))
		s.room.Wanted("x", 0, 0)
		_, ok, _ := s.queue.ExitWrite("w")
		require.True(t, ok)
		s.name.Wake()
		kept := s.command(2)
		assert.Equal(t, []any{1, backend.Token(20)}, []any{kept.req.Keep, kept.req.Under})
		writer := enter(s, "v", sharedqueue.Write)
		kept.reply <- backend.ShareReply{Status: backend.Shared, Units: 1, First: 22, Last: 22, May: backend.Unlimited}
		asked := s.command(3)
		assert.Equal(t, []any{1, backend.Token(20)}, []any{asked.req.Keep, asked.req.Under}, "after a reply")
		asked.reply <- backend.ShareReply{Status: backend.Shared, Units: 1, Placed: true, First: 24, Last: 24, May: backend.Unlimited}
		synctest.Wait()
		writer.leave()
		left := s.command(4)
		assert.Equal(t, []any{1, backend.Token(20)}, []any{left.req.Keep, left.req.Under}, "after a place")
		left.grant(1)
		synctest.Wait()
		assert.Empty(t, s.losses)
	})
}

// A server that has forgotten writes says so by an older token. Readers of a session that knows of them do not read under it.
func TestReadersThatStayKeepTheTokenOfTheirSessionsLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		writer := enter(s, "writer", sharedqueue.Write)
		s.command(1).reply <- backend.ShareReply{Status: backend.Shared, Units: backend.AllUnits, First: 100, Last: 104, May: backend.Unlimited}
		require.Equal(t, sharedqueue.Admitted, next(s, writer.outcome))
		o, _, _ := s.queue.TryRead("writer")
		require.Equal(t, sharedqueue.Reentered, o)
		_, ok, _ := s.queue.ExitWrite("writer")
		require.True(t, ok)
		s.name.Wake()
		told := s.command(2)
		require.Equal(t, []int{1, 1, 100}, []int{told.req.Keep, told.req.Want, int(told.req.Tail)})
		told.reply <- backend.ShareReply{Status: backend.Shared, Units: 1, First: 50, Last: 50, May: backend.Unlimited}
		synctest.Wait()
		assert.EqualValues(t, 100, s.queue.Used())
	})
}

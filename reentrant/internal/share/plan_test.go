package share

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
	"github.com/relock-go/relock/sharedqueue"
)

// withIdle returns the session of a semaphore that has four permits, of which its users have the given number.
func withIdle(t *testing.T, used int) *session[permitTier] {
	s := newPermits(t)
	u := enter(s, 4, 0)
	s.command(1).grant(4)
	require.Equal(t, sharedqueue.Admitted, next(s, u.outcome))
	ok, _ := s.queue.Exit(4 - used)
	require.True(t, ok)
	return s
}

func TestUnitsAreOutOfUseBeforeTheyAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 1)
		s.room.Wanted("x", 1, 0)
		told := s.command(2)
		assert.Equal(t, []int{1, 1}, []int{told.req.Keep, told.req.Want})
		o, _ := s.queue.Try(1)
		assert.Equal(t, sharedqueue.Busy, o, "a unit that is being given back is used before the server has replied")
	})
}

func TestReadersThatAreNoLongerAskedBackKeepTheirRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		a := enter(s, "a", sharedqueue.Read)
		s.command(1).grant(1)
		require.Equal(t, sharedqueue.Admitted, next(s, a.outcome))
		s.room.Wanted("x", 0, 0)
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
			s.room.Wanted("x", 1, 0)
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

// The session has a turn, so it asks the server for nothing before the turn ends.
func TestATryEndsAtOnceInASessionThatHasATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 3)
		o, w, _, _ := s.queue.Enter(2, sharedqueue.Once) // before its Wake, the session receives the message that permits are wanted
		require.Equal(t, sharedqueue.Waiting, o)
		start := time.Now()
		s.room.Wanted("x", 2, 0)
		o, _, _ = s.queue.Wait(w, nil, time.After(time.Minute))
		assert.Equal(t, sharedqueue.Busy, o)
		assert.Zero(t, time.Since(start))
		assert.NoError(t, s.name.Failed(), "the server was not asked")
		assert.Equal(t, 3, s.command(2).req.Want, "idle permits are given back, and none are asked for")
	})
}

// A message that was pushed before the session reconnected is lost, and the reply to the request under way can be older than
// that message.
func TestAReconnectHasARequestRepeatedThatIsUnderWay(t *testing.T) {
	answers := map[string]func(*shareCall){
		"the request gets a reply": func(c *shareCall) { c.place(0) },
		"the request fails":        func(c *shareCall) { c.reply <- backend.ShareReply{} },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newReadWrite(t)
				enter(s, "reader", sharedqueue.Read)
				underWay := s.command(1)
				s.reconnected()
				synctest.Wait()
				answer(underWay)
				assert.Equal(t, underWay.at, s.command(1).at, "the next copy is sent a heartbeat later")
			})
		})
	}
}

func TestATryEndsWhenAnswersDoNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		try := enter(s, 1, sharedqueue.Once)
		asked := s.command(1)
		asked.place(0)
		assert.True(t, asked.req.Try)
		again := s.command(1)
		assert.Equal(t, asked.at.Add(testHeartbeat), again.at, "the holders have a heartbeat's time to answer")
		again.place(0)
		assert.Equal(t, sharedqueue.Busy, next(s, try.outcome))
		left := s.command(2)
		assert.Equal(t, again.at, left.at)
		assert.Zero(t, left.req.Want, "the place is withdrawn")
	})
}

func TestATryEndsWithThePushThatRefusesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		try := enter(s, 1, sharedqueue.Once)
		s.command(1).place(0)
		synctest.Wait()
		start := time.Now()
		s.room.Granted(backend.ShareGrant{Name: "x", Epoch: 1, May: backend.Unlimited})
		assert.Equal(t, sharedqueue.Busy, next(s, try.outcome))
		assert.Zero(t, time.Since(start))
		synctest.Wait()
		assert.Empty(t, s.shares, "the server has no place of the session any more")
	})
}

// The message says that the session has fewer units than it keeps: it is forged, or the server has lost some.
func TestARefusalWithOtherUnitsThanTheSessionKeepsIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 4)
		try := enter(s, 1, sharedqueue.Once)
		asked := s.command(2)
		asked.place(4)
		synctest.Wait()
		s.push(2, 3, 0, 3*testHeartbeat)
		again := s.command(2)
		assert.Equal(t, asked.at, again.at, "a copy is sent at once")
		assert.Empty(t, try.outcome, "the message ends the try")
		again.grant(4)
		assert.Equal(t, sharedqueue.Busy, next(s, try.outcome))
		assert.Empty(t, s.losses)
	})
}

// A session that keeps units has a grant confirmed by a copy. The grant of a try came before its time was over.
func TestAGrantIsConfirmedWhetherItComesBeforeOrAfterTheReply(t *testing.T) {
	for name, mode := range map[string]sharedqueue.Mode{"wait": 0, "try": sharedqueue.Once} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := withIdle(t, 4)
					u := enter(s, 1, mode)
					asked := s.command(2)
					if after {
						asked.place(4)
						synctest.Wait()
					}
					s.push(2, 5, 0, 3*testHeartbeat)
					if !after {
						asked.place(4)
					}
					again := s.command(2)
					assert.Equal(t, asked.at, again.at)
					again.grant(5)
					assert.Equal(t, sharedqueue.Admitted, next(s, u.outcome))
				})
			})
		}
	}
}

// A session answers another session's try as it would answer a session that waits: in a turn it keeps what its next writer waits
// for.
func TestATryDoesNotOvertakeAWriterThatWaitsForReadersOfItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		writer := enter(s, "writer", sharedqueue.Write)
		all := backend.ShareReply{Status: backend.Shared, Units: backend.AllUnits, First: 2, Last: 4, May: backend.Unlimited}
		s.command(1).reply <- all
		require.Equal(t, sharedqueue.Admitted, next(s, writer.outcome))
		reader := enter(s, "reader", sharedqueue.Read)
		next1 := enter(s, "next", sharedqueue.Write)
		_, ok, _ := s.queue.ExitWrite("writer")
		require.True(t, ok)
		require.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
		s.room.Wanted("x", backend.AllUnits-1, 7)
		said := s.command(2)
		assert.Equal(t, []int{backend.AllUnits, backend.AllUnits, 7}, []int{said.req.Keep, said.req.Want, int(said.req.Answer)})
		said.reply <- all
		synctest.Wait()
		_, ok, _ = s.queue.ExitRead("reader")
		require.True(t, ok)
		assert.Equal(t, sharedqueue.Admitted, next(s, next1.outcome))
	})
}

func TestATryIsAnsweredWithWhatIsInUse(t *testing.T) {
	for name, c := range map[string]struct{ used, keep int }{"some are idle": {1, 1}, "all are in use": {4, 4}, "all are idle": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPermits(t)
				u := enter(s, 4, 0)
				s.command(1).grant(4)
				require.Equal(t, sharedqueue.Admitted, next(s, u.outcome))
				ok, _ := s.queue.Exit(4 - c.used)
				require.True(t, ok)
				s.room.Wanted("x", 1, 7)
				said := s.command(2)
				assert.Equal(t, []int{c.keep, c.keep}, []int{said.req.Keep, said.req.Want})
				assert.Equal(t, uint64(7), said.req.Answer)
				said.grant(c.keep)
				synctest.Wait()
				assert.Empty(t, s.shares)
			})
		})
	}
}

func TestAReaderAnswersATryOfAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		reader := enter(s, "reader", sharedqueue.Read)
		s.command(1).grant(1)
		require.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
		s.room.Wanted("x", 0, 7)
		said := s.command(2)
		assert.Equal(t, []int{1, 1}, []int{said.req.Keep, said.req.Want})
		assert.Equal(t, uint64(7), said.req.Answer)
		said.grant(1)
		synctest.Wait()
		s.queue.ExitRead("reader")
		s.room.Wanted("x", 0, 8)
		assert.Zero(t, s.command(3).req.Keep, "an idle unit goes back")
	})
}

// A session whose owner reads after it has written needs only one unit.
func TestADowngradeGivesBackWhatOnlyAWriterNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		writer := enter(s, "owner", sharedqueue.Write)
		s.command(1).reply <- backend.ShareReply{Status: backend.Shared, Epoch: 1, Units: backend.AllUnits, First: 2, Last: 4, May: backend.Unlimited}
		require.Equal(t, sharedqueue.Admitted, next(s, writer.outcome))
		o, _, _ := s.queue.TryRead("owner")
		require.Equal(t, sharedqueue.Reentered, o)
		_, ok, look := s.queue.ExitWrite("owner")
		require.True(t, ok)
		require.True(t, look)
		s.name.Wake()
		said := s.command(2)
		assert.Equal(t, []int{1, 1}, []int{said.req.Keep, said.req.Want})
	})
}

func TestNewcomersComeInWhenNoOtherSessionWaitsAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		a := enter(s, "a", sharedqueue.Read)
		s.command(1).grant(1)
		require.Equal(t, sharedqueue.Admitted, next(s, a.outcome))
		s.room.Wanted("x", 0, 0)
		b := enter(s, "b", sharedqueue.Read)
		s.room.Wanted("x", backend.Unlimited, 0) // the writer has left
		start := time.Now()
		assert.Equal(t, sharedqueue.Admitted, next(s, b.outcome))
		assert.Zero(t, time.Since(start))
	})
}

// A user leaves before a raised or lowered limit applies, so that both sides of the limit are tested.
func TestAClaimWithAnotherLimitReplacesTheOneUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		enter(s, 2, 0)
		first := s.command(1)
		assert.Equal(t, 5, first.req.Limit)
		first.place(0)
		synctest.Wait()
		require.True(t, s.queue.Limit(7))
		s.name.Wake()
		assert.Equal(t, 7, s.command(2).req.Limit)
	})
}

// Another session needs a permit, and this one has more than its share. It keeps some, but none that its users do not
// need.
func TestIdlePermitsGoBackThoughTheSessionMayKeepThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 2)
		s.room.Wanted("x", 3, 0)
		said := s.command(2)
		assert.Equal(t, []int{2, 2}, []int{said.req.Keep, said.req.Want})
	})
}

// A renewal that succeeds while a claim gets no reply keeps the users inside. One that finds nothing proves nothing.
func TestUnitsAreRenewedWhileAClaimGetsNoReply(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := withIdle(t, 4)
			enter(s, 1, 0)
			begun := time.Now()
			for time.Since(begun) < 3*testLease && len(s.losses) == 0 {
				select {
				case c := <-s.shares:
					c.fail <- backend.ErrUnavailable
				case r := <-s.renewals:
					if gone {
						r.reply <- backend.Renewal{Gone: true}
					} else {
						r.reply <- backend.Renewal{Units: 4}
					}
				case <-time.After(testHeartbeat):
				}
				synctest.Wait()
			}
			if gone {
				assert.Equal(t, until(begun, testLease), next(s, s.losses))
			} else {
				assert.Empty(t, s.losses)
			}
		})
	}
}

// A session with its share of the permits keeps the head of the server's queue waiting for two turns. What it asks for then
// is for its own head, in addition to the units of the users inside.
func TestASessionWithItsShareAsksForMoreAfterTwoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		u := enter(s, 2, 0)
		s.command(1).reply <- backend.ShareReply{Status: backend.Shared, Units: 2, First: 2, Last: 2, May: backend.Unlimited, Share: 2}
		require.Equal(t, sharedqueue.Admitted, next(s, u.outcome))
		came := time.Now()
		enter(s, 1, 0)
		asked := s.command(2)
		assert.Equal(t, 2*testTurn, asked.at.Sub(came))
		assert.Equal(t, []int{2, 3, 3}, []int{asked.req.Keep, asked.req.Want, asked.req.Least})
	})
}

func TestAReplyThatAnotherSessionStillWaitsBeginsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 4)
		s.room.Wanted("x", 0, 0)
		time.Sleep(2 * testTurn)
		s.room.Wanted("x", 0, 7)
		r := settled(4)
		r.May = 0
		s.command(2).reply <- r
		synctest.Wait()
		waiter := enter(s, 1, 0)
		ok, _ := s.queue.Exit(1)
		require.True(t, ok)
		s.name.Wake()
		assert.Equal(t, 3, s.command(3).req.Keep)
		assert.Empty(t, waiter.outcome, "a user is admitted though the turn was over")
	})
}

func TestTheHeadOfTheQueueRepeatsItsClaimWhenItsGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		enter(s, 3, 0)
		at := time.Now()
		for _, wait := range []time.Duration{0, backend.ShareGrace + time.Millisecond, testHeartbeat} {
			c := s.command(1)
			assert.Equal(t, wait, c.at.Sub(at))
			at = c.at
			c.place(0)
		}
	})
}

func TestASessionThatWaitsGivesBackWhatItMayNotKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 2)
		enter(s, 3, 0)
		asked := s.command(2)
		assert.Equal(t, []int{4, 5}, []int{asked.req.Keep, asked.req.Want})
		r := settled(4)
		r.Placed, r.May = true, 3 // another session is the head of the queue
		asked.reply <- r
		less := s.command(3)
		assert.Equal(t, []int{2, 5}, []int{less.req.Keep, less.req.Want})
		assert.Equal(t, asked.at, less.at)
	})
}

func TestASessionThatWaitsAnswersATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 4)
		enter(s, 1, 0)
		s.command(2).place(4)
		synctest.Wait()
		s.room.Wanted("x", 3, 7)
		said := s.command(3)
		assert.Equal(t, []int{4, 5, 7}, []int{said.req.Keep, said.req.Want, int(said.req.Answer)})
	})
}

// A user that only another user of its session can help has not asked the server for anything.
func TestAWaitForUsersOfTheSessionIsNotUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withIdle(t, 4)
		time.Sleep(time.Second)
		begun := time.Now()
		wide := enter(s, 2, 0)
		synctest.Wait()
		assert.Empty(t, s.shares, "all but one of the permits are in use here")
		assert.NoError(t, s.name.Unheard(begun))
		wide.leave()
	})
}

// At each heartbeat the server replies that the session's first user waits. That reply is the answer for the users behind it, too.
func TestAWaitBehindOneThatWaitsAtTheServerIsUnheardOnlyWhileACopyIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		first := enter(s, 4, 0)
		s.command(1).place(0)
		s.command(1).place(0) // when the grace is over
		time.Sleep(time.Millisecond)
		begun := time.Now()
		second := enter(s, 1, 0)
		time.Sleep(testHeartbeat / 2)
		assert.NoError(t, s.name.Unheard(begun), "others come first")
		again := s.command(1)
		assert.ErrorIs(t, s.name.Unheard(begun), backend.ErrUnavailable)
		again.place(0)
		synctest.Wait()
		assert.NoError(t, s.name.Unheard(begun))
		second.leave()
		first.leave()
	})
}

// A try comes just after another one has failed. If the session sent the earlier claim again, the server would repeat its earlier
// reply, so the try gets a new epoch.
func TestATryHasNoEarlierReplyRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epochs := uint64(0)
		options := plan.Options{
			Opened: time.Now(), Lease: time.Minute, Heartbeat: testHeartbeat, CommandTimeout: time.Second, Patience: time.Minute, GrantTTL: time.Minute,
			Jitter: func(time.Duration) time.Duration { return 0 }, Pause: func(int, time.Duration) time.Duration { return time.Second },
			EpochAbove: func(uint64) uint64 { epochs++; return epochs }, Seen: func() backend.Token { return 0 }, Saw: func(backend.Token) {},
		}
		queue := sharedqueue.NewPermits(func() time.Duration { return time.Since(options.Opened) })
		p, at := plan.New(backend.Permits), plan.Moment{Options: &options, Now: time.Now(), Tier: permitTier{Permits: queue}}
		ask := func() (epoch uint64) {
			o, w, _, _ := queue.Enter(1, sharedqueue.Once)
			require.Equal(t, sharedqueue.Waiting, o)
			_, send := p.Next(&at)
			require.True(t, send)
			p.Send(&at)
			epoch = p.Request(&at, at.Now).Epoch
			p.Failed(&at, plan.Failure{})
			o, _, _ = queue.Wait(w, nil, nil)
			require.Equal(t, sharedqueue.Unanswered, o)
			return epoch
		}
		first := ask()
		assert.Greater(t, ask(), first)
	})
}

// A server that has replied to a claim is not silent while the next copy is under way, though its reply did not say that others
// have the permits. Only a try needs a reply that says so.
func TestAWaitIsNotInterruptedByAServerThatHasReplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		begun := time.Now()
		first := enter(s, 4, 0)
		asked := s.command(1)
		assert.ErrorIs(t, s.name.Interrupted(begun), backend.ErrUnavailable)
		time.Sleep(time.Millisecond)
		asked.reply <- backend.ShareReply{Status: backend.StaleShare, Epoch: 7}
		again := s.command(8)
		assert.NoError(t, s.name.Interrupted(begun))
		assert.ErrorIs(t, s.name.Unheard(begun), backend.ErrUnavailable)
		again.place(0)
		synctest.Wait()
		first.leave()
	})
}

// The server may have granted the units after it replied to a copy that was sent before the time of a wait was up.
func TestALastCallIsAnsweredByNoCopyThatWasSentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		begun := time.Now()
		waiter := enter(s, 4, 0)
		s.command(1).place(0)
		early := s.command(1)
		time.Sleep(time.Millisecond)
		heard := s.name.LastCall(begun)
		require.NotNil(t, heard)
		early.place(0)
		last := s.command(1)
		select {
		case err := <-heard:
			assert.Fail(t, "a copy that was sent before is taken for the answer", err)
		default:
		}
		last.place(0)
		require.NoError(t, next(s, heard))
		waiter.leave()
	})
}

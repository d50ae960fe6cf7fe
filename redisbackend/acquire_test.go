package redisbackend_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

func TestAcquireTakesAFreeLock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		before := s.clock()
		reply := a.acquire(5)
		assert.Equal(t, backend.Granted, reply.Status)
		assert.Equal(t, reply.First, reply.Last)
		assert.GreaterOrEqual(t, int64(reply.First), before)
		assert.Equal(t, "a:1=1", s.hash())
		s.assertFull(lease, s.ttl())
		token := strconv.FormatUint(uint64(reply.First), 10)
		assert.Equal(t, []string{token, token, "a", "5", "0", "h", brief}, s.record())
	})
}

func TestAcquireTwiceGivesTheSameTokenAndAFullLease(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		token := a.take(5)
		s.shorten()
		assert.Equal(t, token, a.take(5))
		s.assertFull(lease, s.ttl())
		assert.Equal(t, "a:1=1", s.hash())
	})
}

func TestAcquireOfAHeldLockReturnsTheHoldersTTL(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		reply := b.acquire(1)
		assert.Equal(t, backend.Waiting, reply.Status)
		s.assertFull(lease, reply.TTL)
		assert.Empty(t, s.queued(), "it did not ask for a place")
	})
}

func TestAcquireTwiceKeepsOnePlace(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.take(1)
		b.wait(1, impatient)
		c.wait(1)
		b.wait(1)
		assert.Equal(t, []string{"b", "c"}, s.queued(), "a heartbeat keeps the session's place")
		b.wait(2)
		assert.Equal(t, []string{"b", "c"}, s.queued(), "the session's next attempt keeps the place too")
		assert.Equal(t, []string{"b", "c"}, c.inspect().Waiting, "the deadline of the place has moved")
		assert.Equal(t, backend.Stale, b.acquire(1, queue).Status, "a late heartbeat of the older attempt")
		a.release(1)
		assert.Equal(t, uint64(2), b.granted().Epoch)
	})
}

func TestAnEpochIsGivenTheLockAtMostOnce(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		a.take(5)
		assert.Equal(t, backend.Stale, a.acquire(4).Status, "a copy of an older attempt")
		assert.Equal(t, "a:1=1", s.hash())
		a.release(5)
		assert.Equal(t, backend.Stale, a.acquire(5).Status, "released")
		assert.Equal(t, backend.Stale, a.acquire(5, queue).Status)
		assert.Empty(t, s.queued())
		a.take(6)
		s.lapse()
		assert.Equal(t, backend.Stale, a.acquire(6).Status, "expired")
		assert.Empty(t, s.hash())
		a.take(7)
	})
}

func TestAHigherEpochTakesOver(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		first := a.take(5)
		s.shorten()
		second := a.take(6, owned("2"))
		assert.Greater(t, second, first, "every holder has a token of its own")
		assert.Equal(t, "a:2=1", s.hash())
		s.assertFull(lease, s.ttl())
		assert.Equal(t, second, a.take(6, owned("2")), "twice")
		assert.Equal(t, backend.Stale, a.acquire(5).Status)
		s.shorten()
		third := a.take(7, keep, func(r *backend.AcquireRequest) { r.Holds = 3 })
		assert.Greater(t, third, second)
		assert.Equal(t, "a:1=3", s.hash())
		s.assertShort()
	})
}

func TestYieldGivesTheLockToTheFirstWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		first := a.take(1)
		b.wait(1, owned("77"))
		c.wait(1)
		reply := a.acquire(2, yield)
		assert.Equal(t, backend.Waiting, reply.Status)
		s.assertFull(grantTTL, reply.TTL)
		assert.Equal(t, "b:77=1", s.hash())
		assert.Equal(t, []string{"c", "a"}, s.queued())
		assert.Greater(t, b.granted().First, first)
		assert.Equal(t, backend.Waiting, a.acquire(2, yield).Status, "twice")
		assert.Equal(t, []string{"c", "a"}, s.queued())
		b.release(1)
		c.granted()
		c.release(1)
		assert.Equal(t, uint64(2), a.granted().Epoch)
	})
}

func TestYieldWithoutWaitersKeepsTheLock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		b.wait(1, impatient)
		s.stuck("b")
		a.take(2, yield)
		assert.Equal(t, "a:1=1", s.hash())
		assert.Empty(t, s.queued())
	})
}

func TestLateCopiesAreRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		for _, req := range []backend.AcquireRequest{request(1, queue), request(1, queue, keep)} {
			req.NotAfter = time.Now().Add(-time.Second)
			_, err := a.remote.Acquire(s.ctx(), req)
			require.ErrorContains(t, err, "too late")
			assert.False(t, backend.OutcomeUnknown(err), "a late copy changes nothing")
			assert.False(t, backend.Refused(err), "the attempt may be repeated with a later time limit")
			assert.Empty(t, s.hash())
			assert.Empty(t, s.queued())
		}
		a.take(1)
	})
}

func TestALateCopyOfAnAbandonedAttemptIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		assert.Equal(t, backend.Nothing, a.release(5, doubtfulFor(time.Minute)))
		assert.Equal(t, backend.Stale, a.acquire(5).Status, "a late copy of the attempt")
		assert.Equal(t, backend.Stale, a.acquire(4, queue).Status, "a late copy of an older attempt")
		assert.Empty(t, s.hash())
		b.take(5)
		b.release(5)
		assert.Equal(t, backend.Stale, a.acquire(5).Status, "other sessions acquire and release the lock meanwhile")
		a.take(6)
		a.release(6)
		assert.Equal(t, backend.Nothing, a.release(3, doubtfulFor(time.Minute)))
		assert.Equal(t, backend.Stale, a.acquire(5).Status, "a lower tombstone does not undo a higher one")
	})
}

func TestTombstonesAreDeletedAfterTheirTime(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.release(5, doubtfulFor(time.Minute))
		assert.Len(t, s.record(), 8, "%q", s.record())
		s.settle("a", 5)
		a.take(5)
		assert.Len(t, s.record(), 7, "no tombstone is left: %q", s.record())
		b.release(9, doubtfulFor(time.Minute))
		assert.Len(t, s.record(), 8, "the expired tombstone is deleted: %q", s.record())
		b.release(10, doubtfulFor(time.Minute))
		assert.Len(t, s.record(), 8, "one tombstone for each session: %q", s.record())
	})
}

func TestWaitersGetTheLockInOrder(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		last := a.take(1)
		var waiters []*member
		for i, id := range []string{"b", "c", "d"} {
			m := s.join(id)
			m.wait(uint64(i+10), owned("~"+id))
			waiters = append(waiters, m)
		}
		holder, epoch := a, uint64(1)
		for i, m := range waiters {
			start := time.Now()
			assert.Equal(t, backend.Released, holder.release(epoch))
			require.Equal(t, m.id+":~"+m.id+"=1", s.hash())
			g := m.granted()
			holder, epoch = m, uint64(i+10)
			assert.Equal(t, s.name, g.Name)
			assert.Equal(t, epoch, g.Epoch)
			assert.Greater(t, g.First, last)
			assert.Equal(t, g.First, g.Last)
			assert.Equal(t, grantTTL, g.TTL)
			assert.WithinRange(t, g.NotBefore, start.Add(-2*time.Second-time.Since(s.began)), time.Now())
			assert.Equal(t, "g", s.record()[5])
			last = g.First
		}
		for _, m := range waiters {
			assert.Empty(t, m.grants, "only the session that was granted the lock gets a message")
		}
	})
}

func TestConfirmingAGrantGivesAFullLease(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		b.wait(1)
		a.release(1)
		g := b.granted()
		s.assertFull(grantTTL, s.ttl())
		assert.Equal(t, g.First, b.take(1, queue))
		s.assertFull(lease, s.ttl())
		assert.Equal(t, "h", s.record()[5])
	})
}

func TestDeadWaitersAreSkipped(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c, d := s.join("a"), s.join("b"), s.join("c"), s.join("d")
		a.take(1)
		b.wait(1, impatient)
		c.wait(1, impatient)
		d.wait(1)
		s.stuck("b")
		s.stuck("c")
		assert.Equal(t, []string{"d"}, a.inspect().Waiting)
		a.release(1)
		require.Equal(t, "d:1=1", s.hash())
		d.granted()
		assert.Empty(t, s.queued())
		assert.Empty(t, b.grants)
		b.wait(1)
		assert.Equal(t, []string{"b"}, s.queued(), "a session that comes back is last in the queue")
	})
}

func TestAFreeLockGoesToTheFirstWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.take(1)
		b.acquire(1, queue)
		s.lapse() // the lock expired and was not released, so no session got a message
		reply := c.acquire(1, queue)
		assert.Equal(t, backend.Waiting, reply.Status, "a new session finds the lock free and another session in the queue")
		s.assertFull(grantTTL, reply.TTL)
		b.granted()
		assert.Equal(t, "b:1=1", s.hash())
		assert.Equal(t, []string{"c"}, s.queued())
	})
}

func TestTheFirstWaitersHeartbeatTakesAFreeLock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		b.acquire(1, queue)
		s.lapse()
		b.take(1, queue)
		assert.Empty(t, s.queued())
		assert.Equal(t, "h", s.record()[5])
	})
}

func TestBargingPassesWaitersOfAFreeLock(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.take(1)
		b.acquire(1, queue)
		c.acquire(1, queue)
		s.lapse()
		assert.Equal(t, backend.Stale, c.acquire(0, barge).Status, "an older attempt than the one that waits")
		c.take(2, barge)
		assert.Equal(t, []string{"b"}, s.queued(), "the session's own place is deleted")
		assert.Equal(t, backend.Waiting, a.acquire(2, barge).Status, "barging does not take a held lock")
	})
}

func TestAFixedLeaseStartsOnce(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1, fixed)
		s.shorten()
		a.take(1, fixed)
		s.assertShort("a resend does not prolong it")
		b.wait(1, fixed)
		a.release(1)
		b.granted()
		s.shorten()
		b.take(1, fixed, queue)
		s.assertFull(lease, s.ttl(), "a fixed lease of a grant starts when the grant is confirmed")
		s.shorten()
		b.take(1, fixed, queue)
		s.assertShort()
	})
}

func TestTokensRiseOverAnything(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		last := a.take(1)
		rises := func(token backend.Token, over string) {
			assert.Greater(t, token, last, "over %s", over)
			last = token
		}
		a.release(1)
		rises(b.take(1), "release")
		b.release(1)
		rises(a.take(2), "the same session")
		s.lapse()
		rises(b.take(2), "expiry")
		s.run("FLUSHALL")
		rises(a.take(3), "FLUSHALL")
		a.release(3)
		ahead := last + 1e9
		rises(b.take(3, func(r *backend.AcquireRequest) { r.Seen = ahead }), "tokens of another server that the session has seen")
		assert.Equal(t, ahead+1, last)
		b.release(3)
		rises(a.take(4), "a server whose clock is behind")
		assert.Equal(t, ahead+2, last)
	})
}

func TestTheRecordIsKeptUntilTheClockHasCaughtUp(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		ahead := backend.Token(s.clock()) + 3600e6 // an hour
		a.take(1, func(r *backend.AcquireRequest) { r.Seen = ahead })
		kept, err := s.do("TTL", s.side("t")).ToInt64()
		require.NoError(t, err)
		assert.InDelta(t, 3600+300, kept, 5+time.Since(s.began).Seconds())
		a.release(1)
		a.take(2, func(r *backend.AcquireRequest) { r.Lease = time.Hour })
		kept, err = s.do("TTL", s.side("t")).ToInt64()
		require.NoError(t, err)
		assert.InDelta(t, 3600+7200, kept, 5+time.Since(s.began).Seconds(), "twice a long lease")
	})
}

func TestTokensComeInBlocks(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		block := func(r *backend.AcquireRequest) { r.Tokens = 64 }
		reply := a.acquire(1, block)
		assert.Equal(t, reply.First+63, reply.Last)
		b.wait(1, block)
		a.release(1, func(r *backend.ReleaseRequest) { r.Used = reply.First + 2 })
		g := b.granted()
		assert.Equal(t, g.First+63, g.Last)
		assert.GreaterOrEqual(t, g.First, reply.First+3)
	})
}

func TestTheUnusedTailOfABlockIsGivenBack(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		used := func(n backend.Token) func(*backend.ReleaseRequest) {
			return func(r *backend.ReleaseRequest) { r.Used = n }
		}
		for epoch := uint64(1); ; epoch += 3 {
			ahead := backend.Token(s.clock()) + 4e6 // so far ahead that the whole block of tokens is ahead of the clock
			reply := a.acquire(epoch, func(r *backend.AcquireRequest) { r.Tokens, r.Seen = 64, ahead })
			assert.Equal(t, backend.Released, a.release(epoch, used(reply.First+9)))
			assert.Equal(t, backend.Nothing, a.release(epoch, used(reply.First+2)), "twice")
			second := a.take(epoch + 1)
			a.release(epoch+1, used(reply.First-1))
			third := a.take(epoch + 2)
			a.release(epoch + 2)
			if s.clock() >= int64(ahead) {
				continue // the clock has passed the block already: this machine is slow
			}
			require.Equal(t, ahead+1, reply.First)
			assert.Equal(t, reply.First+63, reply.Last)
			assert.Equal(t, ahead+11, second, "the next one follows the last that was used")
			assert.Equal(t, ahead+12, third, "a token that is not in the block gives nothing back")
			return
		}
	})
}

// Lua keeps only the first 14 digits of a number when it concatenates the number to a text. Real Redis does so, and the
// embedded one does not.
func TestNumbersKeepAllTheirDigits(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		const epoch = 9007199254740101 // below 2⁵³
		seen := backend.Token(s.clock()/10000*10000 + 100*86400e6 + 1)
		reply := a.acquire(epoch, func(r *backend.AcquireRequest) { r.Seen = seen })
		assert.Equal(t, seen+1, reply.First)
		assert.Equal(t, seen+1, reply.Last)
		token := text(int64(seen + 1))
		assert.Equal(t, []string{token, token, "a", "9007199254740101", "0", "h"}, s.record()[:6])
		a.reenter(epoch, epoch, 2, 0)
		assert.Equal(t, "9007199254740101", s.record()[4])
		b.wait(epoch, func(r *backend.AcquireRequest) { r.Seen = seen + 200 })
		assert.Equal(t, backend.Released, a.release(epoch, doubtfulFor(time.Minute)))
		g := b.granted()
		assert.Equal(t, uint64(epoch), g.Epoch)
		assert.Equal(t, seen+201, g.First)
		assert.Contains(t, s.record()[7], "a:9007199254740101:")
		assert.Equal(t, backend.Stale, a.acquire(epoch).Status)
		assert.Equal(t, backend.Waiting, a.acquire(epoch+1).Status)
	})
}

// Lua's string.format ends a %s at the first NUL byte of its text. Real Redis does so, and the embedded one does not.
func TestNamesAndOwnersAreAnyBytes(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, name := range []string{"a\x00b", "a b\r\nc", "\xff\xfe", "{t}\x00", "%s %d", " "} {
			s.name = name
			a, b := s.join(unique("a")), s.join(unique("b"))
			owner := "~o\x00w n\r\n\xff:1"
			a.take(1)
			b.wait(1, owned(owner))
			a.release(1)
			assert.Equal(t, name, b.granted().Name)
			assert.Equal(t, b.id+":"+owner+"=1", s.hash())
			reply, err := b.remote.Reenter(s.ctx(), backend.ReenterRequest{Epoch: 1, Owner: owner, Op: 1, Holds: 2})
			require.NoError(t, err)
			assert.Equal(t, 2, reply.Holds)
			state := b.inspect()
			assert.Equal(t, owner, state.Owner)
			assert.Equal(t, b.id, state.Session)
			assert.Equal(t, name, b.remote.Name())
		}
	})
}

func TestAKeyOfAnotherTypeIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		s.run("SET", s.name, "mine")
		_, err := a.remote.Acquire(s.ctx(), request(1))
		require.ErrorContains(t, err, "WRONGTYPE")
		assert.True(t, backend.Refused(err))
		assert.False(t, backend.OutcomeUnknown(err))
		value, err := s.do("GET", s.name).ToString()
		require.NoError(t, err)
		assert.Equal(t, "mine", value)
	})
}

func TestAttemptsThatWouldExpireAtOnceAreNotSent(t *testing.T) {
	s := embedded(t)
	a := s.join("a")
	for what, change := range map[string]func(*backend.AcquireRequest){
		"hold count": func(r *backend.AcquireRequest) { r.Holds = 0 },
		"tokens":     func(r *backend.AcquireRequest) { r.Tokens = 0 },
		"lease":      func(r *backend.AcquireRequest) { r.Lease = 0 },
		"patience":   func(r *backend.AcquireRequest) { r.Queue, r.Patience = true, 0 },
		"grant TTL":  func(r *backend.AcquireRequest) { r.Queue, r.GrantTTL = true, 0 },
	} {
		_, err := a.remote.Acquire(s.ctx(), request(1, change))
		require.ErrorContains(t, err, what)
		assert.True(t, backend.Refused(err))
	}
	assert.Empty(t, s.hash())
}

// Keys that all waiters share expire when the longest time that any waiter asked for is over, whatever the order of the
// waiters' requests.
func TestSharedKeysLastForTheLongestTimeAnyWaiterAskedFor(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for kind, s := range map[string]*site{"scripts": s, "transactions": s.withoutScripts()} {
			s.run("FLUSHALL")
			a, b, c := s.join("a"+kind), s.join("b"+kind), s.join("c"+kind)
			a.take(1)
			b.wait(1, func(r *backend.AcquireRequest) { r.Lease = 2 * time.Hour })
			c.wait(1)
			for _, key := range []string{"q", "w"} {
				kept, err := s.do("TTL", s.side(key)).ToInt64()
				require.NoError(t, err)
				assert.Greater(t, kept, int64(3600), "%s: %s", kind, key)
			}
		}
	})
}

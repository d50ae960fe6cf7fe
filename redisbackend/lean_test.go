package redisbackend_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// The tests in this file show that what a session remembers of a lock saves work in Redis and changes nothing else.

// remembering changes an attempt to that of a session which remembers the given state of the lock.
func remembering(p backend.Prior) func(*backend.AcquireRequest) {
	return func(r *backend.AcquireRequest) { r.Prior = p }
}

// remembers changes a release to that of a session which remembers the given state of the lock.
func remembers(p backend.Prior) func(*backend.ReleaseRequest) {
	return func(r *backend.ReleaseRequest) { r.Prior = p }
}

// scripts returns how many scripts Redis has run during f. On the embedded Redis, which does not count, it returns 1.
func (s *site) scripts(f func()) int {
	s.Helper()
	if s.do("INFO", "commandstats").Error() != nil {
		f()
		return 1
	}
	before := scriptCalls(s)
	f()
	return scriptCalls(s) - before
}

func (m *member) takeRemembered(epoch uint64, change ...func(*backend.AcquireRequest)) backend.Prior {
	m.Helper()
	reply := m.acquire(epoch, change...)
	require.Equal(m, backend.Granted, reply.Status)
	require.Equal(m, epoch, reply.Prior.Epoch)
	return reply.Prior
}

func TestPassIsOneCommand(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		first := a.takeRemembered(1)
		s.shorten()
		var second backend.Prior
		assert.Equal(t, 1, s.scripts(func() { second = a.takeRemembered(2, owned("2"), keep, remembering(first)) }))
		assert.Equal(t, first.Token+1, second.Token)
		token := text(int64(second.Token))
		assert.Equal(t, []string{token, token, "a", "2", "0", "h", brief}, s.record())
		assert.Equal(t, "a:2=1", s.hash())
		s.assertShort("the lease does not begin again")
		s.run("PEXPIRE", s.side("t"), "60000")
		assert.Equal(t, 1, s.scripts(func() { a.takeRemembered(3, owned("2"), remembering(second)) }))
		assert.Equal(t, "a:2=1", s.hash())
		s.assertFull(lease, s.ttl(), "a lease begins")
		kept, err := s.do("PTTL", s.side("t")).ToInt64()
		require.NoError(t, err)
		assert.Greater(t, kept, int64(60000), "the record is kept")
	})
}

func TestPassTokensRise(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		p := a.takeRemembered(1)
		seen := p.Token + 1000
		p = a.takeRemembered(2, keep, remembering(p), func(r *backend.AcquireRequest) { r.Seen = seen })
		assert.Equal(t, seen+1, p.Token, "the token is above all that the session has seen")
		const ahead = 2 * limit // the token is past the attempt's time limit, even if the attempt is sent late
		seen += backend.Token(ahead.Microseconds())
		far := a.acquire(3, remembering(p), func(r *backend.AcquireRequest) { r.Seen = seen })
		assert.Greater(t, far.First, seen)
		kept, err := s.do("TTL", s.side("t")).ToInt64()
		require.NoError(t, err)
		assert.Greater(t, kept, int64((2*lease + ahead/2).Seconds()), "a record lasts longer if its token is far ahead of the clock")
	})
}

// older returns a function that puts the lock back into its present state, as if a replica that lacked later writes became the
// master.
func (s *site) older() (restore func()) {
	s.Helper()
	record, err := s.do("GET", s.side("t")).ToString()
	require.NoError(s, err)
	field, holds, held := strings.Cut(s.hash(), "=")
	return func() {
		s.Helper()
		s.run("DEL", s.name)
		if held {
			s.run("HSET", s.name, field, holds)
			s.run("PEXPIRE", s.name, text(lease.Milliseconds()))
		}
		s.run("SET", s.side("t"), record)
	}
}

func TestPassAndTakeGiveNoLowerTokensWhenRedisForgotTheLast(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		p := a.takeRemembered(1)
		restore := s.older()
		b.forced()
		lost := b.take(1)
		restore()
		p = a.takeRemembered(2, remembering(p))
		assert.Greater(t, p.Token, lost, "the hold is passed on with a new lease")
		assert.Equal(t, text(int64(p.Token)), s.record()[1])

		a.release(2, remembers(p))
		p.Freed = true
		restore = s.older()
		lost = b.take(2)
		restore()
		p = a.takeRemembered(3, remembering(p))
		assert.Greater(t, p.Token, lost, "taken")
		assert.Equal(t, text(int64(p.Token)), s.record()[1])
	})
}

// otherwise has ways in which a lock can change after the session's epoch 1, whose state the session remembers.
var otherwise = map[string]func(s *site, a, b *member){
	"forced and taken":        func(s *site, a, b *member) { b.forced(); b.take(1) },
	"forced":                  func(s *site, a, b *member) { b.forced() },
	"re-entered":              func(s *site, a, b *member) { a.reenter(1, 1, 2, lease) },
	"passed on":               func(s *site, a, b *member) { a.take(2, owned("2")) },
	"released":                func(s *site, a, b *member) { a.release(1) },
	"released and had by b":   func(s *site, a, b *member) { a.release(1); b.take(1); b.release(1) },
	"over":                    func(s *site, a, b *member) { s.lapse() },
	"a record that was lost":  func(s *site, a, b *member) { s.run("DEL", s.side("t")) },
	"a hold that was lost":    func(s *site, a, b *member) { s.run("DEL", s.name) },
	"in doubt":                func(s *site, a, b *member) { a.release(0, doubtfulFor(time.Minute)) },
	"waited for":              func(s *site, a, b *member) { b.wait(1) },
	"waited for, and lost":    func(s *site, a, b *member) { b.wait(1); s.run("DEL", s.name) },
	"waited for and released": func(s *site, a, b *member) { b.wait(1); a.release(1); b.granted() },
	"waited for by the dead":  func(s *site, a, b *member) { b.wait(1, impatient); s.stuck(b.id) },
	"waited for, for a block": func(s *site, a, b *member) { b.wait(1, func(r *backend.AcquireRequest) { r.Tokens = 3 }) },
	"waited for, with a high token": func(s *site, a, b *member) {
		b.wait(1, func(r *backend.AcquireRequest) { r.Seen = backend.Token(s.clock() + time.Minute.Microseconds()) })
	},
	"waited for, for long": func(s *site, a, b *member) {
		b.wait(1, func(r *backend.AcquireRequest) { r.Lease = time.Hour })
	},
	"waited for, to linger": func(s *site, a, b *member) { b.wait(1, owned(backend.LingeringOwner)) },
	"waited for, long ago": func(s *site, a, b *member) {
		b.wait(1)
		s.run("EXPIRE", s.side("q"), "100")
		s.run("EXPIRE", s.side("w"), "100")
	},
	"waited for by itself": func(s *site, a, b *member) {
		s.run("RPUSH", s.side("q"), a.id)
		s.run("HSET", s.side("w"), a.id, "1 "+text(s.clock()+time.Minute.Microseconds())+" 1000 1 1 0 300 3")
	},
	"waited for by both": func(s *site, a, b *member) {
		b.wait(1)
		s.run("RPUSH", s.side("q"), a.id)
		s.run("HSET", s.side("w"), a.id, "1 "+text(s.clock()+time.Minute.Microseconds())+" 1000 1 1 0 300 3")
	},
}

// forced takes the lock away from its holder.
func (m *member) forced() {
	m.Helper()
	_, err := m.remote.ForceUnlock(m.ctx(), time.Now().Add(time.Minute))
	require.NoError(m, err)
}

// state returns what Redis stores for the lock, except tokens and times.
func (s *site) state() string {
	s.Helper()
	var words []string
	if raw, err := s.do("GET", s.side("t")).ToString(); err == nil {
		words = strings.Split(raw, " ")[:7]
		first, last := number(s, words[0]), number(s, words[1])
		words[0], words[1] = text(last-first), strconv.FormatBool(first > s.clock())
	}
	return strings.Join(slices.Concat(words, []string{s.hash()}, s.queued(), s.places()), "|")
}

// places returns the waiters' entries without their deadlines, and whether the keys of the queue are kept for long.
func (s *site) places() (entries []string) {
	s.Helper()
	all, err := s.do("HGETALL", s.side("w")).AsStrMap()
	require.NoError(s, err)
	for session, entry := range all {
		words := strings.Split(entry, " ")
		if words[5] != "0" {
			words[5] = "high"
		}
		entries = append(entries, session+" "+strings.Join(slices.Delete(words, 1, 2), " "))
	}
	slices.Sort(entries)
	for _, kind := range []string{"q", "w"} {
		ttl, err := s.do("TTL", s.side(kind)).ToInt64()
		require.NoError(s, err)
		entries = append(entries, fmt.Sprintf("%s kept for %d s", kind, (ttl+99)/200*200)) // 100, 300 and 7200 s, far from the bounds
	}
	return entries
}

// Whatever has happened to the lock, the result of an attempt or a release is what it would be if the session remembered
// nothing.
func TestPassTakeAndFreeAreAsWithoutAMemory(t *testing.T) {
	sends := map[string]func(a *member, p backend.Prior) any{
		"pass": func(a *member, p backend.Prior) any { return a.acquire(5, owned("3"), queue, remembering(p)).Status },
		"pass, keeping": func(a *member, p backend.Prior) any {
			return a.acquire(5, owned("3"), queue, keep, remembering(p)).Status
		},
		"take": func(a *member, p backend.Prior) any {
			p.Freed = p.Epoch > 0
			return a.acquire(5, owned("3"), queue, remembering(p)).Status
		},
		"take, barging": func(a *member, p backend.Prior) any {
			p.Freed = p.Epoch > 0
			return a.acquire(5, owned("3"), barge, remembering(p)).Status
		},
		"yield": func(a *member, p backend.Prior) any { return a.acquire(5, owned("3"), yield, remembering(p)).Status },
		"free": func(a *member, p backend.Prior) any {
			return a.release(1, remembers(p)) == backend.Nothing
		},
	}
	each(t, func(t *testing.T, s *site) {
		for event, happens := range otherwise {
			a, b := s.join(unique("a")), s.join(unique("b"))
			for kind, send := range sends {
				var states, answers [2]any
				for i := range 2 {
					s.name = unique("lock")
					a.remote, b.remote = a.bind(s.name), b.bind(s.name)
					p := a.takeRemembered(1)
					if i == 1 {
						p = backend.Prior{}
					}
					happens(s, a, b)
					answers[i] = send(a, p)
					states[i] = strings.NewReplacer(a.id, "a", b.id, "b").Replace(s.state())
				}
				assert.Equal(t, answers[1], answers[0], "%s: %s has another result than the full script", event, kind)
				assert.Equal(t, states[1], states[0], "%s: %s leaves something else than the full script", event, kind)
			}
		}
	})
}

func TestPassOfAnyBytes(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.name = "a\x00b t\r\n"
		a := s.join("a")
		one, two := "~o\x00w n\r\n\xff:1", "~o\x00w n\r\n\xff:2"
		p := a.takeRemembered(1, owned(one))
		assert.Equal(t, 1, s.scripts(func() { p = a.takeRemembered(2, owned(two), keep, remembering(p)) }))
		assert.Equal(t, "a:"+two+"=1", s.hash())
		assert.Equal(t, backend.Freed, a.release(2, remembers(p)))
		p.Freed = true
		assert.Equal(t, 1, s.scripts(func() { a.takeRemembered(3, owned(one), remembering(p)) }))
		assert.Equal(t, "a:"+one+"=1", s.hash())
	})
}

func TestPassAfterAPush(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1)
		b.wait(7)
		a.release(1)
		g := b.granted()
		p := backend.Prior{Epoch: g.Epoch, Owner: "1", Token: g.First, Pushed: true}
		assert.Equal(t, 1, s.scripts(func() { b.takeRemembered(8, owned("2"), remembering(p)) }))
		assert.Equal(t, "b:2=1", s.hash())
		s.assertFull(lease, s.ttl())
		assert.Equal(t, "h", s.record()[5])
	})
}

func TestFreeAfterAPush(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		pushed := func(to *member) func(*backend.ReleaseRequest) {
			g := to.granted()
			return remembers(backend.Prior{Epoch: g.Epoch, Owner: "1", Token: g.First, Pushed: true})
		}
		a.take(1)
		b.wait(1)
		a.release(1)
		got := pushed(b)
		a.wait(2)
		assert.Equal(t, 1, s.scripts(func() { assert.Equal(t, backend.Released, b.release(1, got)) }), "it is given to a waiter")
		assert.Equal(t, "a:1=1", s.hash())
		got = pushed(a)
		assert.Equal(t, 1, s.scripts(func() { assert.Equal(t, backend.Released, a.release(2, got)) }))
		assert.Empty(t, s.hash())

		b.take(2, func(r *backend.AcquireRequest) { r.Lease = time.Hour }) // so that the record is kept for longer
		a.wait(3)
		b.release(2)
		got = pushed(a)
		assert.Equal(t, backend.Released, a.release(3, got), "the record is another one")
		assert.Empty(t, s.hash())
	})
}

func TestYieldIsRefusedLate(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		p := a.takeRemembered(1)
		b.wait(1)
		before := s.state()
		limit := time.Now().Add(20 * time.Millisecond) // the token is below this limit: only the time can refuse it
		time.Sleep(time.Until(limit) + time.Millisecond)
		_, err := a.remote.Acquire(s.ctx(), request(2, yield, remembering(p), func(r *backend.AcquireRequest) { r.NotAfter = limit }))
		require.ErrorIs(t, err, backend.ErrUnavailable)
		assert.Equal(t, before, s.state())
	})
}

func TestPassAndTakeAreRefusedLate(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, freed := range []bool{false, true} {
			s.name = unique("late")
			a := s.join(unique("a"))
			p := a.takeRemembered(1)
			if p.Freed = freed; freed {
				a.release(1)
			}
			before := s.state()
			limit := time.Now().Add(20 * time.Millisecond) // the token is below this limit: only the time can refuse it
			time.Sleep(time.Until(limit) + time.Millisecond)
			_, err := a.remote.Acquire(s.ctx(), request(2, remembering(p), func(r *backend.AcquireRequest) { r.NotAfter = limit }))
			require.ErrorIs(t, err, backend.ErrUnavailable)
			assert.Equal(t, before, s.state())
		}
	})
}

// If the network duplicates or delays a command, the copy finds that the record has changed, and does nothing.
func TestPassTwiceDoesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		first := a.takeRemembered(1)
		copied := func() { // sends a copy of the pass with epoch 2
			t.Helper()
			before := s.state()
			assert.Equal(t, backend.Stale, a.acquire(2, owned("2"), keep, remembering(first)).Status)
			assert.Equal(t, before, s.state())
		}
		second := a.takeRemembered(2, owned("2"), keep, remembering(first))
		third := a.takeRemembered(3, owned("1"), keep, remembering(second))
		copied()
		require.Equal(t, backend.Freed, a.release(3, remembers(third)))
		copied()
		assert.Equal(t, backend.Nothing, a.release(3, remembers(third)))
		third.Freed = true
		a.takeRemembered(4, owned("1"), remembering(third))
		copied()
		assert.Equal(t, backend.Nothing, a.release(3, remembers(third)), "a late copy of the release")
		assert.Equal(t, "a:1=1", s.hash())
	})
}

func TestTakeIsOneCommand(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		p := a.takeRemembered(1)
		assert.Equal(t, 1, s.scripts(func() { require.Equal(t, backend.Freed, a.release(1, remembers(p))) }))
		assert.Empty(t, s.hash())
		p.Freed = true
		assert.Equal(t, 1, s.scripts(func() { p = a.takeRemembered(2, remembering(p)) }))
		s.assertFull(lease, s.ttl())
		token := text(int64(p.Token))
		assert.Equal(t, []string{token, token, "a", "2", "0", "h", brief}, s.record())
	})
}

func TestTakeLeavesForeignKeysAlone(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, key := range []string{"", "q"} {
			s.name = unique("lock")
			a := s.join("a")
			p := a.takeRemembered(1)
			a.release(1, remembers(p))
			p.Freed = true
			name := s.name
			if key != "" {
				name = s.side(key)
			}
			s.run("SET", name, "x")
			_, err := a.remote.Acquire(s.ctx(), request(2, queue, remembering(p)))
			require.ErrorContains(t, err, "WRONGTYPE")
			kept, err := s.do("GET", name).ToString()
			require.NoError(t, err)
			assert.Equal(t, "x", kept)
		}
	})
}

func TestYieldIsOneCommand(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		p := a.takeRemembered(1)
		var reply backend.AcquireReply
		assert.Equal(t, 1, s.scripts(func() { reply = a.acquire(2, owned("2"), yield, remembering(p)) }), "no session waits")
		require.Equal(t, backend.Granted, reply.Status)
		s.assertFull(lease, s.ttl(), "a lease begins")
		b.wait(1, owned("77"))
		c.wait(1)
		p = reply.Prior
		assert.Equal(t, 1, s.scripts(func() { reply = a.acquire(3, owned("3"), yield, remembering(p)) }))
		assert.Equal(t, backend.Waiting, reply.Status)
		s.assertFull(grantTTL, reply.TTL)
		s.assertFull(grantTTL, s.ttl())
		assert.Equal(t, "b:77=1", s.hash())
		assert.Equal(t, []string{"c", "a"}, s.queued())
		g := b.granted()
		token := text(int64(g.First))
		assert.Equal(t, []string{token, token, "b", "1", "0", "g", "300"}, s.record())
		assert.Equal(t, g.First, g.Last)
		assert.False(t, g.NotBefore.IsZero())
		p = backend.Prior{Epoch: g.Epoch, Owner: "77", Token: g.First, Pushed: true}
		assert.Equal(t, 1, s.scripts(func() { b.acquire(2, owned("78"), yield, remembering(p)) }), "after a push")
		assert.Equal(t, []string{"a", "b"}, s.queued())
		c.granted()
		c.release(1)
		assert.Equal(t, uint64(3), a.granted().Epoch)
		assert.Equal(t, "a:3=1", s.hash())
	})
}

func TestYieldLeavesAForeignHashAlone(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		p := a.takeRemembered(1)
		b.wait(1)
		s.run("DEL", s.name)
		s.run("HSET", s.name, "x", "1")
		_, err := a.remote.Acquire(s.ctx(), request(2, yield, remembering(p)))
		require.ErrorContains(t, err, "WRONGTYPE")
		assert.Equal(t, "x=1", s.hash())
	})
}

func TestYieldOfAnyBytes(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.name = "a\x00b t\r\n"
		a, b := s.join("a"), s.join("b")
		one, two := "~o\x00w n\r\n\xff:1", "~o\x00w n\r\n\xff:2"
		p := a.takeRemembered(1, owned(one))
		b.wait(1, owned(two))
		assert.Equal(t, 1, s.scripts(func() { a.acquire(2, owned(two), yield, remembering(p)) }))
		assert.Equal(t, "b:"+two+"=1", s.hash())
		assert.Equal(t, s.name, b.granted().Name)
		b.release(1)
		a.granted()
		assert.Equal(t, "a:"+two+"=1", s.hash())
	})
}

func TestYieldTwiceDoesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		p := a.takeRemembered(1)
		b.wait(1)
		require.Equal(t, backend.Waiting, a.acquire(2, yield, remembering(p)).Status)
		b.release(1)
		b.wait(2)
		before := s.state()
		assert.Equal(t, backend.Granted, a.acquire(2, yield, remembering(p)).Status, "a copy of the attempt that has the lock does not hand it over")
		assert.Equal(t, strings.Replace(before, "|g|", "|h|", 1), s.state())
	})
}

func TestYieldTokensRise(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		p := a.takeRemembered(1, func(r *backend.AcquireRequest) {
			r.Seen = backend.Token(s.clock() + time.Second.Microseconds())
		})
		b.wait(1, func(r *backend.AcquireRequest) { r.Seen = p.Token + 1000 })
		c.wait(1)
		a.acquire(2, yield, remembering(p))
		g := b.granted()
		assert.Greater(t, g.First, p.Token+1000, "the token is above all that the waiter has seen")
		p = backend.Prior{Epoch: 1, Owner: "1", Token: g.First, Pushed: true}
		b.acquire(2, yield, remembering(p))
		assert.Greater(t, c.granted().First, g.First)
	})
}

func TestYieldNotifiesALingeringHolderOfAWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		p := a.takeRemembered(1)
		b.wait(1, owned(backend.LingeringOwner))
		a.acquire(2, yield, remembering(p))
		select {
		case epoch := <-b.wanted:
			assert.Equal(t, uint64(1), epoch)
		case <-time.After(silence):
			t.Error("b is not notified that another session waits")
		}
	})
}

func TestYieldKeepsTombstones(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		b.release(9, doubtfulFor(time.Minute))
		p := a.takeRemembered(1)
		b.wait(10)
		assert.Equal(t, 1, s.scripts(func() { a.acquire(2, yield, remembering(p)) }))
		assert.Len(t, s.record(), 8)
		b.granted()
		assert.Equal(t, backend.Stale, b.acquire(9).Status)
	})
}

func TestFreeGivesTheLockToTheFirstWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		b.release(9, doubtfulFor(time.Minute))
		p := a.takeRemembered(1)
		b.wait(10, owned("~o\x00w n\r\n\xff"))
		assert.Equal(t, 1, s.scripts(func() { assert.Equal(t, backend.Released, a.release(1, remembers(p))) }))
		g := b.granted()
		assert.Equal(t, uint64(10), g.Epoch)
		assert.False(t, g.NotBefore.IsZero())
		token := text(int64(g.First))
		assert.Equal(t, []string{token, token, "b", "10", "0", "g", "300"}, s.record()[:7])
		assert.Len(t, s.record(), 8, "the tombstone is kept")
		assert.Equal(t, "b:~o\x00w n\r\n\xff=1", s.hash())
		s.assertFull(grantTTL, s.ttl())
		assert.Empty(t, s.queued())
		before := s.state()
		assert.Equal(t, backend.Nothing, a.release(1, remembers(p)), "a late copy")
		assert.Equal(t, before, s.state())
	})
}

func TestFreeTokensRise(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		p := a.takeRemembered(1, func(r *backend.AcquireRequest) {
			r.Seen = backend.Token(s.clock() + time.Minute.Microseconds())
		})
		b.wait(1)
		require.Equal(t, backend.Released, a.release(1, remembers(p)))
		assert.Greater(t, b.granted().First, p.Token)
	})
}

func TestFreeNotifiesALingeringHolderOfAWaiter(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		p := a.takeRemembered(1)
		b.wait(1, owned(backend.LingeringOwner))
		c.wait(1)
		a.release(1, remembers(p))
		select {
		case epoch := <-b.wanted:
			assert.Equal(t, uint64(1), epoch)
		case <-time.After(silence):
			t.Error("b is not notified that another session waits")
		}
	})
}

// If free.lua could not do what a release needs because another session waits, the next seven releases send the full script
// without trying free.lua first.
func TestFreeIsNotTriedAgainAtOnceWhereSessionsWait(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		handOver := func(epoch uint64) (scripts int) {
			p := a.takeRemembered(epoch)
			b.wait(epoch, func(r *backend.AcquireRequest) { r.Tokens = 3 })
			scripts = s.scripts(func() { require.Equal(t, backend.Released, a.release(epoch, remembers(p))) })
			b.granted()
			b.release(epoch)
			return scripts
		}
		handOver(1)
		assert.Equal(t, 1, handOver(2))
		for epoch := uint64(3); epoch <= 8; epoch++ {
			handOver(epoch)
		}
		p := a.takeRemembered(9)
		assert.Equal(t, backend.Freed, a.release(9, remembers(p)))
	})
}

// The new record keeps tombstones about which the session does not know.
func TestPassKeepsTombstones(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		b.release(9, doubtfulFor(time.Minute))
		p := a.takeRemembered(1)
		assert.Equal(t, 1, s.scripts(func() { a.takeRemembered(2, remembering(p)) }))
		assert.Equal(t, backend.Stale, b.acquire(9).Status)
		assert.Len(t, s.record(), 8)
	})
}

func TestTheFirstUseOfAScriptIsOneCommand(t *testing.T) {
	s := realRedis(t)
	a := s.join("a")
	b := s.join("b")
	assert.Equal(t, 6, s.scripts(func() {
		p := a.takeRemembered(1)
		require.Equal(t, backend.Freed, a.release(1, remembers(p)))
		p.Freed = true
		p = a.takeRemembered(2, remembering(p))
		p = a.takeRemembered(3, keep, remembering(p))
		b.wait(1)
		a.acquire(4, yield, remembering(p))
	}))
}

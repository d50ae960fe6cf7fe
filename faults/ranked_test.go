package faults

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// These tests are about the faults that have broken locks of this kind, the likeliest first; doc.go lists them. For each fault
// mutants/faults.list names a rule of the library: if the rule is left out, the fault's test fails.

// carried opens a session whose commands pass through a courier.
func carried(t *testing.T, addr string, c *courier, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	return sessionBy(t, addr, func(b backend.Backend) backend.Backend {
		c.Backend = b
		return c
	}, opts...)
}

// carriedInBubble opens a session on a server of a bubble. The session's commands pass through a courier.
func carriedInBubble(t *testing.T, server *redistest.Server, c *courier, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	c.Backend = server.Backend()
	s, err := reentrant.NewSession(c, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // Close does not release what a failed test still holds
	})
	return s
}

// holdsIn returns the hold count of a lock as Redis shows it. It returns "" if the lock is free.
func holdsIn(t *testing.T, c rueidis.Client, lock string) string {
	t.Helper()
	fields, err := c.Do(t.Context(), c.B().Hvals().Key(lock).Build()).AsStrSlice()
	require.NoError(t, err)
	require.LessOrEqual(t, len(fields), 1)
	return strings.Join(fields, "")
}

// verify calls Verify until there is a reply.
func verify(ctx context.Context, l *reentrant.Lock) error {
	err := l.Verify(ctx)
	for backend.OutcomeUnknown(err) {
		err = l.Verify(ctx)
	}
	return err
}

// tokenIn returns the last token of a lock as Redis shows it.
func tokenIn(t *testing.T, c rueidis.Client, lock string) string {
	t.Helper()
	record, err := c.Do(t.Context(), c.B().Get().Key(fmt.Sprintf("relock:{%s}:t:%s", lock, lock)).Build()).ToString()
	if !rueidis.IsRedisNil(err) {
		require.NoError(t, err)
	}
	token, _, _ := strings.Cut(record, " ")
	return token
}

// 1. No message arrives, and a third of the waiters leave: all others get the lock in turn.
func TestRankedAllWaitersAreServedWithoutMessages(t *testing.T) {
	srv := server(t)
	opts := []reentrant.Option{reentrant.WithLease(patience), reentrant.WithHeartbeat(30 * time.Millisecond)}
	sections := rounds(30)
	var s section
	var wg sync.WaitGroup
	for range 2 {
		l := carried(t, srv.Addr(), &courier{deaf: true}, opts...).NewLock("drain")
		for range 5 {
			wg.Go(func() {
				for done := 0; done < sections && !t.Failed(); {
					ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
					if rand.N(3) == 0 {
						cancel()
						ctx, cancel = context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
					}
					if err := l.Lock(ctx); err == nil {
						token, err := l.Token(ctx)
						assert.NoError(t, err)
						s.run(token)
						done++
						assert.NoError(t, orLater(l.Unlock)(ctx))
					}
					cancel()
				}
			})
		}
	}
	drained := make(chan struct{})
	go func() { wg.Wait(); close(drained) }()
	for last, over := int64(-1), false; !over; {
		passed := s.passed.Load()
		require.Greater(t, passed, last, "all owners wait for ever")
		last = passed
		select {
		case <-drained:
			over = true
		case <-time.After(limit):
		}
	}
	s.verify(t)
	assert.Equal(t, 10*sections, s.entries)
	c := client(t, srv.Addr())
	eventually(t, func() bool { return len(keys(t, c, "drain")) == 0 }, "nothing is left")
}

// 2. is TestRankedAHolderThatIsPausedPastItsLease.

// 3. Each command is executed twice, and its replies are lost. A repeated command must have an effect only once.
func TestRankedRepliesThatAreLostAfterExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 18 * time.Second // two renewals that fail fit into this time
		server := redistest.InBubble(t)
		c := server.Client()
		var mail courier
		l := carriedInBubble(t, server, &mail, reentrant.WithLease(lease)).NewLock("once")
		step := func(verb, holds string, op func(context.Context) error) {
			t.Helper()
			mail.mute(verb, 2)
			require.NoError(t, op(t.Context()), verb)
			assert.Equal(t, holds, holdsIn(t, c, "once"), verb)
		}
		var first string
		mail.by(func(ctx context.Context, req backend.AcquireRequest, send sender) (backend.AcquireReply, error) {
			if _, err := send(ctx, req); err != nil {
				return backend.AcquireReply{}, err
			}
			mail.by(nil)
			first = tokenIn(t, c, "once")
			return backend.AcquireReply{}, backend.WithOutcomeUnknown(errors.New("the reply is lost"))
		})
		step("acquire", "1", l.Lock)
		token, err := l.Token(t.Context())
		require.NoError(t, err)
		assert.Equal(t, first, fmt.Sprint(token), "the repeated attempt has the token of its first copy")
		step("reenter", "2", l.Lock)
		step("reenter", "1", l.Unlock)
		step("renew", "1", func(context.Context) error {
			eventually(t, func() bool { return mail.left("renew") == 0 }, "both replies to renewals were lost")
			return l.Verify(t.Context())
		})
		assert.Equal(t, 1, l.HoldCount(t.Context()))
		step("release", "", l.Unlock)
		assert.Empty(t, keys(t, c, "once"))
	})
}

// 4. What an owner sent during an earlier hold changes nothing in the owner's present hold.
func TestRankedCommandsOfAnEarlierHoldChangeNothing(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	var mail courier
	l := carried(t, srv.Addr(), &mail, lasting()...).NewLock("stale")
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	acquires, releases := mail.sent()
	require.NoError(t, l.Lock(t.Context()))
	before := tokenIn(t, c, "stale")

	result, err := mail.remote.Release(t.Context(), releases[0])
	require.NoError(t, err)
	assert.Equal(t, backend.Nothing, result)
	if reply, err := mail.remote.Acquire(t.Context(), acquires[0]); err == nil { // if it fails, the attempt's time may be over
		assert.Equal(t, backend.Stale, reply.Status)
	}
	renewals := []backend.Renewal{{Remote: mail.remote, Epoch: acquires[0].Epoch, Lease: time.Millisecond}}
	mail.conn.Renew(t.Context(), renewals)
	assert.True(t, renewals[0].Gone)

	assert.Equal(t, "1", holdsIn(t, c, "stale"))
	assert.Equal(t, before, tokenIn(t, c, "stale"))
	require.NoError(t, verify(t.Context(), l))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
}

// 5a. An attempt arrives after its caller has left: nothing is taken.
func TestRankedAnAttemptThatArrivesAfterItsCallerHasLeft(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	var mail courier
	l := carried(t, srv.Addr(), &mail, lasting()...).NewLock("late")
	require.NoError(t, l.Lock(t.Context()), "the session knows the server's clock")
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	var late backend.AcquireRequest
	_, before := mail.sent()
	ctx, leave := context.WithCancel(t.Context())
	mail.by(func(ctx context.Context, req backend.AcquireRequest, _ sender) (backend.AcquireReply, error) {
		late = req
		leave()
		return backend.AcquireReply{}, backend.WithOutcomeUnknown(ctx.Err())
	})
	require.ErrorIs(t, l.Lock(ctx), context.Canceled)
	eventually(t, func() bool { _, releases := mail.sent(); return len(releases) > len(before) }, "Redis has recorded that the attempt was given up")
	mail.by(nil)
	require.NoError(t, l.Lock(t.Context()), "the clean-up has ended")
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	require.NoError(t, c.Do(t.Context(), c.B().Flushall().Build()).Error())

	// Other attempts of the session would make Redis refuse this one, too. Here Redis has only what the release left behind.
	_, releases := mail.sent()
	_, err := mail.remote.Release(t.Context(), releases[len(before)])
	require.NoError(t, err)
	if reply, err := mail.remote.Acquire(t.Context(), late); err == nil { // if it fails, the attempt's time may be over
		assert.Equal(t, backend.Stale, reply.Status)
	}
	assert.Empty(t, holdsIn(t, c, "late"))
}

// 5b. An attempt waits at a frozen Redis until its time is over: it takes nothing when Redis runs again.
func TestRankedAnAttemptThatIsExecutedAfterItsTime(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	var mail courier
	l := carried(t, srv.Addr(), &mail, lasting()...).NewLock("late")
	require.NoError(t, l.Lock(t.Context()), "the session knows the server's clock")
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	acquires, _ := mail.sent()
	req := acquires[0]
	req.Epoch, req.Queue = 1000, false
	srv.Freeze()
	for limit, sent := 200*time.Millisecond, false; !sent; limit *= 2 { // a slow machine may need more time to send it
		req.NotAfter = time.Now().Add(limit)
		ctx, cancel := context.WithDeadline(t.Context(), req.NotAfter)
		_, err := mail.remote.Acquire(ctx, req)
		cancel()
		require.Error(t, err)
		sent = backend.OutcomeUnknown(err)
	}
	time.Sleep(time.Until(req.NotAfter.Add(50 * time.Millisecond))) // the attempt's time is over
	srv.Thaw()
	_, err := mail.remote.Release(t.Context(), backend.ReleaseRequest{Epoch: 1}) // it follows the attempt on the same connection
	require.NoError(t, err)
	assert.Empty(t, holdsIn(t, c, "late"))
}

// 5c. The reply comes late, and then the holder is cut off. The lease counts from the time at which the attempt was sent.
func TestRankedAGrantWhoseReplyIsLateIsTrustedForLess(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	srv := server(t)
	proxy := newLink(t, srv.Addr())
	var mail courier
	la := carried(t, proxy.addr, &mail, reentrant.WithLease(lease)).NewLock("slow")
	lb := session(t, srv.Addr(), reentrant.WithLease(patience), reentrant.WithHeartbeat(lease/10)).NewLock("slow")
	var asked time.Time
	mail.by(func(ctx context.Context, req backend.AcquireRequest, send sender) (backend.AcquireReply, error) {
		proxy.mend() // in case the last reply came too late to be trusted
		asked = time.Now()
		reply, err := send(ctx, req)
		proxy.dropRequests()  // before the hold could be renewed
		time.Sleep(lease / 2) // the delay of the reply
		return reply, err
	})
	a := reentrant.WithOwner(t.Context(), "a")
	require.NoError(t, la.Lock(a))
	if until, err := la.TrustedUntil(a); !errors.Is(err, reentrant.ErrLost) { // on a slow machine the lease may have ended already
		require.NoError(t, err)
		assert.Less(t, until.Sub(asked), lease)
	}
	require.NoError(t, lb.Lock(t.Context()))
	assert.False(t, la.IsHeldByCurrentOwner(a), "two sessions trust the lock at the same time")
	require.NoError(t, orLater(lb.Unlock)(t.Context()))
	proxy.mend()
	assert.ErrorIs(t, la.Unlock(a), reentrant.ErrLost)
}

// 6 and 10. Redis loses its data. The holder is notified. Other sessions, which have never seen the old tokens, still get
// higher ones.
func TestRankedTokensRiseOverEveryLoss(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // the first holder learns of the loss within a third of its lease
	opts := []reentrant.Option{reentrant.WithLease(lease), reentrant.WithHeartbeat(lease / 10)}
	for name, lose := range map[string]func(t *testing.T, s *pair, proxy *link){
		"flush": func(t *testing.T, s *pair, _ *link) {
			c := client(t, s.master.Addr())
			require.NoError(t, c.Do(t.Context(), c.B().Flushall().Build()).Error())
		},
		"restart":  func(t *testing.T, s *pair, _ *link) { s.master.Restart(t) },
		"failover": func(_ *testing.T, s *pair, proxy *link) { s.failOver(proxy) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPair(t)
			proxy := newLink(t, s.master.Addr())
			la := session(t, proxy.addr, opts...).NewLock("lossy")
			s.copying.dropReplies() // the replica does not get the writes that follow
			before := locked(t.Context(), t, la)
			lost := la.Lost(t.Context())
			lose(t, s, proxy)

			lb := session(t, proxy.addr, opts...).NewLock("lossy")
			b := reentrant.WithOwner(t.Context(), "b")
			assert.Greater(t, locked(b, t, lb), before)
			select {
			case <-lost:
			case <-time.After(limit):
				require.FailNow(t, "the first holder was not notified of the loss")
			}
			assert.ErrorIs(t, la.Unlock(t.Context()), reentrant.ErrLost)
			if err := verify(b, lb); !errors.Is(err, reentrant.ErrLost) { // on a slow machine its lease may have ended
				assert.NoError(t, err, "the first holder's Unlock does not end the second one's hold")
			}
			_ = lb.Unlock(b)
		})
	}
}

// 8. A waiter leaves at the very moment at which it is granted the lock: the lock must not stay with the waiter. In every other
// round the waiter is cancelled just before the grant arrives, and in the remaining rounds at a random time.
func TestRankedCancelsAtTheInstantOfAGrant(t *testing.T) {
	srv := server(t)
	var mail courier
	la, lb := session(t, srv.Addr(), lasting()...).NewLock("crossing"), carried(t, srv.Addr(), &mail, lasting()...).NewLock("crossing")
	got := 0
	for i := range rounds(150) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		require.NoError(t, la.Lock(ctx), "round %d: the lock stayed with the caller that had left", i)
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		waiting := make(chan bool)
		go func() {
			err := lb.Lock(ctx)
			if err == nil {
				assert.NoError(t, orLater(lb.Unlock)(ctx))
			}
			waiting <- err == nil
		}()
		eventually(t, func() bool {
			st, err := la.Inspect(t.Context())
			return err == nil && len(st.Waiting) == 1
		}, "the waiter waits")
		if i%2 == 0 {
			mail.atGrant(cancel)
		} else {
			mail.atGrant(nil)
			go func() {
				time.Sleep(rand.N(300 * time.Microsecond)) // so that either the cancel or the grant may come first
				cancel()
			}()
		}
		require.NoError(t, orLater(la.Unlock)(t.Context()))
		if <-waiting {
			got++
		}
	}
	t.Logf("the grant came first %d times", got)
	c := client(t, srv.Addr())
	eventually(t, func() bool { return len(keys(t, c, "crossing")) == 0 }, "nothing is left")
}

// 9. A hold is renewed while it is held, and a renewal never brings back what is gone.
func TestRankedRenewalNeverBringsAHoldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 18 * time.Second
		server := redistest.InBubble(t)
		c := server.Client()
		l := carriedInBubble(t, server, &courier{}, reentrant.WithLease(lease)).NewLock("renewed")
		ttl := func() int64 {
			n, err := c.Do(t.Context(), c.B().Pttl().Key("renewed").Build()).AsInt64()
			require.NoError(t, err)
			return n
		}
		require.NoError(t, l.Lock(t.Context()))
		now := ttl()
		for last := now; now <= last; { // the TTL falls until the hold is renewed, or its lease ends
			time.Sleep(100 * time.Millisecond)
			last, now = now, ttl()
			require.Positive(t, now, "the hold was not renewed")
		}

		lost := l.Lost(t.Context())
		require.NoError(t, c.Do(t.Context(), c.B().Del().Key("renewed").Build()).Error())
		began := time.Now()
		select {
		case <-lost:
		case <-time.After(limit):
			require.FailNow(t, "a renewal of a hold that is gone counted as a success")
		}
		t.Logf("notified after %v of a lease", time.Since(began).Seconds()/lease.Seconds())
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		assert.Empty(t, holdsIn(t, c, "renewed"))
	})
}

// 11. Redis's clock jumps forward by more than the lease: another session gets the lock, and the first holder is notified at
// its next renewal. Then Redis's clock jumps back, and tokens still rise. The server is in memory, and time is virtual.
func TestRankedClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 9 * time.Second
		b := memory.New()
		open := func() *reentrant.Lock {
			s, err := reentrant.NewSession(b, reentrant.WithLease(lease))
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), lease)
				defer cancel()
				assert.NoError(t, s.Close(ctx))
			})
			return s.NewLock("jump")
		}
		la, lb := open(), open()
		ctx := t.Context()
		require.NoError(t, la.Lock(ctx))
		first, err := la.Token(ctx)
		require.NoError(t, err)
		lost := la.Lost(ctx)
		b.SetSkew(2 * lease)
		jumped := time.Now()
		owner := reentrant.WithOwner(ctx, "b")
		require.NoError(t, lb.Lock(owner))
		second, err := lb.Token(owner)
		require.NoError(t, err)
		assert.Greater(t, second, first)
		<-lost
		assert.LessOrEqual(t, time.Since(jumped), lease/3+time.Second, "at the reply to the next renewal")
		assert.ErrorIs(t, la.Unlock(ctx), reentrant.ErrLost)

		b.SetSkew(0)
		require.NoError(t, lb.Unlock(owner))
		require.NoError(t, la.Lock(ctx))
		third, err := la.Token(ctx)
		require.NoError(t, err)
		assert.Greater(t, third, second, "the clock went back, and the tokens still rise")
		require.NoError(t, la.Unlock(ctx))
	})
}

// 12. The cost of each section, as the server counts it: two commands without contention, and two commands and a message if the
// lock goes from process to process.
func TestRankedASectionTakesTwoCommands(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	la, lb := session(t, srv.Addr(), lasting()...).NewLock("budget"), session(t, srv.Addr(), lasting()...).NewLock("budget")
	for _, l := range []*reentrant.Lock{la, lb} { // loads the scripts and learns the clocks
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, orLater(l.Unlock)(t.Context()))
	}
	const sections = 20
	alone := fewestEvals(t, c, func() {
		for range sections {
			require.NoError(t, la.Lock(t.Context()))
			require.NoError(t, orLater(la.Unlock)(t.Context()))
		}
	})
	assert.Equal(t, 2*sections, alone, "alone")

	// A waiter that has just got the reply to wait may send a command to check whether a push is meant for this wait: a push
	// that arrives within a round trip of the reply may be older. So holds are longer on a slow machine.
	const confirmed = 8
	const most = 2*2*sections + confirmed
	var s section
	pushed := math.MaxInt
	for hold := 2 * time.Millisecond; pushed > most && hold < time.Second; hold *= 4 {
		pushed = fewestEvals(t, c, func() {
			var wg sync.WaitGroup
			for _, l := range []*reentrant.Lock{la, lb} {
				wg.Go(func() {
					for range sections {
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						err := l.Lock(ctx)
						cancel()
						if !assert.NoError(t, err, "the waiter receives the grant") {
							return
						}
						token, err := l.Token(t.Context())
						assert.NoError(t, err)
						s.run(token)
						time.Sleep(hold) // time for the other session to queue
						assert.NoError(t, orLater(l.Unlock)(t.Context()))
					}
				})
			}
			wg.Wait()
			require.False(t, t.Failed())
		})
	}
	s.verify(t)
	assert.LessOrEqual(t, pushed, most, "from process to process")

	for _, key := range append(keys(t, c, "budget"), "relock:{budget}:t:budget") {
		left, err := c.Do(t.Context(), c.B().Pttl().Key(key).Build()).AsInt64()
		require.NoError(t, err)
		assert.NotEqual(t, int64(-1), left, "%s ends by itself", key)
	}
}

package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// Two sessions × 20 goroutines × 500 sections, while connections are killed, scripts flushed and a third of the waiters
// cancelled at random. No holds overlap, every caller returns, and nothing is left in Redis.
func TestHammerWhileConnectionsAreKilledScriptsFlushedAndWaitersCancelled(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	const owners = 20
	sections := rounds(500)

	// Opening a session is a single try, so the faults begin when both sessions are open.
	sessions := []*reentrant.Session{session(t, srv.Addr(), enduring()...), session(t, srv.Addr(), enduring()...)}
	var s section
	nemesis, stop := context.WithCancel(t.Context())
	var nemeses sync.WaitGroup
	nemeses.Go(func() { disturb(nemesis, c, &s) })

	var cancelled, lost atomic.Int64
	var wg sync.WaitGroup
	for _, session := range sessions {
		for range owners {
			wg.Go(func() {
				l := session.NewLock("hammer")
				for done := 0; done < sections; {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if rand.N(3) == 0 {
						ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
					}
					err := l.Lock(ctx)
					if err != nil {
						assert.ErrorIs(t, err, ctx.Err(), "only the caller's own time limit ends a Lock")
						cancelled.Add(1)
						cancel()
						continue
					}
					token, err := l.Token(t.Context())
					assert.NoError(t, err)
					s.run(token)
					done++
					if err := l.Unlock(ctx); err != nil && !backend.OutcomeUnknown(err) {
						assert.ErrorIs(t, err, reentrant.ErrLost)
						lost.Add(1)
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	stop()
	nemeses.Wait()
	s.verify(t)
	assert.Equal(t, 2*owners*sections, s.entries)
	assert.Positive(t, cancelled.Load(), "some waiters were cancelled")
	assert.Zero(t, lost.Load(), "no lease has ended")
	eventually(t, func() bool { return len(keys(t, c, "hammer")) == 0 }, "everything was released")
}

// disturb repeatedly deletes the scripts and kills connections of the other clients: in one round all subscriptions, in the
// next all connections for commands. Between two rounds at least one section is finished, however slow the machine is.
func disturb(ctx context.Context, c rueidis.Client, s *section) {
	last := int64(-1)
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond): // the pause between rounds; the test waits for nothing here
		}
		passed := s.passed.Load()
		if passed == last {
			continue
		}
		last = passed
		kind := "normal"
		if i%2 == 0 {
			kind = "pubsub"
		}
		c.Do(ctx, c.B().Arbitrary("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Build())
		c.Do(ctx, c.B().ScriptFlush().Build())
		i++
	}
}

// A held lock is one hash with one field, <session>:<goroutine id>, whose value is the hold count.
func TestTheHashShowsTheOwnerAndItsHolds(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	s := session(t, srv.Addr(), lasting()...)
	l := s.NewLock("shown")
	field := s.ID() + ":" + reentrant.CurrentOwner(t.Context()).String()
	shows := func(holds string) {
		t.Helper()
		got, err := c.Do(t.Context(), c.B().Hgetall().Key("shown").Build()).AsStrMap()
		require.NoError(t, err)
		want := map[string]string{}
		if holds != "" {
			want[field] = holds
		}
		assert.Equal(t, want, got)
	}
	for _, holds := range []string{"1", "2", "3"} {
		require.NoError(t, l.Lock(t.Context()))
		shows(holds)
	}
	for _, holds := range []string{"2", "1", ""} {
		require.NoError(t, l.Unlock(t.Context()))
		shows(holds)
	}
}

// Unlock works under a context that has ended, and leaves no key behind.
func TestUnlockUnderAnEndedContextLeavesNothing(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	s := session(t, srv.Addr(), lasting()...)
	l := s.NewLock("ended")
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, l.Lock(ctx))
	cancel()
	require.NoError(t, l.Unlock(ctx))
	assert.Empty(t, keys(t, c, "ended"))
}

// The reply to an acquire is lost, and the caller stops waiting. What Redis granted is released as soon as Redis can be
// reached, and then the local queue goes on.
func TestAnAcquireWhoseReplyIsDroppedLeavesNothingAndTheQueueGoesOn(t *testing.T) {
	t.Parallel()
	srv := server(t)
	c := client(t, srv.Addr())
	proxy := newLink(t, srv.Addr())
	l := session(t, proxy.addr, lasting()...).NewLock("dropped")
	require.NoError(t, l.Lock(t.Context()), "warm")
	require.NoError(t, orLater(l.Unlock)(t.Context()))

	proxy.dropReplies()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- l.Lock(ctx) }()
	eventually(t, func() bool { return holdsIn(t, c, "dropped") == "1" }, "Redis has granted the lock")
	cancel()
	err := <-failed
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, backend.OutcomeUnknown(err), "%v", err)

	proxy.mend()
	require.NoError(t, l.Lock(t.Context()), "the local queue goes on")
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	eventually(t, func() bool { return len(keys(t, c, "dropped")) == 0 }, "nothing is left")
}

// The reply to a release is lost: Unlock reports an unknown outcome, and the lock is free.
func TestAnUnlockWhoseReplyIsDroppedFreesTheLock(t *testing.T) {
	t.Parallel()
	srv := server(t)
	c := client(t, srv.Addr())
	proxy := newLink(t, srv.Addr())
	l := session(t, proxy.addr, lasting()...).NewLock("unheard")
	require.NoError(t, l.Lock(t.Context()), "warm")
	require.NoError(t, orLater(l.Unlock)(t.Context()), "Redis must have the script: its reply that the script is missing would be lost too")
	require.NoError(t, l.Lock(t.Context()))
	proxy.dropReplies()
	err := l.Unlock(t.Context())
	assert.True(t, backend.OutcomeUnknown(err), "%v", err)
	assert.False(t, l.IsHeldByCurrentOwner(t.Context()), "the hold has ended for this process, whatever Redis replies")
	eventually(t, func() bool { return len(keys(t, c, "unheard")) == 0 }, "the release was executed")
	proxy.mend()
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
}

// A holder that is cut off stops trusting its lock before Redis gives it to another session, whatever commands are
// under way.
func TestAHolderThatIsCutOffStopsBeforeRedisEndsItsLease(t *testing.T) {
	t.Parallel()
	srv := server(t)
	proxy := newLink(t, srv.Addr())
	la := session(t, proxy.addr, reentrant.WithLease(time.Second), reentrant.WithHeartbeat(100*time.Millisecond)).NewLock("cut")
	lb := session(t, srv.Addr(), reentrant.WithLease(patience), reentrant.WithHeartbeat(100*time.Millisecond)).NewLock("cut")

	a := reentrant.WithOwner(t.Context(), "a")
	err := la.Do(a, func(ctx context.Context) error {
		proxy.dropRequests()
		assert.NoError(t, lb.Lock(t.Context()))
		assert.False(t, la.IsHeldByCurrentOwner(a), "two sessions trust the lock at the same time")
		assert.NoError(t, orLater(lb.Unlock)(t.Context()))
		<-ctx.Done()
		return context.Cause(ctx)
	})
	assert.ErrorIs(t, err, reentrant.ErrLost)
	proxy.mend()
}

// Redis freezes while one owner has the lock and others wait. When it runs again, they all get the lock.
func TestAllWaitersGetTheLockAfterRedisWasFrozen(t *testing.T) {
	srv := server(t)
	s := session(t, srv.Addr(), lasting()...)
	l := s.NewLock("frozen")
	require.NoError(t, l.Lock(t.Context()))
	srv.Freeze()
	waiting := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		waiting <- s.NewLock("the waiting sessions are frozen too").Lock(ctx)
	}()
	assert.ErrorIs(t, <-waiting, context.DeadlineExceeded, "a caller's own time limit works although Redis hangs")
	srv.Thaw()
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
}

// Redis is killed and comes back empty. Holders lose their locks, waiters get the locks, and tokens rise.
func TestARedisThatComesBackEmptyLosesHoldersAndTokensRise(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // the holder learns of the loss within a third of its lease
	srv := server(t)
	l := session(t, srv.Addr(), reentrant.WithLease(lease)).NewLock("forgotten")
	before := locked(t.Context(), t, l)
	lost := l.Lost(t.Context())
	srv.Restart(t)
	select {
	case <-lost:
	case <-time.After(limit):
		t.Fatal("the holder was not notified of the loss")
	}
	assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	began := time.Now()
	assert.Greater(t, locked(t.Context(), t, l), before)
	if err := orLater(l.Unlock)(t.Context()); !errors.Is(err, reentrant.ErrLost) || time.Since(began) < slow { // else its lease may have ended
		require.NoError(t, err)
	}
}

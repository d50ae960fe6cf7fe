package redisbackend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A quorum has no queue, but each node that has the hold remembers one of the sessions that wait, and reports it.
func TestQuorumReportsWaiters(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"asked before", "asked after", "asked while a node is down"} {
		t.Run(when, func(t *testing.T) {
			c := newCouncil(t, 3)
			l, m := c.session().NewLock(c.name), c.session().NewLock(c.name)
			require.NoError(t, l.Lock(t.Context()))
			if when == "asked while a node is down" {
				c.servers[0].Freeze()
				t.Cleanup(c.servers[0].Thaw)
			}
			var wanted <-chan struct{}
			if when != "asked after" {
				wanted = l.Wanted(t.Context())
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if m.Lock(ctx) == nil {
					assert.NoError(t, m.Unlock(ctx))
				}
			}()
			if when == "asked after" {
				wanted = l.Wanted(t.Context())
			}
			select {
			case <-wanted:
			case <-time.After(limit):
				t.Error("the waiter is not reported")
			}
			cancel()
			<-done
			_ = l.Unlock(t.Context())
		})
	}
}

// Holders of sides, permits and slots learn by a message that another process waits, with scripts and without.
func TestWaitersForSidesAndPermitsAreReported(t *testing.T) {
	for name, opts := range map[string][]redisbackend.Option{"scripts": nil, "without scripts": {redisbackend.WithoutScripts()}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				open := func() (*reentrant.RWLock, *reentrant.Semaphore) {
					b, err := redisbackend.New(s.client, opts...)
					require.NoError(t, err)
					session, err := reentrant.NewSession(b)
					require.NoError(t, err)
					t.Cleanup(func() { closeSoon(t, session) })
					return session.NewRWLock("rw"), session.NewSemaphore("permits", 2)
				}
				l, m := open()
				l2, m2 := open()
				ctx, them := t.Context(), reentrant.WithOwner(t.Context(), "them")
				comes := func(what string, wanted <-chan struct{}, wait, undo, leave func() error) {
					done := make(chan error, 1)
					go func() { done <- wait() }()
					select {
					case <-wanted:
					case <-time.After(limit):
						t.Error("not reported: " + what)
					}
					require.NoError(t, leave(), what)
					require.NoError(t, <-done, what)
					require.NoError(t, undo(), what)
				}
				read, write := func() error { return l2.RLock(them) }, func() error { return l2.Lock(them) }
				unread, unwrite := func() error { return l2.RUnlock(them) }, func() error { return l2.Unlock(them) }
				two, untwo := func() error { return m2.Acquire(them, 2) }, func() error { return m2.Release(them, 2) }

				require.NoError(t, l.RLock(ctx))
				comes("a writer, to a reader", l.Wanted(ctx), write, unwrite, func() error { return l.RUnlock(ctx) })
				require.NoError(t, l.Lock(ctx))
				comes("a writer, to a writer", l.Wanted(ctx), write, unwrite, func() error { return l.Unlock(ctx) })
				require.NoError(t, l.Lock(ctx))
				comes("a reader, to a writer", l.Wanted(ctx), read, unread, func() error { return l.Unlock(ctx) })
				require.NoError(t, m.Acquire(ctx, 1))
				comes("permits", m.Wanted(), two, untwo, func() error { return m.Release(ctx, 1) })
				slot, err := m.AcquireSlot(ctx)
				require.NoError(t, err)
				comes("a slot", slot.Wanted(), two, untwo, func() error { return slot.Release(ctx) })
			})
		})
	}
}

// closeSoon closes a session in which nothing is held, unless the test has failed.
func closeSoon(t *testing.T, session *reentrant.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if t.Failed() {
		cancel()
	}
	if err := session.Close(ctx); !t.Failed() {
		assert.NoError(t, err)
	}
}

// BenchmarkWanted measures the time from a waiter's first command until the holder hears of the waiter. For comparison the same
// run measures round trips of a script that does nothing.
func BenchmarkWanted(b *testing.B) {
	addr := redisserver.Start(b).Addr()
	locks, yardstick := contest(b, addr, "wanted", 0), newBare(connect(b, addr), 4, 6)
	limit := deadline{context.Background(), time.Now().Add(time.Hour)}
	holder, waiter := reentrant.WithOwner(limit, "holder"), reentrant.WithOwner(limit, "waiter")
	var spent, bare time.Duration
	n := 0
	for b.Loop() {
		require.NoError(b, locks[0].Lock(holder))
		wanted := locks[0].Wanted(holder)
		for marked := false; !marked; {
			record, err := yardstick.client.Do(limit, yardstick.client.B().Get().Key("relock:{wanted}:t:wanted").Build()).ToString()
			require.NoError(b, err)
			marked = strings.Contains(record, " w ")
		}
		done := make(chan error)
		begun := time.Now()
		go func() { done <- locks[1].Lock(waiter) }()
		<-wanted
		spent += time.Since(begun)
		n++
		require.NoError(b, locks[0].Unlock(holder))
		require.NoError(b, <-done)
		require.NoError(b, locks[1].Unlock(waiter))
		begun = time.Now()
		require.NoError(b, yardstick.call(limit))
		bare += time.Since(begun)
	}
	b.ReportMetric(float64(spent)/float64(n), "wanted-ns/op")
	b.ReportMetric(float64(bare)/float64(n), "bare-ns/op")
	b.ReportMetric(float64(spent)/float64(bare), "ratio")
	b.ReportMetric(0, "ns/op")
}

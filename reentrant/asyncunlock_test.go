package reentrant_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// late has each command of a verb carried out d after it was sent.
func late(b *memory.Backend, verb memory.Verb, d time.Duration) {
	b.SetFault(func(op memory.Op) memory.Verdict {
		if op.Verb == verb {
			return memory.Delay(d)
		}
		return memory.Pass
	})
}

// asyncModes are the kinds of session whose Unlock can do without a reply.
var asyncModes = map[string][]reentrant.Option{
	"registered": {reentrant.WithAsyncUnlock()},
	"cohort":     {reentrant.WithAsyncUnlock(), reentrant.WithCohort()},
}

// inAsyncModes runs a test in a bubble for each of the asyncModes.
func inAsyncModes(t *testing.T, test func(t *testing.T, opts []reentrant.Option)) {
	for name, opts := range asyncModes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, opts) })
		})
	}
}

func TestAnAsyncUnlockReturnsBeforeTheReply(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		s := newSession(t, b, opts...)
		l, other := s.NewLock("x"), newSession(t, b).NewLock("x")
		late(b, memory.Release, time.Second)
		begun := time.Now()
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		assert.Zero(t, time.Since(begun))
		assert.Zero(t, l.HoldCount(t.Context()))
		assert.Zero(t, s.Stats().Held)
		require.NoError(t, other.Lock(t.Context()))
		assert.Equal(t, time.Second, time.Since(begun), "Redis gives it away when it has the release")
		require.NoError(t, other.Unlock(t.Context()))
		require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
	})
}

// Do gives up its hold as Unlock does.
func TestAnAsyncDoReturnsBeforeTheReply(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		l := newSession(t, b, opts...).NewLock("x")
		late(b, memory.Release, time.Second)
		begun := time.Now()
		require.NoError(t, l.Do(t.Context(), func(context.Context) error { return nil }))
		assert.Zero(t, time.Since(begun))
	})
}

// An asynchronous Unlock returns a loss that the session has found, or finds only now, because its watchdog is late.
func TestAnAsyncUnlockTellsOfALoss(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		s := newSession(t, b, opts...)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		reentrant.Lose(s, "x")
		require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
	})
	for name, opts := range asyncModes {
		t.Run(name+", a late watchdog", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.WithFault(memory.Script(memory.Renew, lose(1000)...)))
				var isLate bool
				var mu sync.Mutex
				wake := make(chan struct{})
				l := newSession(t, b, append(opts, reentrant.WithLook(func() {
					mu.Lock()
					stop := isLate
					mu.Unlock()
					if stop {
						<-wake
					}
				}))...).NewLock("x")
				require.NoError(t, l.Lock(t.Context()))
				until, err := l.TrustedUntil(t.Context())
				require.NoError(t, err)
				mu.Lock()
				isLate = true
				mu.Unlock()
				time.Sleep(time.Until(until))
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
				mu.Lock()
				isLate = false
				mu.Unlock()
				close(wake)
			})
		})
	}
}

// Calls of the session that come while the release is under way wait for the end of the release. So do tries.
func TestTheNextLockComesAfterAnAsyncUnlock(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		s := newSession(t, b, opts...)
		l := s.NewLock("x")
		late(b, memory.Release, time.Second)
		for name, take := range map[string]func(ctx context.Context) (bool, error){
			"Lock":       func(ctx context.Context) (bool, error) { return true, l.Lock(ctx) },
			"TryLock":    l.TryLock,
			"TryLockFor": func(ctx context.Context) (bool, error) { return l.TryLockFor(ctx, 2*time.Second) },
		} {
			require.NoError(t, l.Lock(t.Context()))
			token, err := l.Token(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
			synctest.Wait() // the release is sent
			begun := time.Now()
			ok, err := take(t.Context())
			require.NoError(t, err, name)
			require.True(t, ok, name)
			assert.Equal(t, time.Second, time.Since(begun), name)
			next, err := l.Token(t.Context())
			require.NoError(t, err)
			assert.Greater(t, next, token)
			require.NoError(t, l.Verify(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
			time.Sleep(2 * time.Second)
		}
		assert.Zero(t, reentrant.Entries(s))
	})
}

// A Lock that comes before the release is sent takes the hold over, as a waiter would have.
func TestALockRightAfterAnAsyncUnlockTakesTheHoldOver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the caller goes on before the goroutine that releases
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		d := &diary{}
		b := memory.New()
		s := newSession(t, b, append(opts, reentrant.WithObserver(d))...)
		l := s.NewLock("x")
		const n = 40
		for range n {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		synctest.Wait()
		assert.NotZero(t, s.Stats().Handoffs)
		handed := 0
		for i, e := range d.take() {
			require.Equal(t, []reentrant.EventKind{reentrant.EventAcquired, reentrant.EventReleased}[i%2], e.Kind, "in order, and in pairs")
			if e.HandedOff {
				handed++
			}
		}
		assert.EqualValues(t, s.Stats().Handoffs, handed)
		assert.Equal(t, n, handed+b.Count(memory.Release))
		assert.Zero(t, reentrant.Entries(s))
	})
}

// An owner that waits gets the hold at once, and nothing is released.
func TestAnAsyncUnlockHandsOver(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		s := newSession(t, b, opts...)
		l, a := s.NewLock("x"), owner(t, "a")
		late(b, memory.Release, time.Second)
		require.NoError(t, l.Lock(t.Context()))
		locked := make(chan error)
		go func() { locked <- l.Lock(a) }()
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-locked)
		assert.Zero(t, time.Since(begun))
		assert.Zero(t, b.Count(memory.Release))
		require.NoError(t, l.Unlock(a))
	})
}

// The session that waits in Redis gets the lock when Redis has the release.
func TestAnAsyncUnlockFreesTheLockForOtherSessions(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		l, other := newSession(t, b, opts...).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		locked := make(chan error)
		ctx := owner(t, "o")
		go func() { locked <- other.Lock(ctx) }()
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-locked)
		assert.Zero(t, time.Since(begun))
		require.NoError(t, other.Unlock(ctx))
	})
}

// WithAsyncUnlock changes nothing for the Unlock of an inner hold: the owner keeps the lock.
func TestAnInnerUnlockIsNotAsync(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		l, other := newSession(t, b, opts...).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		assert.Equal(t, 1, l.HoldCount(t.Context()))
		require.NoError(t, l.Verify(t.Context()))
		ok, err := other.TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Zero(t, b.Count(memory.Release))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestCloseWaitsForAsyncUnlocks(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		s := newSession(t, b, opts...)
		late(b, memory.Release, time.Second)
		names := []string{"x", "y", "z"}
		for _, name := range names {
			l := s.NewLock(name)
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		begun := time.Now()
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, time.Second, time.Since(begun))
		b.SetFault(nil)
		other := newSession(t, b)
		for _, name := range names {
			ok, err := other.NewLock(name).TryLock(t.Context())
			require.NoError(t, err)
			assert.True(t, ok, name)
		}
	})
}

// An error of the release, which comes after Unlock has returned, is in the log and in the event.
func TestTheErrorOfAnAsyncUnlockIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(b *memory.Backend)
		text string
	}{
		"refused": {func(b *memory.Backend) {
			b.SetFault(memory.Script(memory.Release, memory.Refuse("NOPERM no rights")))
		}, "NOPERM no rights"},
		"unreachable": {func(b *memory.Backend) { outage(b, memory.Release, time.Hour) }, "sent again in the background"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				d := &diary{}
				b := memory.New()
				s, err := reentrant.NewSession(b, reentrant.WithAsyncUnlock(), reentrant.WithObserver(d),
					reentrant.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
				require.NoError(t, err)
				l := s.NewLock("x")
				require.NoError(t, l.Lock(t.Context()))
				c.fail(b)
				begun := time.Now()
				require.NoError(t, l.Unlock(t.Context()))
				assert.Zero(t, time.Since(begun))
				time.Sleep(7 * time.Second)
				events := d.take()
				require.Equal(t, []reentrant.EventKind{reentrant.EventAcquired, reentrant.EventReleased}, kinds(events))
				require.ErrorContains(t, events[1].Err, c.text)
				b.SetFault(nil)
				require.NoError(t, s.Close(t.Context())) // the log is written
				assert.Contains(t, out.String(), "could not give back a lock yet")
				assert.Contains(t, out.String(), c.text)
			})
		})
	}
}

// While the server is frozen Unlock returns, and Lock waits. When the server is back, the lock is free.
func TestAnAsyncUnlockAtAFrozenServer(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		b := memory.New()
		s := newSession(t, b, opts...)
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		back := time.Now().Add(20 * time.Second)
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Verdict{Lost: time.Now().Before(back)} })
		begun := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		assert.Zero(t, time.Since(begun))
		synctest.Wait() // the release is sent
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Lock(ctx), context.DeadlineExceeded)
		_, err := l.TryLock(t.Context())
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		require.NoError(t, l.Lock(t.Context()))
		assert.GreaterOrEqual(t, time.Since(begun), 20*time.Second)
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(time.Minute)
		assert.Zero(t, reentrant.Entries(s))
	})
}

// A lease that ends while the release is under way ended after the section, so that is no loss. A hold that Redis no longer
// has although its lease goes on was taken away.
func TestAnAsyncUnlockOfAHoldThatRedisNoLongerHas(t *testing.T) {
	inAsyncModes(t, func(t *testing.T, opts []reentrant.Option) {
		d := &diary{}
		b := memory.New(memory.WithFault(memory.Script(memory.Renew, lose(1000)...)))
		l := newSession(t, b, append(opts, reentrant.WithObserver(d))...).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		until, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Until(until) - 1)
		late(b, memory.Release, time.Second)
		d.take()
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(2 * time.Second)
		events := d.take()
		require.Equal(t, []reentrant.EventKind{reentrant.EventReleased}, kinds(events))
		require.NoError(t, events[0].Err)

		b.SetFault(nil)
		require.NoError(t, l.Lock(t.Context()))
		d.take()
		b.Flush()
		require.NoError(t, l.Unlock(t.Context()))
		events = d.take()
		require.Equal(t, []reentrant.EventKind{reentrant.EventReleased, reentrant.EventLost}, kinds(events))
		require.ErrorIs(t, events[0].Err, reentrant.ErrLost)
		require.ErrorIs(t, events[1].Err, reentrant.ErrLost)
	})
}

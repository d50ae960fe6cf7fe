package redistest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// inBubble runs a test in virtual time. The tests can compare exact times, because a command takes no time.
func inBubble(t *testing.T, test func(t *testing.T, s *redistest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, redistest.InBubble(t)) })
}

// process opens a session that stands for a process.
func process(t *testing.T, b backend.Backend) *reentrant.Session {
	t.Helper()
	session, err := reentrant.NewSession(b)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	return session
}

// A cable connects one client with the server.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

// cabled returns a backend whose client is connected by a cable of its own. The cable can be cut.
func cabled(t *testing.T, s *redistest.Server) (backend.Backend, *cable) {
	t.Helper()
	var c cable
	option := s.ClientOption()
	option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return c.dial(s) }
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	return b, &c
}

func (c *cable) dial(s *redistest.Server) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("the cable is cut")
	}
	conn, err := s.Dial()
	c.conns = append(c.conns, conn)
	return conn, err
}

// Cut closes the connections, and lets no other connection be made.
func (c *cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func TestAnHourOfRenewals(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		lock := process(t, s.Backend()).NewLock("work")
		require.NoError(t, lock.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Hour)
			return lock.Verify(ctx)
		}))
	})
}

func TestAHandOverInVirtualTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		mine, theirs := process(t, s.Backend()).NewLock("work"), process(t, s.Backend()).NewLock("work")
		start := time.Now()
		require.NoError(t, mine.Lock(t.Context()))
		got := taken(t, theirs)
		time.Sleep(10 * time.Minute)
		require.NoError(t, mine.Unlock(t.Context()))
		assert.Equal(t, 10*time.Minute, (<-got).Sub(start), "pushed at once, not found at a heartbeat")
	})
}

// soon returns a context that ends after a day. So a wait in vain ends, and takes no real time.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// taken starts a goroutine that takes a lock and gives it back. The channel delivers the time at which the goroutine got the
// lock.
func taken(t *testing.T, lock interface {
	Do(ctx context.Context, fn func(ctx context.Context) error) error
}) <-chan time.Time {
	t.Helper()
	ctx, at := soon(t), make(chan time.Time, 1)
	go func() {
		defer close(at)
		assert.NoError(t, lock.Do(ctx, func(context.Context) error {
			at <- time.Now()
			return nil
		}))
	}()
	return at
}

func TestALeaseThatRunsOutIsLostAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		b, cable := cabled(t, s)
		mine, theirs := process(t, b).NewLock("work"), process(t, s.Backend()).NewLock("work")
		require.NoError(t, mine.Lock(t.Context()))
		got := taken(t, theirs)
		time.Sleep(time.Minute + time.Second)
		cable.Cut() // a second after a renewal
		until, err := mine.TrustedUntil(t.Context())
		require.NoError(t, err)
		ends := time.Now().Add(reentrant.DefaultLease - time.Second)

		<-mine.Lost(t.Context())
		assert.Equal(t, until, time.Now())
		require.ErrorIs(t, mine.Unlock(t.Context()), reentrant.ErrLost)
		assert.WithinRange(t, <-got, ends, ends.Add(reentrant.DefaultHeartbeat))
		assert.True(t, until.Before(ends))
	})
}

func TestSidesPermitsAndConditionsInVirtualTime(t *testing.T) {
	t.Run("AWriterWaitsForAllReaders", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *redistest.Server) {
			one, two := process(t, s.Backend()).NewRWLock("map"), process(t, s.Backend()).NewRWLock("map")
			start := time.Now()
			require.NoError(t, one.RLock(t.Context()))
			require.NoError(t, two.RLock(t.Context()))
			got := taken(t, process(t, s.Backend()).NewRWLock("map"))
			time.Sleep(10 * time.Minute)
			require.NoError(t, one.RUnlock(t.Context()))
			time.Sleep(time.Minute)
			require.NoError(t, two.RUnlock(t.Context()))
			assert.Equal(t, 11*time.Minute, (<-got).Sub(start), "a writer waits for all readers")
		})
	})
	t.Run("AWaiterGetsAPermitWhenItIsReleased", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *redistest.Server) {
			one, two := process(t, s.Backend()).NewSemaphore("pool", 2), process(t, s.Backend()).NewSemaphore("pool", 2)
			start := time.Now()
			require.NoError(t, one.Acquire(t.Context(), 2))
			time.AfterFunc(10*time.Minute, func() { assert.NoError(t, one.Release(context.Background(), 1)) })
			require.NoError(t, two.Acquire(soon(t), 1))
			assert.Equal(t, 10*time.Minute, time.Since(start))
			require.NoError(t, one.Release(t.Context(), 1))
			require.NoError(t, two.Release(t.Context(), 1))
		})
	})
	t.Run("AWaiterReturnsWhenItIsSignalled", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *redistest.Server) {
			mine, theirs := process(t, s.Backend()).NewLock("work"), process(t, s.Backend()).NewLock("work")
			start := time.Now()
			go func() {
				time.Sleep(10 * time.Minute)
				assert.NoError(t, theirs.Do(context.Background(), theirs.NewCondition("ready").Signal))
			}()
			require.NoError(t, mine.Do(t.Context(), func(context.Context) error { return mine.NewCondition("ready").Await(soon(t)) }))
			assert.Equal(t, 10*time.Minute, time.Since(start))
		})
	})
}

func TestKeysAndScriptsSeeTheBubblesClock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		start := time.Now()
		_, err := do(t, s, "PSETEX", "key", "90000", "v") // the reply is a status and not a number
		require.ErrorContains(t, err, "OK")
		for _, step := range []struct {
			sleep time.Duration
			left  int64
		}{{0, 90_000}, {time.Minute, 30_000}, {30*time.Second - time.Millisecond, 1}, {time.Millisecond, -2}} {
			time.Sleep(step.sleep)
			n, err := do(t, s, "EVAL", "local t = redis.call('TIME'); return t[1] * 1000000 + t[2]", "0")
			require.NoError(t, err)
			assert.Equal(t, time.Now().UnixMicro(), n)
			n, err = do(t, s, "PTTL", "key")
			require.NoError(t, err)
			assert.Equal(t, step.left, n)
		}
		assert.Equal(t, 90*time.Second, time.Since(start))
	})
}

func TestAStepOfTheClockEndsLeases(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		_, err := do(t, s, "PSETEX", "key", "90000", "v") // the reply is a status and not a number
		require.ErrorContains(t, err, "OK")
		s.StepClock(time.Minute)
		n, err := do(t, s, "PTTL", "key")
		require.NoError(t, err)
		assert.EqualValues(t, 30_000, n)
		n, err = do(t, s, "EVAL", "local t = redis.call('TIME'); return t[1] * 1000000 + t[2]", "0")
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(time.Minute).UnixMicro(), n)
		s.StepClock(30 * time.Second)
		n, err = do(t, s, "PTTL", "key")
		require.NoError(t, err)
		assert.EqualValues(t, -2, n)
	})
}

// A lock that a session keeps while no owner has it gets a lease of three heartbeats. The session renews this lease after half
// of its time, or as soon as a reply shows that the clock has stepped.
func TestAStepOfTheClockCostsAKeptLockWhatIsLeftOfItsLease(t *testing.T) {
	for name, test := range map[string]struct {
		after, step   time.Duration
		noticed, lost bool
	}{
		"less than half of it":       {after: 1400 * time.Millisecond, step: 1450 * time.Millisecond},
		"more than was left":         {after: 1400 * time.Millisecond, step: 1650 * time.Millisecond, lost: true},
		"less than all of it, early": {after: time.Millisecond, step: 2900 * time.Millisecond, noticed: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *redistest.Server) {
				session, err := reentrant.NewSession(s.Backend(), reentrant.WithLinger(time.Second))
				require.NoError(t, err)
				t.Cleanup(func() {
					limited, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					_ = session.Close(limited)
				})
				lock, ctx := session.NewLock("work"), t.Context()
				for range 3 {
					require.NoError(t, lock.Lock(ctx))
					require.NoError(t, lock.Unlock(ctx))
				}
				require.NoError(t, lock.Lock(ctx))
				time.Sleep(test.after)
				s.StepClock(test.step)
				if test.noticed {
					require.NoError(t, session.NewLock("other").Do(ctx, func(context.Context) error { return nil }))
				}
				time.Sleep(time.Minute)
				if err := lock.Unlock(ctx); test.lost {
					require.ErrorIs(t, err, reentrant.ErrLost)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

// A client that publishes to itself gets the message and the reply, even if it has not read much that came before.
func TestTheServerNeverWaitsForAClientToRead(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		conn, err := s.Dial()
		require.NoError(t, err)
		for range 100 {
			_, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
			require.NoError(t, err)
		}
		replies := make([]byte, 100*len("+PONG\r\n"))
		_, err = io.ReadFull(conn, replies)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	})
}

// A bubble's test fails if a goroutine is left behind.
func TestCloseLeavesNothingInTheBubble(t *testing.T) {
	inBubble(t, func(t *testing.T, s *redistest.Server) {
		conn, err := s.Dial()
		require.NoError(t, err)
		s.Close()
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = s.Dial()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = rueidis.NewClient(s.ClientOption())
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = reentrant.NewSession(s.Backend())
		require.Error(t, err)
	})
}

// A fatal is a testing.TB whose test ends at Fatal.
type fatal struct {
	testing.TB
	message string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}

func TestInBubbleFailsOutsideOfABubble(t *testing.T) {
	var f fatal
	var all sync.WaitGroup
	all.Go(func() { redistest.InBubble(&f) })
	all.Wait()
	assert.Contains(t, f.message, "outside of a bubble")
}

func TestDialWithoutABubble(t *testing.T) {
	s := redistest.Start(t)
	b, _ := cabled(t, s)
	mine, theirs := process(t, b).NewLock("work"), process(t, s.Backend()).NewLock("work")
	require.NoError(t, mine.Lock(t.Context()))
	locked, err := theirs.IsLocked(t.Context())
	require.NoError(t, err)
	assert.True(t, locked)
	require.NoError(t, mine.Unlock(t.Context()))
}

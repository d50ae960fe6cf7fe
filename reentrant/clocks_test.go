package reentrant_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A server whose clock is ahead has taken over. Leases are stored as times of the server's clock, so they end sooner by
// the difference. The holder asks at once, and stops before another owner has the lock, however long its fixed lease
// is.
func TestAServerWithAnotherClockIsAskedAtOnce(t *testing.T) {
	const ahead = 9 * time.Second
	for name, test := range map[string]struct {
		fixed time.Duration
		lost  bool
	}{
		"a fixed lease":                    {fixed: 20 * time.Second, lost: true},
		"a fixed lease that is over there": {fixed: ahead, lost: true},
		"a lease that is renewed":          {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l, other := newSession(t, b).NewLock("x", reentrant.WithFixedLease(test.fixed)), newSession(t, b).NewLock("x")
				require.NoError(t, l.Lock(t.Context()))
				lost := l.Lost(t.Context())
				time.Sleep(time.Second) // nothing is lost until then
				b.SetSkew(ahead)
				b.Restart()
				if !test.lost {
					time.Sleep(time.Hour)
					assert.NoError(t, l.Verify(t.Context()))
					assert.NoError(t, l.Unlock(t.Context()))
					return
				}
				synctest.Wait()
				until, err := l.TrustedUntil(t.Context())
				if test.fixed > ahead {
					require.NoError(t, err)
					assert.LessOrEqual(t, time.Until(until), test.fixed-ahead-time.Second)
				} else {
					require.ErrorIs(t, err, reentrant.ErrLost)
				}
				ctx := owner(t, "o")
				require.NoError(t, other.Lock(ctx))
				select {
				case <-lost:
				default:
					assert.Fail(t, "two owners trust the same lock")
				}
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
				assert.NoError(t, other.Unlock(ctx))
			})
		})
	}
}

// A server whose clock is behind keeps leases for longer. For the holder that changes nothing.
func TestAServerWhoseClockIsBehindProlongsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x", reentrant.WithFixedLease(20*time.Second))
		require.NoError(t, l.Lock(t.Context()))
		before, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		b.SetSkew(-time.Minute)
		b.Restart()
		synctest.Wait()
		assert.NoError(t, l.Verify(t.Context()))
		after, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		assert.Equal(t, before, after)
		assert.NoError(t, l.Unlock(t.Context()))
	})
}

// Verify notices that a clock was stepped while the connections stayed open. A lease that can be renewed is then
// renewed.
func TestVerifyNoticesASteppedClock(t *testing.T) {
	for name, fixed := range map[string]time.Duration{"a fixed lease": reentrant.DefaultLease, "a lease that is renewed": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l := newSession(t, b).NewLock("x", reentrant.WithFixedLease(fixed))
				require.NoError(t, l.Lock(t.Context()))
				lost := l.Lost(t.Context())
				b.SetSkew(reentrant.DefaultLease - time.Second)
				b.SetFault(memory.Script(memory.Renew, memory.Delay(time.Millisecond)))
				require.NoError(t, l.Verify(t.Context()))
				until, err := l.TrustedUntil(t.Context())
				require.NoError(t, err)
				assert.Less(t, time.Until(until), time.Second)
				if fixed > 0 {
					<-lost
					assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
					return
				}
				time.Sleep(time.Minute)
				assert.NoError(t, l.Unlock(t.Context()))
			})
		})
	}
}

// If a lease is renewed between a question to Redis and its reply, the remaining time in the reply means nothing.
func TestAnAnswerFromBeforeARenewalShortensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		time.Sleep(reentrant.DefaultLease/3 - time.Millisecond)
		b.SetFault(memory.Script(memory.Inspect, memory.DelayReply(time.Second)))
		require.NoError(t, l.Verify(t.Context()))
		until, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		assert.Greater(t, time.Until(until), reentrant.DefaultLease*4/5)
		assert.NoError(t, l.Unlock(t.Context()))
	})
}

// When a machine has slept, its sessions ask Redis for fixed leases, too: a hold whose lease has ended in Redis is reported
// as lost at the next look at the clock.
func TestAMachineThatSleptAsksForFixedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var ahead atomic.Int64
		l := newSession(t, b, reentrant.WithNaps(&ahead)).NewLock("x", reentrant.WithFixedLease(time.Hour))
		require.NoError(t, l.Lock(t.Context()))
		lost := l.Lost(t.Context())
		b.Flush()
		ahead.Add(int64(time.Minute))
		begun := time.Now()
		<-lost
		assert.LessOrEqual(t, time.Since(begun), doze)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	})
}

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

// doze is how often a session checks whether its machine has slept.
const doze = time.Second

func TestAfterASleepOnlyHoldsThatRedisConfirmsAreTrusted(t *testing.T) {
	const lease = 9 * time.Second
	for name, test := range map[string]struct {
		sleep, stepped time.Duration // a clock that was set is ahead as after a sleep, although the machine did not sleep
		fixed, silent  bool
		lost           bool
		within         time.Duration // how long after the sleep the hold is lost, at the latest
	}{
		"a nap":                       {sleep: 5 * time.Second},
		"a nap, and Redis is silent":  {sleep: 5 * time.Second, silent: true, lost: true, within: lease - 5*time.Second},
		"a night":                     {sleep: 8 * time.Hour, lost: true, within: doze},
		"a night and Redis is silent": {sleep: 8 * time.Hour, silent: true, lost: true, within: doze + lease/9},
		"a clock that was set":        {stepped: 8 * time.Hour},
		"a clock that was set back":   {stepped: -8 * time.Hour},
		"a fixed lease and a nap":     {sleep: 5 * time.Second, fixed: true, lost: true, within: lease - 5*time.Second},
		"a fixed lease and a night":   {sleep: 8 * time.Hour, fixed: true, lost: true, within: doze},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				var ahead atomic.Int64
				s := newSession(t, b, reentrant.WithLease(lease), reentrant.WithNaps(&ahead))
				l := s.NewLock("x")
				if test.fixed {
					l = s.NewLock("x", reentrant.WithFixedLease(lease))
				}
				require.NoError(t, l.Lock(t.Context()))
				lost := l.Lost(t.Context())
				synctest.Wait() // no goroutine runs while the machine sleeps
				ahead.Add(int64(test.sleep + test.stepped))
				b.SetSkew(test.sleep)
				if test.silent {
					b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
					defer b.SetFault(nil)
				}
				woke := time.Now()
				if !test.lost {
					time.Sleep(3 * lease)
					assert.NoError(t, l.Unlock(t.Context()))
					return
				}
				<-lost
				assert.LessOrEqual(t, time.Since(woke), test.within)
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
			})
		})
	}
}

// A reply to a command that was sent before the machine slept is at least as old as the sleep.
func TestACommandFromBeforeASleepIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease, night = 9 * time.Second, 8 * time.Hour
		b := memory.New()
		var ahead atomic.Int64
		s := newSession(t, b, reentrant.WithLease(lease), reentrant.WithNaps(&ahead))
		require.NoError(t, s.NewLock("y").Lock(t.Context())) // so that the session checks whether its machine has slept
		l, other := s.NewLock("x"), newSession(t, b).NewLock("x")
		asked := b.Count(memory.Acquire)
		b.SetFault(memory.Script(memory.Acquire, memory.DelayReply(doze+time.Millisecond)))
		locked, o := make(chan error), owner(t, "o")
		go func() { locked <- l.Lock(o) }()
		synctest.Wait() // Redis has the command, and has not replied yet
		ahead.Add(int64(night))
		b.SetSkew(night)
		require.NoError(t, <-locked)
		assert.Equal(t, asked+3, b.Count(memory.Acquire),
			"the reply was from before the night, and so was what the session knew of Redis's clock")
		got, err := other.TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, got)
		assert.NoError(t, l.Unlock(o))
		assert.ErrorIs(t, s.NewLock("y").Unlock(t.Context()), reentrant.ErrLost)
	})
}

// If the machine slept while nothing was held, the session notices the sleep late. The sleep must not shorten the trust in
// later holds.
func TestASleepBeforeAHoldIsNotItsOwn(t *testing.T) {
	for _, opts := range [][]reentrant.LockOption{{}, {reentrant.WithFixedLease(30 * time.Second)}} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			var ahead atomic.Int64
			s := newSession(t, b, reentrant.WithNaps(&ahead))
			time.Sleep(time.Minute)
			ahead.Add(int64(time.Hour))
			b.SetSkew(time.Hour)
			time.Sleep(time.Minute)
			l := s.NewLock("x", opts...)
			require.NoError(t, l.Lock(t.Context()))
			until, err := l.TrustedUntil(t.Context())
			require.NoError(t, err)
			time.Sleep(2 * doze)
			now, err := l.TrustedUntil(t.Context())
			require.NoError(t, err)
			assert.Equal(t, until, now)
			require.NoError(t, l.Unlock(t.Context()))
		})
	}
}

// A grant that arrives after a sleep may be as old as the sleep, so it is confirmed.
func TestAGrantAfterASleepIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var ahead atomic.Int64
		l := newSession(t, b, reentrant.WithNaps(&ahead)).NewLock("x")
		other := newSession(t, b).NewLock("x")
		require.NoError(t, other.Lock(t.Context()))
		done := make(chan error)
		go func() {
			err := l.Lock(t.Context())
			if err == nil {
				err = l.Unlock(t.Context())
			}
			done <- err
		}()
		synctest.Wait()
		asked := b.Count(memory.Acquire)
		ahead.Add(int64(time.Hour))
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, <-done)
		assert.Equal(t, asked+1, b.Count(memory.Acquire))
	})
}

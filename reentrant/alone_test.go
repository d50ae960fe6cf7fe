package reentrant_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// alone takes a lock and gives it back so often that its session keeps it from now on.
func alone(t *testing.T, l *reentrant.Lock) {
	for range 4 {
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
	}
}

// kept reports whether Redis has the lock as one that its session may keep while no owner has it.
func kept(t *testing.T, l *reentrant.Lock) bool {
	state, err := l.Inspect(t.Context())
	require.NoError(t, err)
	return state.Locked && state.Owner == backend.LingeringOwner
}

func TestALockWithWhichASessionIsAloneCostsNoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithLinger(time.Second))
		l := s.NewLock("x")
		var last backend.Token
		for range 500 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Lock(t.Context()))
			token, err := l.Token(t.Context())
			require.NoError(t, err)
			assert.Greater(t, token, last)
			last = token
			require.NoError(t, l.Unlock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		assert.Equal(t, uint64(3*4+1), s.Stats().Commands, "the holds before it is alone, and one for all others")
		time.Sleep(2 * time.Second)
		assert.Zero(t, reentrant.Entries(s), "it gives the lock back when it was idle for long enough")
		assert.False(t, kept(t, l))
	})
}

// A lock that is used now and then never costs more commands than without WithLinger, because a session that kept the lock in
// vain does not keep it after the next use.
func TestALockThatIsKeptInVainIsNotKeptAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithLinger(time.Second))
		l := s.NewLock("x")
		for i := range 40 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
			assert.Equal(t, i%4 == 3, kept(t, l), "%d", i)
			time.Sleep(5 * time.Second)
		}
		assert.LessOrEqual(t, s.Stats().Commands, uint64(2*40+40), "with those of Inspect")
	})
}

// If commands take long, a session does not keep a lock for a short time over and over.
func TestALockIsNotKeptIfCommandsTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithLinger(time.Second), reentrant.WithHeartbeat(30*time.Millisecond))
		l := s.NewLock("x")
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Delay(100 * time.Millisecond) })
		for range 20 {
			begun := time.Now()
			require.NoError(t, l.Lock(t.Context()))
			assert.Equal(t, 100*time.Millisecond, time.Since(begun), "in one command")
			require.NoError(t, l.Unlock(t.Context()))
		}
		b.SetFault(nil)
		alone(t, l)
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Delay(100 * time.Millisecond) })
		time.Sleep(time.Second) // until the session gives back what it has kept
		for i := range 20 {
			begun := time.Now()
			require.NoError(t, l.Lock(t.Context()))
			assert.LessOrEqual(t, time.Since(begun), 300*time.Millisecond, "%d", i)
			require.NoError(t, l.Unlock(t.Context()))
		}
	})
}

// A session that wants to keep a lock asks for a short lease. The reply may come when that lease is over.
func TestALockThatIsGrantedTooLateToBeKeptIsTakenAsUsual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithLinger(time.Second), reentrant.WithHeartbeat(100*time.Millisecond))
		l := s.NewLock("x")
		alone(t, l)
		time.Sleep(time.Second)
		alone(t, l)
		require.True(t, kept(t, l))
		time.Sleep(time.Second)
		for range 3 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		b.SetFault(memory.Script(memory.Acquire, memory.DelayReply(time.Second)))
		require.NoError(t, l.Lock(t.Context()))
		assert.False(t, kept(t, l))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// While an owner has the lock, no other session gets it, whatever copies of commands arrive late.
func TestNoLateCopyShortensTheLeaseOfALockThatIsKept(t *testing.T) {
	for _, test := range []struct {
		verb    memory.Verb
		stepped bool // the wall clock was set, so the lock is renewed 100 ms after it was taken
		silent  time.Duration
	}{
		{memory.Acquire, false, 1600 * time.Millisecond}, // the first renewal has been sent
		{memory.Renew, false, 1600 * time.Millisecond},
		{memory.Acquire, true, 150 * time.Millisecond},
		{memory.Acquire, true, 1400 * time.Millisecond},
		{memory.Renew, true, 2 * time.Second},
	} {
		for late := 50 * time.Millisecond; late < 3*time.Second; late += 150 * time.Millisecond {
			t.Run(fmt.Sprintf("%s/%v/%v/%v", test.verb, test.stepped, test.silent, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memory.New()
					var ahead atomic.Int64
					s, other := newSession(t, b, reentrant.WithLinger(time.Second), reentrant.WithNaps(&ahead)), newSession(t, b)
					l := s.NewLock("x")
					for range 3 {
						require.NoError(t, l.Lock(t.Context()))
						require.NoError(t, l.Unlock(t.Context()))
					}
					require.NoError(t, s.NewLock("y").Lock(t.Context())) // from now on the session looks at its leases each second
					time.Sleep(doze - 100*time.Millisecond)
					b.SetFault(memory.Script(test.verb, memory.Duplicate(late), memory.Duplicate(late)))
					require.NoError(t, l.Lock(t.Context()))
					require.True(t, kept(t, l))
					if test.stepped {
						ahead.Add(int64(time.Hour))
					}
					time.Sleep(test.silent)
					b.Partition(s.ID(), true)
					for range 200 {
						time.Sleep(100 * time.Millisecond)
						until, err := l.TrustedUntil(t.Context())
						if err != nil {
							break
						}
						state, err := other.NewLock("x").Inspect(t.Context())
						require.NoError(t, err)
						require.GreaterOrEqual(t, state.TTL, time.Until(until), "what it trusts")
					}
					b.Partition(s.ID(), false)
				})
			})
		}
	}
}

// A wall clock that was set looks like a machine that has slept: the session renews its holds when it next looks at its
// leases. Until then it trusts each hold for a ninth of the lease.
func TestAClockThatIsSetCostsNoLockThatIsKept(t *testing.T) {
	for age := time.Duration(0); age < doze; age += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			s := newSession(t, memory.New(), reentrant.WithLinger(time.Second), reentrant.WithNaps(&ahead))
			l := s.NewLock("x")
			for range 3 {
				require.NoError(t, l.Lock(t.Context()))
				require.NoError(t, l.Unlock(t.Context()))
			}
			require.NoError(t, s.NewLock("y").Lock(t.Context())) // from now on the session looks at its leases each second
			time.Sleep(doze - age)
			require.NoError(t, l.Lock(t.Context()))
			require.True(t, kept(t, l))
			ahead.Add(int64(time.Hour))
			time.Sleep(time.Minute)
			require.NoError(t, l.Unlock(t.Context()), "after %v", age)
		})
	}
}

// Once its lease has been renewed, a hold that was taken locally survives an outage as any other does.
func TestAHoldOfALockThatIsKeptGetsTheFullLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithLinger(time.Second))
		l := s.NewLock("x")
		alone(t, l)
		require.NoError(t, l.Lock(t.Context()))
		time.Sleep(2 * time.Second)
		b.Partition(s.ID(), true)
		time.Sleep(8 * time.Second)
		b.Partition(s.ID(), false)
		time.Sleep(time.Second)
		assert.NoError(t, l.Verify(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		assert.False(t, kept(t, l), "what was renewed is not kept: it would stay for a full lease if the process ended")
	})
}

// A session that dies while it keeps a lock delays others by at most three heartbeats, whatever lease the lock had before.
func TestACrashWhileALockIsKeptCostsThreeHeartbeats(t *testing.T) {
	for idle := time.Duration(0); idle < 4*time.Second; idle += 200 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			s, other := newSession(t, b, reentrant.WithLinger(time.Hour)), newSession(t, b)
			l := s.NewLock("x")
			alone(t, l)
			require.NoError(t, l.Lock(t.Context()))
			time.Sleep(idle)
			require.NoError(t, l.Unlock(t.Context()))
			b.Partition(s.ID(), true)
			begun := time.Now()
			m := other.NewLock("x")
			require.NoError(t, m.Lock(t.Context()))
			assert.LessOrEqual(t, time.Since(begun), 3*reentrant.DefaultHeartbeat+50*time.Millisecond, "after %v", idle)
			require.NoError(t, m.Unlock(t.Context()))
			b.Partition(s.ID(), false)
		})
	}
}

// A session that ends just after it asked for a lock that it would have kept delays other sessions for as long as any waiter
// that dies does.
func TestACrashWhileALockIsAskedForCostsThreeHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other, third := newSession(t, b, reentrant.WithLinger(time.Second)), newSession(t, b), newSession(t, b)
		l, m := s.NewLock("x"), other.NewLock("x")
		for range 3 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		require.NoError(t, m.Lock(t.Context()))
		b.SetFault(memory.Script(memory.Acquire, memory.LoseReply))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, l.Lock(ctx), context.Canceled) })
		synctest.Wait()
		b.Partition(s.ID(), true)
		wg.Go(func() {
			time.Sleep(time.Millisecond)
			begun, n := time.Now(), third.NewLock("x")
			assert.NoError(t, n.Lock(t.Context()))
			assert.LessOrEqual(t, time.Since(begun), 3*reentrant.DefaultHeartbeat+50*time.Millisecond)
			assert.NoError(t, n.Unlock(t.Context()))
			cancel()
		})
		time.Sleep(2 * time.Millisecond)
		require.NoError(t, m.Unlock(t.Context()))
		wg.Wait()
		b.Partition(s.ID(), false)
	})
}

// A hold with terms of its own, such as a fixed lease, is shown in Redis with its owner, although the session is alone with
// the lock, because the session does not keep that lock.
func TestHoldsWithTermsOfTheirOwnAreNotKept(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		ctx  context.Context
		opts []reentrant.LockOption
	}{
		"fixed":    {ctx, []reentrant.LockOption{reentrant.WithFixedLease(time.Minute)}},
		"at least": {ctx, []reentrant.LockOption{reentrant.WithAtLeast(time.Nanosecond)}},
		"portable": {reentrant.WithPortableOwner(ctx, "p"), nil},
		"noted":    {reentrant.WithNote(ctx, "why"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t, memory.New(), reentrant.WithLinger(time.Second))
				for _, idle := range []time.Duration{0, 2 * time.Second} {
					alone(t, s.NewLock("x"))
					time.Sleep(idle)
					l := s.NewLock("x", c.opts...)
					require.NoError(t, l.Lock(c.ctx))
					assert.False(t, kept(t, l))
					require.NoError(t, l.Unlock(c.ctx))
					assert.False(t, kept(t, l))
				}
			})
		})
	}
}

// With WithAsyncUnlock the next Lock comes before the release is sent, and takes the hold over.
func TestALockIsKeptWithAsyncUnlockToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithLinger(time.Second), reentrant.WithAsyncUnlock())
		slow(b)
		l := s.NewLock("x")
		for range 100 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		assert.True(t, kept(t, l))
		assert.Less(t, s.Stats().Commands, uint64(20))
	})
}

func TestCloseGivesBackWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b, reentrant.WithLinger(time.Hour)), newSession(t, b)
		alone(t, s.NewLock("x"))
		require.NoError(t, s.Close(t.Context()))
		ok, err := other.NewLock("x").TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

// Redis forgets a lock that is kept: by ForceUnlock, or because another server has taken over. The next owner may believe for a
// moment that it has the lock, and learns of the loss with the first renewal.
func TestWhatIsKeptMayBeTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b, reentrant.WithLinger(time.Hour)), newSession(t, b)
		l, m := s.NewLock("x"), other.NewLock("x")
		alone(t, l)
		had, err := m.ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, had)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, l.Lock(t.Context()))
		begun := time.Now()
		<-l.Lost(t.Context())
		assert.LessOrEqual(t, time.Since(begun), 1500*time.Millisecond)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		require.NoError(t, m.Unlock(t.Context()))

		alone(t, l)
		require.True(t, kept(t, l))
		time.Sleep(time.Millisecond)
		b.Restart()
		synctest.Wait()
		assert.Zero(t, reentrant.Entries(s), "it is given back when the channel was lost")
	})
}

// A session does not keep a lock for which another session waits, and must be alone with the lock for some time before it
// keeps the lock again.
func TestALockThatIsWantedIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b, reentrant.WithLinger(time.Hour)), newSession(t, b)
		l, m := s.NewLock("x"), other.NewLock("x")
		for range 10 { // so often that the session keeps the lock
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		require.NoError(t, l.Lock(t.Context()))
		require.True(t, kept(t, l))
		wanted := l.Wanted(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.NoError(t, m.Lock(t.Context()))
			assert.NoError(t, m.Unlock(t.Context()))
		})
		<-wanted
		require.NoError(t, l.Unlock(t.Context()))
		wg.Wait()
		for range 3 {
			require.NoError(t, l.Lock(t.Context()))
			assert.False(t, kept(t, l), "it has to be alone with it anew")
			require.NoError(t, l.Unlock(t.Context()))
		}
	})
}

// Owners never overlap, tokens rise, and every owner gets in, while sessions become alone with a lock and others join them again.
func TestSessionsThatKeepLocksExcludeEachOther(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			slow(b)
			var inside, entered int
			var last backend.Token
			var wg sync.WaitGroup
			for i := range 3 {
				s := newSession(t, b, reentrant.WithLinger(time.Duration(seed+1)*20*time.Millisecond), reentrant.WithHeartbeat(50*time.Millisecond))
				for j := range 2 {
					wg.Go(func() {
						l := s.NewLock("x")
						for n := range 60 {
							if !assert.NoError(t, l.Lock(t.Context())) {
								return
							}
							inside++
							token, err := l.Token(t.Context())
							assert.NoError(t, err)
							assert.Equal(t, 1, inside)
							assert.Greater(t, token, last)
							last = token
							if n%9 == j {
								time.Sleep(time.Duration(n) * time.Millisecond)
							}
							entered++
							inside--
							assert.NoError(t, l.Unlock(t.Context()))
							time.Sleep(time.Duration((n/12+i+seed)%4*(n*7%11)*(seed+1)) * time.Millisecond)
						}
					})
				}
			}
			wg.Wait()
			assert.Equal(t, 3*2*60, entered)
		})
	}
}

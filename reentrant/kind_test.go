package reentrant_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// Every way to take a name returns an error that says as what the name is in use, in the session that uses it and in
// another one.
func TestAnErrorSaysWhatTheNameIsInUseAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		l, rw, m := s.NewLock("lock"), s.NewRWLock("rw"), s.NewSemaphore("sem", 3)
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, rw.RLock(ctx))
		require.NoError(t, m.Acquire(ctx, 1))
		says := func(err error, text string) {
			t.Helper()
			require.ErrorIs(t, err, reentrant.ErrWrongKind)
			assert.True(t, reentrant.Refused(err))
			assert.EqualError(t, err, text)
		}
		for _, x := range []*reentrant.Session{s, other} {
			sent := x.Stats().Commands
			says(x.NewLock("rw").Lock(ctx), `reentrant: lock "rw": the name is in use as a read-write lock, not as a lock`)
			assert.EqualValues(t, 2, x.Stats().Commands-sent, "the attempt, and the question as what the name is in use")
			says(x.NewLock("sem").Lock(ctx), `reentrant: lock "sem": the name is in use as a semaphore, not as a lock`)
			_, err := x.NewLock("sem").TryLock(ctx)
			says(err, `reentrant: try lock "sem": the name is in use as a semaphore, not as a lock`)
			says(x.NewRWLock("lock").RLock(ctx), `reentrant: rlock "lock": the name is in use as a lock, not as a read-write lock`)
			says(x.NewRWLock("sem").Lock(ctx), `reentrant: lock "sem": the name is in use as a semaphore, not as a read-write lock`)
			says(x.NewSemaphore("lock", 3).Acquire(ctx, 1), `reentrant: acquire "lock": the name is in use as a lock, not as a semaphore`)
			says(x.NewSemaphore("rw", 3).Acquire(ctx, 1), `reentrant: acquire "rw": the name is in use as a read-write lock, not as a semaphore`)
			says(reentrant.NewMultiLock(x.NewLock("free"), x.NewLock("rw")).Lock(ctx), `reentrant: lock "rw": the name is in use as a read-write lock, not as a lock`)

			_, err = x.NewLock("rw").Inspect(ctx)
			says(err, `reentrant: inspect "rw": the name is in use as a read-write lock, not as a lock`)
			_, err = x.NewRWLock("lock").Inspect(ctx)
			says(err, `reentrant: inspect "lock": the name is in use as a lock, not as a read-write lock`)
			for name, kind := range map[string]string{"lock": "lock", "sem": "semaphore"} {
				_, err = x.NewRWLock(name).Inspect(ctx)
				says(err, fmt.Sprintf(`reentrant: inspect %q: the name is in use as a %s, not as a read-write lock`, name, kind))
				_, err = x.NewRWLock(name).IsWriteLocked(ctx)
				says(err, fmt.Sprintf(`reentrant: is write locked %q: the name is in use as a %s, not as a read-write lock`, name, kind))
			}
			for name, kind := range map[string]string{"lock": "lock", "rw": "read-write lock"} {
				_, err = x.NewSemaphore(name, 3).Inspect(ctx)
				says(err, fmt.Sprintf(`reentrant: inspect %q: the name is in use as a %s, not as a semaphore`, name, kind))
			}
			_, err = x.NewLock("sem").ForceUnlock(ctx)
			says(err, `reentrant: force unlock "sem": the name is in use as a semaphore, not as a lock`)
			_, err = x.NewSemaphore("rw", 3).ForceRelease(ctx)
			says(err, `reentrant: force release "rw": the name is in use as a read-write lock, not as a semaphore`)
		}
		require.NoError(t, m.Release(ctx, 1))
		require.NoError(t, rw.RUnlock(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

// A call that is refused because of the kind stays refused, even if the server does not say as what the name is in use.
func TestARefusedKindStaysRefusedWithoutAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		rw := s.NewRWLock("rw")
		require.NoError(t, rw.RLock(t.Context()))
		b.SetFault(memory.Script(memory.Inspect, memory.Lose))
		err := s.NewLock("rw").Lock(t.Context())
		require.ErrorIs(t, err, reentrant.ErrWrongKind)
		assert.NotErrorIs(t, err, reentrant.ErrUnavailable)
		assert.ErrorContains(t, err, reentrant.ErrWrongKind.Error())
		require.NoError(t, rw.RUnlock(t.Context()))
	})
}

// A name that is no longer used keeps its kind for a while, and the error does not say that it is in use.
func TestANameThatIsKeptForItsKindWasInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		first, second := newSession(t, b), newSession(t, b)
		require.NoError(t, first.NewSemaphore("sem", 2).Acquire(ctx, 1))
		assert.ErrorContains(t, second.NewLock("sem").Lock(ctx), "the name is in use as a semaphore, not as a lock")
		require.NoError(t, first.NewSemaphore("sem", 2).Release(ctx, 1))
		synctest.Wait()
		err := second.NewLock("sem").Lock(ctx)
		assert.ErrorIs(t, err, reentrant.ErrWrongKind)
		assert.ErrorContains(t, err, "the name was in use as a semaphore, and is not free for a lock yet")
		time.Sleep(20 * time.Second)
		require.NoError(t, second.NewLock("sem").Lock(ctx), "the name is free")
		require.NoError(t, second.NewLock("sem").Unlock(ctx))
		assert.ErrorContains(t, first.NewRWLock("sem").RLock(ctx), "the name was in use as a lock, and is not free for a read-write lock yet")
	})
}

// A name is free for another kind of lock within half a minute of its last use: also if sessions waited for it, or gave up
// waiting, which keeps the record of a Lock for longer. Tries of the other kind do not change that, and tokens go on rising.
func TestANameIsSoonFreeForAnotherKind(t *testing.T) {
	waits := func(wait time.Duration) func(*testing.T, *reentrant.Session) {
		return func(t *testing.T, s *reentrant.Session) {
			l := s.NewLock("name")
			if ok, err := l.TryLockFor(t.Context(), wait); ok {
				assert.NoError(t, err)
				assert.NoError(t, l.Unlock(t.Context()))
			}
		}
	}
	for use, other := range map[string]func(*testing.T, *reentrant.Session){
		"no session waits": func(*testing.T, *reentrant.Session) {}, "a session waits": waits(time.Minute), "a session gives up": waits(time.Second),
	} {
		for kind, try := range map[string]func(*testing.T, *reentrant.Session) (bool, error){
			"RLock": func(t *testing.T, s *reentrant.Session) (bool, error) {
				return s.NewRWLock("name").TryRLock(t.Context())
			},
			"Lock": func(t *testing.T, s *reentrant.Session) (bool, error) {
				return s.NewRWLock("name").TryLock(t.Context())
			},
			"Acquire": func(t *testing.T, s *reentrant.Session) (bool, error) {
				return s.NewSemaphore("name", 1).TryAcquire(t.Context(), 1)
			},
		} {
			t.Run(use+"/"+kind, func(t *testing.T) {
				eachInBubble(t, func(t *testing.T, b backend.Backend) {
					s, waiter, next := newSession(t, b, reentrant.WithLease(time.Minute)), newSession(t, b), newSession(t, b)
					l := s.NewLock("name")
					require.NoError(t, l.Lock(t.Context()))
					var all sync.WaitGroup
					all.Go(func() { other(t, waiter) })
					time.Sleep(2 * time.Second)
					token, err := l.Token(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Unlock(t.Context()))
					all.Wait()
					began := time.Now()
					for {
						ok, err := try(t, next)
						if err == nil {
							require.True(t, ok)
							break
						}
						require.ErrorIs(t, err, reentrant.ErrWrongKind)
						time.Sleep(time.Second)
					}
					assert.LessOrEqual(t, time.Since(began), 31*time.Second)
					if kind == "Lock" {
						later, err := next.NewRWLock("name").Token(t.Context())
						require.NoError(t, err)
						assert.Greater(t, later, token)
					}
					assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrWrongKind)
				})
			})
		}
	}
}

// While owners wait for a condition of a Lock, no other kind of lock can take the Lock's name, because then no owner could
// signal them.
func TestAConditionThatOwnersWaitForKeepsTheNameOfItsLock(t *testing.T) {
	eachInBubble(t, func(t *testing.T, b backend.Backend) {
		s, other := newSession(t, b), newSession(t, b)
		l := s.NewLock("name")
		ctx := reentrant.WithOwner(t.Context(), "waiter")
		require.NoError(t, l.Lock(ctx))
		waited := make(chan error, 1)
		go func() { waited <- l.NewCondition("ready").Await(ctx) }()
		for range 60 {
			time.Sleep(10 * time.Second)
			_, err := other.NewRWLock("name").TryRLock(t.Context())
			require.ErrorIs(t, err, reentrant.ErrWrongKind)
		}
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.NewCondition("ready").Signal(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-waited)
		require.NoError(t, l.Unlock(ctx))
		time.Sleep(31 * time.Second)
		require.NoError(t, other.NewRWLock("name").RLock(t.Context()))
	})
}

// eachInBubble runs a test in virtual time, with a server in memory and with an embedded Redis.
func eachInBubble(t *testing.T, test func(*testing.T, backend.Backend)) {
	t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, memory.New()) }) })
	t.Run("redis", func(t *testing.T) {
		if strconv.IntSize == 32 {
			t.Skip("the embedded Redis needs an int of 64 bits")
		}
		synctest.Test(t, func(t *testing.T) { test(t, redistest.InBubble(t).Backend()) })
	})
}

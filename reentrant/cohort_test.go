package reentrant_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestEachOwnerOfACohortHasATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithCohort())
		var last backend.Token
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				l := s.NewLock("x")
				for range 100 {
					if !assert.NoError(t, l.Lock(t.Context())) {
						return
					}
					token, err := l.Token(t.Context())
					assert.NoError(t, err)
					assert.Greater(t, token, last)
					last = token
					runtime.Gosched() // so that the others queue up
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
		}
		wg.Wait()
	})
}

func TestACohortSendsOneCommandPerTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithCohort())
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				assert.NoError(t, l.Lock(t.Context()))
				assert.NoError(t, l.Lock(t.Context()))
				assert.Equal(t, 2, l.HoldCount(t.Context()))
				assert.NoError(t, l.Unlock(t.Context()))
				assert.NoError(t, l.Unlock(t.Context()))
			})
		}
		synctest.Wait()
		assert.Equal(t, uint64(1), s.Stats().Commands)
		require.NoError(t, l.Unlock(t.Context()))
		wg.Wait()
		assert.Equal(t, uint64(2), s.Stats().Commands, "one acquire, one release")
		assert.Equal(t, uint64(201), s.Stats().Acquired)
	})
}

func TestACohortDoesNotReenterWhatIsLost(t *testing.T) {
	for name, end := range map[string]func(b *memory.Backend, s *reentrant.Session){
		"the lease has ended": func(b *memory.Backend, _ *reentrant.Session) {
			b.SetFault(memory.Script(memory.Renew, lose(100)...))
		},
		"the lease is renewed": func(_ *memory.Backend, s *reentrant.Session) { reentrant.Lose(s, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b, reentrant.WithCohort(), reentrant.WithLease(3*time.Second))
				l := s.NewLock("x")
				require.NoError(t, l.Lock(t.Context()))
				require.NoError(t, l.Lock(t.Context()))
				lost := l.Lost(t.Context())
				end(b, s)
				<-lost
				assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrLost)
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
				assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
			})
		})
	}
}

func lose(n int) (verdicts []memory.Verdict) {
	for range n {
		verdicts = append(verdicts, memory.Lose)
	}
	return verdicts
}

// A handle remembers the state of its lock. That state may be used for another lock by now, which the same goroutine
// holds.
func TestAHandleIsNotMistakenForAnother(t *testing.T) {
	s := newSession(t, memory.New(), reentrant.WithCohort(), patient)
	a, b := s.NewLock("a"), s.NewLock("b")
	require.NoError(t, a.Lock(t.Context()))
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, b.Lock(t.Context())) // this uses the state that a had
	require.NoError(t, b.Lock(t.Context()))
	assert.ErrorIs(t, a.Unlock(t.Context()), reentrant.ErrNotHeld)
	assert.Equal(t, 2, b.HoldCount(t.Context()))
	require.NoError(t, a.Lock(t.Context()))
	assert.Equal(t, 1, a.HoldCount(t.Context()))
	assert.Equal(t, 2, b.HoldCount(t.Context()))
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, b.Unlock(t.Context()))
	require.NoError(t, b.Unlock(t.Context()))
	assert.Zero(t, reentrant.Entries(s))
}

func TestALockThatLingersCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithCohort(), reentrant.WithLinger(time.Second), reentrant.WithLease(time.Minute))
		l := s.NewLock("x")
		for range 200 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
			time.Sleep(10 * time.Millisecond)
		}
		assert.Equal(t, uint64(1), s.Stats().Commands)
		assert.Zero(t, s.Stats().Held)
		time.Sleep(2 * time.Second)
		assert.Equal(t, uint64(2), s.Stats().Commands)
		assert.Zero(t, reentrant.Entries(s))
	})
}

// The state of a free lock is reused for the next lock, so the state that a Lock remembers may belong to another one.
func TestALockFindsItsOwnStateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New(), reentrant.WithCohort())
		pass := func(l *reentrant.Lock) {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		first := s.NewLock("first")
		pass(first)
		for i := range 63 { // with the first, as many as a session keeps
			pass(s.NewLock(strconv.Itoa(i)))
		}
		next := s.NewLock("next")
		require.NoError(t, next.Lock(t.Context()))
		free, err := first.TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, free, "the next lock uses the state that the first one had")
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// BenchmarkCohortReentry measures a re-entrant Lock and Unlock by a goroutine that has the lock.
func BenchmarkCohortReentry(b *testing.B) {
	l := newSession(b, memory.New(), reentrant.WithCohort()).NewLock("x")
	ctx := context.Background()
	require.NoError(b, l.Lock(ctx))
	b.ReportAllocs()
	for b.Loop() {
		if l.Lock(ctx) != nil || l.Unlock(ctx) != nil {
			b.Fatal("the lock is held")
		}
	}
	require.NoError(b, l.Unlock(ctx))
}

// BenchmarkCohortHandover measures a hand-over between goroutines of one session. For comparison two goroutines send
// each other a value over a channel: the time is one way.
func BenchmarkCohortHandover(b *testing.B) {
	b.Run("channel", func(b *testing.B) {
		ping, pong := make(chan struct{}), make(chan struct{})
		go func() {
			for range ping {
				pong <- struct{}{}
			}
		}()
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				ping <- struct{}{}
			} else {
				<-pong
			}
		}
		close(ping)
	})
	for _, waiters := range []int{1, 100, 1_000, 10_000} {
		b.Run(strconv.Itoa(waiters), func(b *testing.B) { benchmarkHandover(b, waiters) })
	}
}

func benchmarkHandover(b *testing.B, waiters int) {
	s := newSession(b, memory.New(), reentrant.WithCohort())
	l := s.NewLock("x")
	ctx := context.Background()
	require.NoError(b, l.Lock(ctx))
	left := b.N
	var wg sync.WaitGroup
	for range waiters + 1 {
		wg.Go(func() {
			for more := true; more; {
				if l.Lock(ctx) != nil {
					return
				}
				left--
				more = left > 0
				_ = l.Unlock(ctx)
			}
		})
	}
	for l.QueueLength() < waiters+1 {
		runtime.Gosched()
	}
	before := s.Stats().Commands
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, l.Unlock(ctx))
	wg.Wait()
	b.ReportMetric(float64(s.Stats().Commands-before)/float64(b.N), "commands/op")
}

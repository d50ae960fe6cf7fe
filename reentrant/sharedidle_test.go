package reentrant_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// trip is the length of a round trip in these tests: half of it in each direction.
const trip = 2 * time.Millisecond

// slow makes the server half a round trip away from all sessions.
func slow(b *memory.Backend) {
	b.SetFault(func(op memory.Op) memory.Verdict {
		if op.Verb == memory.Push {
			return memory.Delay(trip / 2)
		}
		return memory.Verdict{Delay: trip / 2, Late: trip / 2}
	})
}

func TestCallersThatMoveToAStricterHandleAreSoonFewer(t *testing.T) {
	t.Run("many of one session", func(t *testing.T) { moveToAStricterHandle(t, 1, 20, 10, 3) })
	t.Run("many of two sessions", func(t *testing.T) { moveToAStricterHandle(t, 2, 20, 10, 3) })
	t.Run("few of two sessions", func(t *testing.T) { moveToAStricterHandle(t, 2, 2, 4, 3) })
	t.Run("to one permit", func(t *testing.T) { moveToAStricterHandle(t, 3, 1, 3, 1) })
}

func moveToAStricterHandle(t *testing.T, sessions, callers, before, after int) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx, cancel := context.WithCancel(t.Context())
		var wide atomic.Bool
		var inside, most atomic.Int64
		var work sync.WaitGroup
		wide.Store(true)
		for range sessions {
			s := newSession(t, b)
			lax, strict := s.NewSemaphore("x", before), s.NewSemaphore("x", after)
			for range callers {
				work.Go(func() {
					for ctx.Err() == nil {
						m := strict
						if wide.Load() {
							m = lax
						}
						if m.Acquire(ctx, 1) != nil {
							return
						}
						n := inside.Add(1)
						for max := most.Load(); n > max && !most.CompareAndSwap(max, n); max = most.Load() {
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						_ = m.Release(ctx, 1)
					}
				})
			}
		}
		time.Sleep(time.Second)
		assert.EqualValues(t, before, most.Load())
		wide.Store(false)
		time.Sleep(100 * time.Millisecond)
		most.Store(0)
		time.Sleep(time.Second)
		assert.EqualValues(t, after, most.Load())
		cancel()
		work.Wait()
	})
}

func TestATryThroughAStricterHandleFailsWhileMoreAreOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		wide := s.NewSemaphore("x", 10)
		require.NoError(t, wide.Acquire(t.Context(), 7))
		for _, strict := range []*reentrant.Semaphore{s.NewSemaphore("x", 3), other.NewSemaphore("x", 3)} {
			ok, err := strict.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			assert.False(t, ok, "7 permits are out")
		}
		require.NoError(t, wide.Release(t.Context(), 5))
		for _, strict := range []*reentrant.Semaphore{s.NewSemaphore("x", 3), other.NewSemaphore("x", 3)} {
			ok, err := strict.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			assert.True(t, ok, "2 permits are out")
			require.NoError(t, strict.Release(t.Context(), 1))
		}
		require.NoError(t, wide.Release(t.Context(), 2))
	})
}

func TestARaisedLimitHelpsWaitersAtOnce(t *testing.T) {
	for name, same := range map[string]bool{"for their own session": true, "for another session": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				holder := s.NewSemaphore("x", 1)
				if !same {
					holder = newSession(t, b).NewSemaphore("x", 1)
				}
				require.NoError(t, holder.Acquire(t.Context(), 1))
				got := make(chan error, 1)
				go func() { got <- s.NewSemaphore("x", 1).Acquire(t.Context(), 1) }()
				time.Sleep(time.Minute)
				require.Empty(t, got)
				start := time.Now()
				ok, err := s.NewSemaphore("x", 2).TryAcquire(t.Context(), 1)
				require.NoError(t, err)
				assert.False(t, ok, "another caller is before it")
				require.NoError(t, <-got)
				assert.LessOrEqual(t, time.Since(start), 20*time.Millisecond)
			})
		})
	}
}

func TestNewcomersComeInWhenTheOnlyWaitingWriterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		reader, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, reader.RLock(t.Context()))
		ctx, leave := context.WithCancel(t.Context())
		go func() { _ = writer.Lock(ctx) }()
		synctest.Wait()
		entered := make(chan error, 1)
		newcomer := reentrant.WithOwner(t.Context(), "newcomer")
		go func() { entered <- reader.RLock(newcomer) }()
		time.Sleep(reentrant.DefaultHeartbeat * 7 / 2)
		require.Empty(t, entered)
		slow(b)
		start := time.Now()
		leave()
		require.NoError(t, <-entered)
		assert.LessOrEqual(t, time.Since(start), trip)
		require.NoError(t, reader.RUnlock(newcomer))
		require.NoError(t, reader.RUnlock(t.Context()))
	})
}

func TestATryTakesPermitsThatNoCallerUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, other := newSession(t, b).NewSemaphore("x", 10), newSession(t, b).NewSemaphore("x", 10)
		require.NoError(t, holder.Acquire(t.Context(), 10))
		require.NoError(t, holder.Release(t.Context(), 9))
		time.Sleep(5 * time.Second)
		slow(b)
		start := time.Now()
		ok, err := other.TryAcquire(t.Context(), 9)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.LessOrEqual(t, time.Since(start), 2*trip)
		ok, err = other.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		assert.False(t, ok, "all are in use")
		require.NoError(t, other.Release(t.Context(), 9))
		require.NoError(t, holder.Release(t.Context(), 1))
	})
}

func TestATryAfterAReleaseElsewhereSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		m, l := s.NewSemaphore("x", 3), s.NewRWLock("y")
		slow(b)
		for range 3 {
			require.NoError(t, m.Acquire(t.Context(), 3))
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, m.Release(t.Context(), 3))
			require.NoError(t, l.Unlock(t.Context()))
			ok, err := other.NewSemaphore("x", 3).TryAcquire(t.Context(), 3)
			require.NoError(t, err)
			assert.True(t, ok)
			ok, err = other.NewRWLock("y").TryLock(t.Context())
			require.NoError(t, err)
			assert.True(t, ok)
			require.NoError(t, other.NewSemaphore("x", 3).Release(t.Context(), 3))
			require.NoError(t, other.NewRWLock("y").Unlock(t.Context()))
		}
	})
}

func TestATryToWriteBesideShortReadsNearlyAlwaysSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		reader, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		slow(b)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		var calls atomic.Int64 // of RLock: how many have begun, and how many have ended
		work.Go(func() {
			for ctx.Err() == nil {
				calls.Add(1)
				err := reader.RLock(ctx)
				calls.Add(1)
				if err == nil {
					time.Sleep(2 * time.Millisecond)
					assert.NoError(t, reader.RUnlock(ctx))
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
		const tries = 200
		succeeded, undisturbed := 0, 0
		for range tries {
			time.Sleep(rand.N(400 * time.Millisecond))
			start, begun := time.Now(), calls.Load()
			ok, err := writer.TryLock(t.Context())
			require.NoError(t, err)
			if begun%2 == 0 && calls.Load() == begun {
				undisturbed++
				assert.LessOrEqual(t, time.Since(start), 2*trip)
			} else { // the reader's session may have a command under way, and replies when that has returned
				assert.LessOrEqual(t, time.Since(start), 3*trip)
			}
			if ok {
				succeeded++
				require.NoError(t, writer.Unlock(t.Context()))
			}
		}
		cancel()
		work.Wait()
		t.Log(succeeded, "of", tries, "succeeded, and", undisturbed, "met no command of the reader's session")
		assert.Greater(t, succeeded, tries*9/10)
		assert.Greater(t, undisturbed, tries*8/10)
	})
}

func TestATryToReadSucceedsAfterADowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		writer, reader := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, writer.Lock(t.Context()))
		require.NoError(t, writer.RLock(t.Context()))
		require.NoError(t, writer.Unlock(t.Context()))
		slow(b)
		start := time.Now()
		ok, err := reader.TryRLock(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		assert.LessOrEqual(t, time.Since(start), 2*trip)
		require.NoError(t, reader.RUnlock(t.Context()))
		require.NoError(t, writer.RUnlock(t.Context()))
	})
}

// tryCases are holds that make another session's try fail while they are in use.
var tryCases = map[string]struct {
	take func(context.Context, *reentrant.Session) error
	try  func(context.Context, *reentrant.Session) (bool, error)
}{
	"permits": {
		func(ctx context.Context, s *reentrant.Session) error { return s.NewSemaphore("x", 3).Acquire(ctx, 2) },
		func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewSemaphore("x", 3).TryAcquire(ctx, 2)
		},
	},
	"a reader": {
		func(ctx context.Context, s *reentrant.Session) error { return s.NewRWLock("x").RLock(ctx) },
		func(ctx context.Context, s *reentrant.Session) (bool, error) { return s.NewRWLock("x").TryLock(ctx) },
	},
	"a writer": {
		func(ctx context.Context, s *reentrant.Session) error { return s.NewRWLock("x").Lock(ctx) },
		func(ctx context.Context, s *reentrant.Session) (bool, error) { return s.NewRWLock("x").TryRLock(ctx) },
	},
}

func TestATryIsRefusedWithinTwoRoundTripsByThoseThatAreAlive(t *testing.T) {
	for name, c := range tryCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				holder, other := newSession(t, b), newSession(t, b)
				require.NoError(t, c.take(t.Context(), holder))
				slow(b)
				for range 3 {
					start := time.Now()
					ok, err := c.try(t.Context(), other)
					require.NoError(t, err)
					assert.False(t, ok)
					assert.LessOrEqual(t, time.Since(start), 2*trip)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestATryBesideADeadSessionFailsWithinAHeartbeat(t *testing.T) {
	for name, c := range tryCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				holder, other := newSession(t, b), newSession(t, b)
				require.NoError(t, c.take(t.Context(), holder))
				b.Partition(b.Name(holder.ID()), true)
				slow(b)
				start := time.Now()
				ok, err := c.try(t.Context(), other)
				require.NoError(t, err)
				assert.False(t, ok)
				assert.LessOrEqual(t, time.Since(start), reentrant.DefaultHeartbeat+trip)
			})
		})
	}
}

func TestATryThatSucceedsIsOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		require.NoError(t, s.NewSemaphore("x", 3).Acquire(t.Context(), 1))
		require.NoError(t, s.NewRWLock("y").RLock(t.Context()))
		before := b.Commands()
		ok, err := other.NewSemaphore("x", 3).TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = other.NewRWLock("y").TryRLock(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		synctest.Wait()
		assert.Equal(t, 2, b.Commands()-before)
	})
}

package reentrant_test

import (
	"context"
	"errors"
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

func TestReadersAreInsideTogetherAndAWriterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var readers, writers, together, reads, writes atomic.Int64
		var wg sync.WaitGroup
		for i := range 3 {
			l := newSession(t, b).NewRWLock("x")
			for j := range 5 {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				wg.Go(func() {
					for range 30 {
						if rng.IntN(4) == 0 {
							if !assert.NoError(t, l.Lock(t.Context())) {
								return
							}
							assert.Equal(t, int64(1), writers.Add(1))
							assert.Zero(t, readers.Load())
							time.Sleep(time.Millisecond)
							writers.Add(-1)
							assert.NoError(t, l.Unlock(t.Context()))
							writes.Add(1)
							continue
						}
						if !assert.NoError(t, l.RLock(t.Context())) {
							return
						}
						if readers.Add(1) > 5 {
							together.Store(1)
						}
						assert.Zero(t, writers.Load())
						time.Sleep(time.Millisecond)
						readers.Add(-1)
						assert.NoError(t, l.RUnlock(t.Context()))
						reads.Add(1)
					}
				})
			}
		}
		wg.Wait()
		assert.Equal(t, int64(450), reads.Load()+writes.Load())
		assert.NotZero(t, together.Load(), "readers of several sessions are never inside together")
	})
}

func TestReadersOfASessionSendNothingWhileItIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewRWLock("x")
		require.NoError(t, l.RLock(t.Context()))
		require.NoError(t, l.RUnlock(t.Context()))
		sent := b.Count(memory.Share)
		for range 100 {
			require.NoError(t, l.RLock(t.Context()))
			require.NoError(t, l.RUnlock(t.Context()))
		}
		synctest.Wait()
		assert.Equal(t, sent, b.Count(memory.Share))
		time.Sleep(3 * reentrant.DefaultHeartbeat)
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		assert.Empty(t, st.Holders, "an idle registration goes back after a heartbeat or two")
	})
}

func TestAWriterAsksReadersOfOtherSessionsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		reader, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		w, r := reentrant.WithOwner(t.Context(), "writer"), reentrant.WithOwner(t.Context(), "newcomer")
		require.NoError(t, reader.RLock(t.Context()))
		got := make(chan error, 1)
		go func() { got <- writer.Lock(w) }()
		synctest.Wait()
		require.NoError(t, reader.RLock(t.Context()), "a reader that is inside can re-enter past a waiting writer")
		newcomer := make(chan error)
		go func() { newcomer <- reader.RLock(r) }()
		synctest.Wait()
		assert.Empty(t, newcomer, "newcomers wait behind the writer")
		require.NoError(t, reader.RUnlock(t.Context()))
		synctest.Wait()
		assert.Empty(t, got)
		require.NoError(t, reader.RUnlock(t.Context()))
		synctest.Wait()
		require.Len(t, got, 1, "when its last reader leaves, the session gives the unit back at once")
		require.NoError(t, <-got)
		require.NoError(t, writer.Unlock(w))
		require.NoError(t, <-newcomer)
		require.NoError(t, reader.RUnlock(r))
	})
}

func TestALostWantedCostsAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		reader, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, reader.RLock(t.Context()))
		require.NoError(t, reader.RUnlock(t.Context()))
		b.SetFault(memory.Script(memory.Push, memory.Lose))
		start := time.Now()
		require.NoError(t, writer.Lock(t.Context()))
		assert.LessOrEqual(t, time.Since(start), 2*reentrant.DefaultHeartbeat)
		require.NoError(t, writer.Unlock(t.Context()))
	})
}

func TestBothSidesAreReentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, memory.New()).NewRWLock("x")
		ctx := t.Context()
		for range 3 {
			require.NoError(t, l.RLock(ctx))
		}
		assert.Equal(t, 3, l.ReadHoldCount(ctx))
		assert.Equal(t, 3, l.ReadLockCount())
		for range 3 {
			require.NoError(t, l.RUnlock(ctx))
		}
		assert.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrNotHeld)
		for range 3 {
			require.NoError(t, l.Lock(ctx))
		}
		require.NoError(t, l.RLock(ctx), "a writer may read")
		assert.Equal(t, 3, l.HoldCount(ctx))
		assert.True(t, l.IsHeldByCurrentOwner(ctx))
		require.NoError(t, l.RUnlock(ctx))
		for range 3 {
			require.NoError(t, l.Unlock(ctx))
		}
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
	})
}

func TestOnlyTheOwnerUnlocksEitherSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, memory.New()).NewRWLock("x")
		ctx, other := reentrant.WithOwner(t.Context(), "one"), reentrant.WithOwner(t.Context(), "two")
		require.NoError(t, l.Lock(ctx))
		assert.ErrorIs(t, l.Unlock(other), reentrant.ErrNotHeld)
		assert.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrNotHeld, "the owner has the write side only")
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, l.RLock(ctx))
		assert.ErrorIs(t, l.RUnlock(other), reentrant.ErrNotHeld)
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
		require.NoError(t, l.RUnlock(ctx))
	})
}

func TestAnUpgradeIsRefusedAndADowngradeIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		ctx := t.Context()
		require.NoError(t, l.RLock(ctx))
		sent := b.Commands()
		assert.ErrorIs(t, l.Lock(ctx), reentrant.ErrUpgrade)
		_, err := l.TryLock(ctx)
		assert.ErrorIs(t, err, reentrant.ErrUpgrade)
		_, err = l.TryLockFor(ctx, time.Second)
		assert.ErrorIs(t, err, reentrant.ErrUpgrade)
		assert.Equal(t, sent, b.Commands())
		assert.Equal(t, 1, l.ReadHoldCount(ctx))
		require.NoError(t, l.RUnlock(ctx))

		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.RLock(ctx))
		writer := make(chan error)
		w, r := reentrant.WithOwner(ctx, "writer"), reentrant.WithOwner(ctx, "reader")
		go func() { writer <- other.Lock(w) }()
		reader := make(chan error)
		go func() { reader <- l.RLock(r) }()
		synctest.Wait()
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, <-reader, "the readers at the head are let in with the one that was a writer")
		synctest.Wait()
		assert.Empty(t, writer)
		ok, err := other.TryRLock(reentrant.WithOwner(ctx, "newcomer"))
		require.NoError(t, err)
		assert.False(t, ok, "a writer waits there")
		require.NoError(t, l.RUnlock(ctx))
		require.NoError(t, l.RUnlock(r))
		require.NoError(t, <-writer)
		require.NoError(t, other.Unlock(w))
	})
}

func TestTwoSessionsThatReadAndWantToWriteDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var wg sync.WaitGroup
		var locks []*reentrant.RWLock
		for range 2 {
			l := newSession(t, b).NewRWLock("x")
			require.NoError(t, l.RLock(t.Context()))
			locks = append(locks, l)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, l := range locks {
			wg.Go(func() {
				if assert.NoError(t, l.Lock(ctx)) {
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
			synctest.Wait()
		}
		for _, l := range locks {
			assert.NoError(t, l.RUnlock(t.Context()))
		}
		start := time.Now()
		wg.Wait()
		assert.Zero(t, time.Since(start))
	})
}

func TestADeadReaderDelaysAWriterByItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		dead := newSession(t, b)
		reader, writer := dead.NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, reader.RLock(t.Context()))
		lost := reader.Lost(t.Context())
		b.Partition(dead.ID(), true)
		ctx, cancel := context.WithTimeout(t.Context(), reentrant.DefaultLease+reentrant.DefaultHeartbeat)
		defer cancel()
		require.NoError(t, writer.Lock(ctx))
		select {
		case <-lost:
		default:
			t.Error("the reader was not notified before the writer got the lock")
		}
		assert.ErrorIs(t, reader.RUnlock(t.Context()), reentrant.ErrLost)
		assert.ErrorIs(t, reader.RUnlock(t.Context()), reentrant.ErrNotHeld)
		require.NoError(t, writer.Unlock(t.Context()))
	})
}

func TestRDoEndsItsContextWhenTheReadSideIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewRWLock("x")
		err := l.RDo(t.Context(), func(ctx context.Context) error {
			b.Flush()
			select {
			case <-ctx.Done():
			case <-time.After(reentrant.DefaultLease):
			}
			assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost)
			return errors.New("stopped")
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.ErrorContains(t, err, "stopped")
		require.NoError(t, l.Do(t.Context(), func(ctx context.Context) error { return ctx.Err() }))
	})
}

func TestEqualVersionsMeanThatNothingWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var written atomic.Int64
		var mu sync.Mutex
		seen := map[reentrant.Token]int64{}
		highest := reentrant.Token(0)
		var wg sync.WaitGroup
		same := 0
		for i := range 3 {
			l := newSession(t, b).NewRWLock("x")
			for j := range 4 {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				wg.Go(func() {
					for range 40 {
						time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
						if rng.IntN(5) == 0 {
							require.NoError(t, l.Lock(t.Context()))
							token, err := l.Token(t.Context())
							require.NoError(t, err)
							_, err = l.Version(t.Context())
							assert.Error(t, err, "a writer has no version")
							mu.Lock()
							assert.Greater(t, token, highest, "a write's token is above all that was seen before")
							highest = token
							mu.Unlock()
							written.Add(1)
							require.NoError(t, l.Unlock(t.Context()))
							continue
						}
						require.NoError(t, l.RLock(t.Context()))
						version, err := l.Version(t.Context())
						require.NoError(t, err)
						mu.Lock()
						if was, ok := seen[version]; ok {
							same++
							assert.Equal(t, was, written.Load())
						}
						seen[version] = written.Load()
						assert.GreaterOrEqual(t, version, highest)
						highest = max(highest, version)
						mu.Unlock()
						time.Sleep(time.Duration(rng.IntN(2)) * time.Millisecond)
						require.NoError(t, l.RUnlock(t.Context()))
					}
				})
			}
		}
		wg.Wait()
		assert.Greater(t, same, 50, "the versions change without a write")
	})
}

// A resource that has seen the version of a later reader refuses the late write of a writer that has lost the lock.
func TestAVersionIsAboveTheTokenOfTheWriteBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		mine := newSession(t, b).NewRWLock("x")
		for _, l := range []*reentrant.RWLock{mine, newSession(t, b).NewRWLock("x")} {
			require.NoError(t, mine.Lock(t.Context()))
			token, err := mine.Token(t.Context())
			require.NoError(t, err)
			require.NoError(t, mine.Unlock(t.Context()))
			require.NoError(t, l.RLock(t.Context()))
			version, err := l.Version(t.Context())
			require.NoError(t, err)
			assert.Greater(t, version, token)
			require.NoError(t, l.RUnlock(t.Context()))
		}
	})
}

// A session that answers a try keeps the write side, and continues in its block of tokens.
func TestAnAnswerToATryUsesNoTokenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		mine, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		ann, bob := owner(t, "ann"), owner(t, "bob")
		require.NoError(t, mine.Lock(ann))
		first, err := mine.Token(ann)
		require.NoError(t, err)
		next := make(chan error, 1)
		go func() { next <- mine.Lock(bob) }()
		synctest.Wait()
		ok, err := other.TryLock(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, mine.Unlock(ann))
		require.NoError(t, <-next)
		second, err := mine.Token(bob)
		require.NoError(t, err)
		assert.Greater(t, second, first)
		require.NoError(t, mine.Unlock(bob))
	})
}

func TestUnusedTokensOfAWriterComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		writer, reader := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, writer.Lock(t.Context()))
		token, err := writer.Token(t.Context())
		require.NoError(t, err)
		require.NoError(t, writer.Unlock(t.Context()))
		synctest.Wait()
		require.NoError(t, reader.RLock(t.Context()))
		version, err := reader.Version(t.Context())
		require.NoError(t, err)
		assert.Equal(t, token+1, version)
		require.NoError(t, reader.RUnlock(t.Context()))
	})
}

func TestTryRLockAndTryLockAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, other := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, l.RLock(t.Context()))
		ok, err := other.TryRLock(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		require.NoError(t, other.RUnlock(t.Context()))
		ok, err = other.TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		synctest.Wait()
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		assert.Empty(t, st.Waiting)
		require.NoError(t, l.RUnlock(t.Context()))
		ok, err = other.TryLockFor(t.Context(), time.Second)
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = l.TryRLockFor(t.Context(), time.Second)
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, other.Unlock(t.Context()))
	})
}

func TestAWaitForASideEndsWithItsContextWhateverTheServerDoes(t *testing.T) {
	for name, verdict := range map[string]memory.Verdict{"silent": memory.LoseReply, "gone": memory.Lose, "refuses": memory.Refuse("NOAUTH")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l := newSession(t, b).NewRWLock("x")
				b.SetFault(func(op memory.Op) memory.Verdict {
					if op.Verb == memory.Share {
						return verdict
					}
					return memory.Pass
				})
				defer b.SetFault(nil)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				err := l.Lock(ctx)
				if verdict.Refused != "" {
					assert.True(t, reentrant.Refused(err), "%v", err)
					assert.Less(t, time.Since(start), time.Second)
				} else {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorIs(t, err, reentrant.ErrUnavailable)
					assert.Equal(t, 5*time.Second, time.Since(start))
				}
				ok, err := l.TryRLock(t.Context())
				assert.False(t, ok)
				assert.Error(t, err, "a server that does not reply has not said that another owner has the lock")
			})
		})
	}
}

func TestACloseWaitsForHoldersAndRefusesNewCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b).NewRWLock("x")
		l := s.NewRWLock("x")
		require.NoError(t, l.RLock(t.Context()))
		waiter := make(chan error)
		go func() { waiter <- l.Lock(t.Context()) }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- s.Close(t.Context()) }()
		assert.ErrorIs(t, <-waiter, reentrant.ErrClosed)
		require.NoError(t, l.RLock(t.Context()), "an owner that is inside may enter once more")
		assert.ErrorIs(t, s.NewRWLock("y").RLock(t.Context()), reentrant.ErrClosed)
		synctest.Wait()
		assert.Empty(t, closed)
		require.NoError(t, l.RUnlock(t.Context()))
		require.NoError(t, l.RUnlock(t.Context()))
		require.NoError(t, <-closed)
		start := time.Now()
		require.NoError(t, other.Lock(t.Context()))
		assert.Zero(t, time.Since(start), "a closed session gives back what it has")
		require.NoError(t, other.Unlock(t.Context()))
	})
}

func TestACloseWhoseContextEndsTakesTheSidesFromTheirOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b).NewRWLock("x")
		l := s.NewRWLock("x")
		require.NoError(t, l.Lock(t.Context()))
		lost := l.Lost(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Close(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "1 hold given up")
		<-lost
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		start := time.Now()
		require.NoError(t, other.Lock(t.Context()))
		assert.Zero(t, time.Since(start))
		require.NoError(t, other.Unlock(t.Context()))
	})
}

func TestACloseGivesAnIdleRegistrationBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewRWLock("x")
		require.NoError(t, l.RLock(t.Context()))
		require.NoError(t, l.RUnlock(t.Context()))
		start := time.Now()
		require.NoError(t, s.Close(t.Context()))
		assert.Zero(t, time.Since(start))
	})
}

func TestAWaiterKeepsItsPlaceForAsLongAsItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		reader, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		require.NoError(t, reader.RLock(t.Context()))
		w := reentrant.WithOwner(t.Context(), "writer")
		got := make(chan error)
		go func() { got <- writer.Lock(w) }()
		time.Sleep(10*reentrant.DefaultHeartbeat + reentrant.DefaultHeartbeat/2)
		require.NoError(t, reader.RUnlock(t.Context()))
		start := time.Now()
		require.NoError(t, <-got)
		assert.Zero(t, time.Since(start))
		require.NoError(t, writer.Unlock(w))
	})
}

func TestASessionThatIsAskedBeforeItsAnswerCameGivesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		reader, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		b.SetFault(memory.Script(memory.Share, memory.DelayReply(100*time.Millisecond)))
		w := reentrant.WithOwner(t.Context(), "writer")
		got := make(chan error)
		go func() {
			time.Sleep(10 * time.Millisecond)
			got <- writer.Lock(w)
		}()
		start := time.Now()
		require.NoError(t, reader.RLock(t.Context()))
		require.NoError(t, reader.RUnlock(t.Context()))
		require.NoError(t, <-got)
		assert.Less(t, time.Since(start), 200*time.Millisecond, "the reply made the session forget the message")
		require.NoError(t, writer.Unlock(w))
	})
}

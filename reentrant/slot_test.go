package reentrant_test

import (
	"context"
	"slices"
	"strings"
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

func TestSlotsHaveTheLowestFreeNumbersAndNoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		const limit = 6
		var slots []reentrant.Slot
		var numbers []int
		for range 3 {
			m := newSession(t, b).NewSemaphore("nodes", limit)
			for range 2 {
				s, err := m.AcquireSlot(t.Context())
				require.NoError(t, err)
				slots, numbers = append(slots, s), append(numbers, s.Number())
			}
		}
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, numbers)

		m := newSession(t, b).NewSemaphore("nodes", limit)
		got := make(chan reentrant.Slot, 1)
		go func() {
			s, err := m.AcquireSlot(t.Context())
			assert.NoError(t, err)
			got <- s
		}()
		synctest.Wait()
		assert.Empty(t, got)
		require.NoError(t, slots[3].Release(t.Context()))
		s := <-got
		assert.Equal(t, 3, s.Number())
		assert.ErrorIs(t, slots[3].Release(t.Context()), reentrant.ErrNotHeld, "the number is another's now")
		for _, s := range slices.Concat(slots[:3], slots[4:], []reentrant.Slot{s}) {
			assert.NoError(t, s.Release(t.Context()))
		}
	})
}

func TestASlotOfADeadSessionComesBackAndIsLostBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		dead := newSession(t, b)
		m, other := dead.NewSemaphore("nodes", 1), newSession(t, b).NewSemaphore("nodes", 1)
		s, err := m.AcquireSlot(t.Context())
		require.NoError(t, err)
		lost := s.Lost()
		before, err := s.Token()
		require.NoError(t, err)
		b.Partition(dead.ID(), true)
		start := time.Now()
		next, err := other.AcquireSlot(t.Context())
		require.NoError(t, err)
		after, err := next.Token()
		require.NoError(t, err)
		assert.Greater(t, after, before)
		_, err = s.Token()
		require.ErrorIs(t, err, reentrant.ErrLost)
		assert.Zero(t, next.Number())
		assert.LessOrEqual(t, time.Since(start), reentrant.DefaultLease+2*reentrant.DefaultHeartbeat)
		select {
		case <-lost:
		default:
			t.Error("two sessions have the number")
		}
		assert.ErrorIs(t, s.Release(t.Context()), reentrant.ErrLost)
		require.NoError(t, next.Release(t.Context()))
		b.Partition(dead.ID(), false)
	})
}

func TestManyCallersThatTakeAndReleaseSlotsShareNoNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		const limit = 4
		var mu sync.Mutex
		var busy [limit]bool
		var wg sync.WaitGroup
		for range 3 {
			m := newSession(t, b).NewSemaphore("nodes", limit)
			for range 3 {
				wg.Go(func() {
					for range 10 {
						s, err := m.AcquireSlot(t.Context())
						if !assert.NoError(t, err) {
							return
						}
						mu.Lock()
						assert.False(t, busy[s.Number()], "number %d is held twice", s.Number())
						busy[s.Number()] = true
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						busy[s.Number()] = false
						mu.Unlock()
						assert.NoError(t, s.Release(t.Context()))
					}
				})
			}
		}
		wg.Wait()
	})
}

// A server that is away for a while does not end a wait for a slot, just as it does not end a wait for a permit.
func TestAcquireSlotWaitsForTheServer(t *testing.T) {
	for _, verdict := range []memory.Verdict{memory.Lose, memory.LoseReply} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			m := newSession(t, b).NewSemaphore("nodes", 2)
			b.SetFault(memory.Script(memory.Acquire, slices.Repeat([]memory.Verdict{verdict}, 20)...))
			s, err := m.AcquireSlot(t.Context())
			require.NoError(t, err)
			assert.NoError(t, s.Release(t.Context()))
		})
	}
}

// After the permit was acquired, and before a number is, the server is away for longer than a lease. By then another
// session has the permit.
func TestASlotHasItsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		m, other := s.NewSemaphore("nodes", 1), newSession(t, b).NewSemaphore("nodes", 1)
		var away atomic.Bool
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Session == b.Name(s.ID()) && (op.Verb == memory.Acquire || away.Load()) {
				away.Store(true)
				return memory.Lose
			}
			return memory.Pass
		})
		got := make(chan reentrant.Slot, 1)
		go func() {
			slot, err := m.AcquireSlot(t.Context())
			assert.NoError(t, err)
			got <- slot
		}()
		synctest.Wait()
		require.True(t, away.Load())
		require.NoError(t, other.Acquire(t.Context(), 1), "of a session that is dead for the server")
		b.SetFault(nil)
		time.Sleep(2 * reentrant.DefaultLease)
		require.Empty(t, got, "another session has the only permit")
		require.NoError(t, other.Release(t.Context(), 1))
		slot := <-got
		_, err := slot.Token()
		require.NoError(t, err)
		ok, err := other.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, slot.Release(t.Context()))
		require.ErrorIs(t, m.Release(t.Context(), 1), reentrant.ErrNotHeld)
	})
}

// A slot is a number and a permit. Lost reports the loss of either.
func TestALostPartOfASlotIsALostSlot(t *testing.T) {
	for part, force := range map[string]func(ctx context.Context, s *reentrant.Session) (bool, error){
		"permit": func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewSemaphore("nodes", 2).ForceRelease(ctx)
		},
		"number": func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewLock("nodes#0").ForceUnlock(ctx)
		},
	} {
		t.Run(part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, ctx := memory.New(), t.Context()
				m, outside := newSession(t, b).NewSemaphore("nodes", 2), newSession(t, b)
				slot, err := m.AcquireSlot(ctx)
				require.NoError(t, err)
				lost := slot.Lost()
				had, err := force(ctx, outside)
				require.NoError(t, err)
				require.True(t, had)
				time.Sleep(reentrant.DefaultLease / 2) // the loss is noticed at the next renewal
				require.False(t, stillOpen(lost))
				require.False(t, stillOpen(slot.Lost()))
				_, err = slot.Token()
				require.ErrorIs(t, err, reentrant.ErrLost)
				require.ErrorIs(t, slot.Release(ctx), reentrant.ErrLost)
				require.ErrorIs(t, slot.Release(ctx), reentrant.ErrNotHeld)
				require.False(t, stillOpen(slot.Lost()))
				require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld, "the slot has released what it had")
			})
		})
	}
}

// The channel of Lost reports no loss when the slot is released.
func TestAReleasedSlotIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSession(t, memory.New()).NewSemaphore("nodes", 2)
		slot, err := m.AcquireSlot(t.Context())
		require.NoError(t, err)
		lost := slot.Lost()
		require.True(t, stillOpen(lost))
		require.NoError(t, slot.Release(t.Context()))
		loseAll(memory.New())
		require.True(t, stillOpen(lost))
		require.False(t, stillOpen(slot.Lost()))
		_, err = slot.Token()
		require.ErrorIs(t, err, reentrant.ErrNotHeld)
	})
}

// The name of a number may be in use for something else.
func TestANumberOfAnotherKindIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		other, s := newSession(t, b), newSession(t, b)
		require.NoError(t, other.NewRWLock("nodes#0").RLock(ctx))
		m := s.NewSemaphore("nodes", 2)
		slot, err := m.AcquireSlot(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, slot.Number())

		short, cancel := context.WithTimeout(ctx, 10*reentrant.DefaultHeartbeat+time.Millisecond)
		defer cancel()
		_, err = m.AcquireSlot(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, reentrant.ErrWrongKind, "the error has the reason why there was no number")
		require.NoError(t, slot.Release(ctx))

		long, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err = s.NewSemaphore("nodes", 1).AcquireSlot(long)
		require.ErrorIs(t, err, reentrant.ErrWrongKind, "no number will ever be free")
		require.NoError(t, long.Err())
		require.ErrorIs(t, m.Release(ctx, 1), reentrant.ErrNotHeld, "after an error nothing is held")
	})
}

// In a session whose locks linger, the numbers of slots do not linger.
func TestANumberDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		m := newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Hour)).NewSemaphore("nodes", 3)
		slot, err := m.AcquireSlot(ctx)
		require.NoError(t, err)
		require.NoError(t, slot.Release(ctx))
		locked, err := newSession(t, b).NewLock("nodes#0").IsLocked(ctx)
		require.NoError(t, err)
		assert.False(t, locked)
		next, err := newSession(t, b).NewSemaphore("nodes", 3).AcquireSlot(ctx)
		require.NoError(t, err)
		assert.Zero(t, next.Number(), "the lowest number that is free")
		require.NoError(t, next.Release(ctx))
	})
}

// A semaphore's name may be as long as that of a lock.
func TestASlotOfALongName(t *testing.T) {
	for _, length := range []int{4084, 4085, 4086, 4095, 4096} {
		synctest.Test(t, func(t *testing.T) {
			b, ctx := memory.New(), t.Context()
			one, two := strings.Repeat("x", length-1)+"1", strings.Repeat("x", length-1)+"2"
			var slots []reentrant.Slot
			for _, name := range []string{one, two, one} {
				slot, err := newSession(t, b).NewSemaphore(name, 2).AcquireSlot(ctx)
				require.NoError(t, err)
				slots = append(slots, slot)
			}
			assert.Equal(t, []int{0, 0, 1}, []int{slots[0].Number(), slots[1].Number(), slots[2].Number()})
			for _, slot := range slots {
				require.NoError(t, slot.Release(ctx))
			}
		})
	}
}

// If Release of a slot returns ErrLost, the slot's Lost channel is closed, even if the loss was noticed only then.
func TestASlotWhoseReleaseReturnsErrLostIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		m := newSession(t, b).NewSemaphore("nodes", 2)
		slot, err := m.AcquireSlot(ctx)
		require.NoError(t, err)
		lost := slot.Lost()
		_, err = newSession(t, b).NewLock("nodes#0").ForceUnlock(ctx)
		require.NoError(t, err)
		require.True(t, stillOpen(lost), "the session has not noticed the loss")
		require.ErrorIs(t, slot.Release(ctx), reentrant.ErrLost)
		require.False(t, stillOpen(lost))
	})
}

// Permit and number fall free one after the other, and the search may come in between.
func TestAcquireSlotHasANumberSoonAfterItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		number := newSession(t, b).NewLock("nodes#0")
		require.NoError(t, number.Lock(owner(t, "late")))
		time.AfterFunc(5*time.Millisecond, func() { assert.NoError(t, number.Unlock(reentrant.WithOwner(context.Background(), "late"))) })
		begun := time.Now()
		slot, err := s.NewSemaphore("nodes", 1).AcquireSlot(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(begun), 20*time.Millisecond)
		require.NoError(t, slot.Release(t.Context()))
	})
}

// While no number is free, the pauses grow to a heartbeat.
func TestAcquireSlotAsksLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		number := newSession(t, b).NewLock("nodes#0")
		require.NoError(t, number.Lock(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		before := b.Count(memory.Acquire)
		_, err := newSession(t, b).NewSemaphore("nodes", 1).AcquireSlot(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, b.Count(memory.Acquire)-before, 140)
		assert.GreaterOrEqual(t, b.Count(memory.Acquire)-before, 60)
		require.NoError(t, number.Unlock(t.Context()))
	})
}

func TestTheNumberOfASlotIsFreeBeforeItsPermitWithAsyncUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Release {
				return memory.Delay(20 * time.Millisecond)
			}
			return memory.Pass
		}))
		m := newSession(t, b, reentrant.WithAsyncUnlock()).NewSemaphore("nodes", 1)
		other := newSession(t, b)
		slot, err := m.AcquireSlot(t.Context())
		require.NoError(t, err)
		got := make(chan reentrant.Slot, 1)
		go func() {
			next, err := other.NewSemaphore("nodes", 1).AcquireSlot(t.Context())
			assert.NoError(t, err)
			got <- next
		}()
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, slot.Release(t.Context()))
		next := <-got
		assert.Equal(t, 20*time.Millisecond, time.Since(begun), "the permit came with a free number")
		require.NoError(t, next.Release(t.Context()))
	})
}

// A silent server delays Release of a slot for no longer than it delays Unlock. If Unlock does not wait, Release waits for
// one command at most, and no longer than ctx lasts.
func TestReleaseOfASlotEndsThoughTheServerIsSilent(t *testing.T) {
	for name, c := range map[string]struct {
		options []reentrant.Option
		wait    time.Duration // of ctx
		most    time.Duration
	}{
		"Unlock waits":                  {nil, time.Hour, 6 * time.Second},
		"asynchronous, ctx ends":        {[]reentrant.Option{reentrant.WithAsyncUnlock()}, 100 * time.Millisecond, 100 * time.Millisecond},
		"asynchronous, ctx has a limit": {[]reentrant.Option{reentrant.WithAsyncUnlock()}, time.Hour, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				slot, err := newSession(t, b, c.options...).NewSemaphore("nodes", 1).AcquireSlot(t.Context())
				require.NoError(t, err)
				b.SetFault(func(op memory.Op) memory.Verdict {
					if op.Verb == memory.Release {
						return memory.Lose
					}
					return memory.Pass
				})
				defer b.SetFault(nil)
				ctx, cancel := context.WithTimeout(t.Context(), c.wait)
				defer cancel()
				begun := time.Now()
				_ = slot.Release(ctx) // whether it is an error is up to Unlock
				assert.LessOrEqual(t, time.Since(begun), c.most)
			})
		})
	}
}

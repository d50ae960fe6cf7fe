package reentrant_test

import (
	"slices"
	"sync"
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
			t.Error("two have the number")
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

// A server that is away for a while ends no wait for a slot, as it ends none for a permit.
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

package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// Handles of the same name have different leases. The handle of the outermost acquire decides, whichever is used later.
func TestTheLeaseIsThatOfTheOutermostAcquire(t *testing.T) {
	const lease = 20 * time.Second
	for mode, opts := range map[string][]reentrant.Option{"registered": nil, "cohort": {reentrant.WithCohort()}} {
		for _, fixed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, fixed %v", mode, fixed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSession(t, memory.New(), opts...)
					outer, inner := s.NewLock("x"), s.NewLock("x", reentrant.WithFixedLease(lease))
					if fixed {
						outer, inner = inner, outer
					}
					require.NoError(t, outer.Lock(t.Context()))
					reenterAndAwait(t, s, inner)
					begun := time.Now()
					time.Sleep(lease - time.Second)
					assert.True(t, outer.IsHeldByCurrentOwner(t.Context()), "after an Await a full lease begins")
					time.Sleep(time.Hour)
					assert.Equal(t, !fixed, outer.IsHeldByCurrentOwner(t.Context()), "%v after Await returned", time.Since(begun))
					if fixed {
						assert.ErrorIs(t, outer.Unlock(t.Context()), reentrant.ErrLost)
					} else {
						assert.NoError(t, outer.Unlock(t.Context()))
					}
				})
			})
		}
	}
}

// reenterAndAwait re-enters a lock by another handle than the one that acquired it, and waits there, once with a signal
// and once without.
func reenterAndAwait(t *testing.T, s *reentrant.Session, l *reentrant.Lock) {
	require.NoError(t, l.Lock(t.Context()))
	c := l.NewCondition("ready")
	other, plain := reentrant.WithOwner(t.Context(), "other"), s.NewLock("x")
	go func() {
		assert.NoError(t, plain.Do(other, func(ctx context.Context) error { return plain.NewCondition("ready").Signal(ctx) }))
	}()
	require.NoError(t, c.Await(t.Context()))
	ok, err := c.AwaitFor(t.Context(), time.Second)
	require.NoError(t, err)
	assert.False(t, ok)
	require.NoError(t, l.Unlock(t.Context()))
}

// A MultiLock of handles with different options is refused, in whatever order they are given.
func TestAMultiLockRefusesHandlesThatDiffer(t *testing.T) {
	synctest.Test(t, refuseHandlesThatDiffer)
}

func refuseHandlesThatDiffer(t *testing.T) {
	s := newSession(t, memory.New())
	plain, fixed := s.NewLock("x"), s.NewLock("x", reentrant.WithFixedLease(time.Minute))
	unfair := s.NewLock("x", reentrant.WithFairness(false))
	for _, pair := range [][]*reentrant.Lock{{plain, fixed}, {fixed, plain}, {plain, unfair}, {unfair, plain}} {
		m := reentrant.NewMultiLock(pair...)
		assert.ErrorContains(t, m.Lock(t.Context()), "different options")
		_, err := m.TryLock(t.Context())
		assert.ErrorContains(t, err, `"x" with different options`)
	}
	assert.False(t, plain.IsHeldByCurrentOwner(t.Context()))
	require.NoError(t, reentrant.NewMultiLock(fixed, s.NewLock("x", reentrant.WithFixedLease(time.Minute))).Do(t.Context(),
		func(context.Context) error { return nil }), "equal options are no difference")
}

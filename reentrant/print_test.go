package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// String shows what a user can know, and nothing internal.
func TestStringsShowStateAndNoInternals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		assert.Equal(t, "reentrant.Session("+s.ID()+")", fmt.Sprint(s))
		assert.Equal(t, "ready", l.NewCondition("ready").Name())
		require.NoError(t, l.Lock(t.Context()))
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		rw := s.NewRWLock("rw")
		require.NoError(t, rw.RLock(t.Context()))
		shared, err := rw.Inspect(t.Context())
		require.NoError(t, err)
		require.NoError(t, rw.RUnlock(t.Context()))
		for _, v := range []any{s.Stats(), st, shared} {
			assert.NotContains(t, fmt.Sprintf("%+v", v), "_:")
		}
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestCountsOfHoldsHaveTheRightPlural(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for locks, want := range map[int]string{1: "1 hold given up", 2: "2 holds given up"} {
			s, err := reentrant.NewSession(memory.New())
			require.NoError(t, err)
			for i := range locks {
				require.NoError(t, s.NewLock(fmt.Sprint("lock ", i)).Lock(t.Context()))
			}
			err = s.Close(ended())
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, want)
		}
	})
}

// An error names the method that the caller has called.
func TestAnErrorNamesTheCallThatWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, memory.New()).NewLock("x")
		_, err := l.HasWaiters(nil)
		assert.EqualError(t, err, `reentrant: has waiters "x": nil condition`)
		_, err = l.WaitQueueLength(nil)
		assert.EqualError(t, err, `reentrant: wait queue length "x": nil condition`)
		_, err = reentrant.TryAny(ended(), l)
		assert.ErrorContains(t, err, `reentrant: try any "x": the caller's context ended`)
	})
}

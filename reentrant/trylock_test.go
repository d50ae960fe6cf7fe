package reentrant_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// TryLock returns false only if another owner has the lock. A lock that is being released in the background has no
// owner.
func TestTryLockIsFalseOnlyIfAnotherOwnerHasTheLock(t *testing.T) {
	s := newSession(t, memory.New(), reentrant.WithCohort(), reentrant.WithLinger(time.Minute), patient)
	l, ctx := s.NewLock("x"), context.Background()
	for round := range testsize.Of(50_000, 10_000) {
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Unlock(ctx)) // the session keeps the lock
		reentrant.AskFor(s, "x")          // and begins to release it
		for range round % 8 {
			runtime.Gosched()
		}
		ok, err := l.TryLock(ctx)
		require.NoError(t, err)
		require.True(t, ok, "no owner has the lock")
		require.NoError(t, l.Unlock(ctx))
	}
}

// TryLock does not wait, and TryLockFor waits no longer than its time limit, for a re-entry too.
func TestReentryIsTriedForNoLongerThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.SetFault(func(op memory.Op) memory.Verdict { return memory.Verdict{Lost: op.Verb == memory.Reenter} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		ok, err := l.TryLock(ctx)
		assert.False(t, ok)
		require.Error(t, err)
		assert.Less(t, time.Since(begun), 10*time.Millisecond)

		begun = time.Now()
		ok, err = l.TryLockFor(ctx, time.Second)
		assert.False(t, ok)
		require.Error(t, err)
		assert.LessOrEqual(t, time.Since(begun), 2*time.Second)

		b.SetFault(nil)
		assert.Equal(t, 1, l.HoldCount(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

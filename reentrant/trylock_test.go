package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A caller that is refused must have been refused for an owner. What is given back in the background has none.
func TestTryLockIsFalseOnlyForAnOwner(t *testing.T) {
	s := newSession(t, memory.New(), reentrant.WithCohort(), reentrant.WithLinger(time.Minute), patient)
	l, ctx := s.NewLock("x"), context.Background()
	for range 50_000 {
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Unlock(ctx)) // the session keeps it
		reentrant.AskFor(s, "x")          // and begins to give it back
		ok, err := l.TryLock(ctx)
		require.NoError(t, err)
		require.True(t, ok, "no owner has it")
		require.NoError(t, l.Unlock(ctx))
	}
}

package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A session whose hold has moved to another session may not know that yet. Resume in that session must not refuse to take up
// the next hold. Whether the message of the move arrives before Resume is up to the scheduler, so the test tries it often.
func TestResumeInASessionWhoseOwnHoldHasMoved(t *testing.T) {
	for range 20 {
		synctest.Test(t, resumeWhereAHoldHasMoved)
	}
}

func resumeWhereAHoldHasMoved(t *testing.T) {
	b := memory.New()
	here, there := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
	first, second := reentrant.WithPortableOwner(t.Context(), "order 7"), reentrant.WithPortableOwner(t.Context(), "order 8")
	require.NoError(t, here.Lock(first))
	require.NoError(t, there.Resume(first)) // the message is still under way
	require.NoError(t, there.Unlock(first))
	require.NoError(t, there.Lock(second))
	require.NoError(t, here.Resume(second))
	require.ErrorIs(t, here.Unlock(first), reentrant.ErrLost)
	require.NoError(t, here.Unlock(second))
}

// If the session's portable hold has not moved, Resume by another owner finds nothing, and says so only when Redis has replied.
func TestResumeBesideAPortableHoldOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		first, second := reentrant.WithPortableOwner(t.Context(), "order 7"), reentrant.WithPortableOwner(t.Context(), "order 8")
		require.NoError(t, l.Lock(first))
		require.ErrorIs(t, l.Resume(second), reentrant.ErrNotHeld)
		require.ErrorIs(t, l.Resume(reentrant.WithPortableOwner(t.Context(), "order 9")), reentrant.ErrNotHeld)

		b.SetFault(memory.Script(memory.Inspect, memory.Lose, memory.LoseReply))
		require.ErrorIs(t, l.Resume(second), reentrant.ErrNotHeld, "it asks until there is a reply")
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
		ctx, cancel := context.WithTimeout(second, time.Second)
		defer cancel()
		err := l.Resume(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		b.SetFault(nil)
		assert.True(t, l.IsHeldByCurrentOwner(first))
		require.NoError(t, l.Unlock(first))
	})
}

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	inmemory "github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// lockOf returns the lock of a conversation in a session of its own, and a function that closes the session as the death of its
// replica would.
func lockOf(t *testing.T, b *inmemory.Backend) (lock *reentrant.Lock, kill func()) {
	t.Helper()
	s, err := reentrant.NewSession(b, reentrant.WithExplicitOwners(), reentrant.WithPortableHoldsLeft())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s.NewLock("turns:A"), func() { closeNow(s) }
}

func TestTheContextOfATurnEndsWithItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New()
		lock, _ := lockOf(t, b)
		owner := reentrant.WithPortableOwner(t.Context(), "a turn")
		require.NoError(t, take(owner, lock))
		ctx, cancel := untilLost(owner, lock)
		defer cancel()
		time.Sleep(2 * reentrant.DefaultLease)
		require.NoError(t, ctx.Err())
		b.Flush()
		time.Sleep(reentrant.DefaultLease)
		assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost)
		assert.ErrorIs(t, lock.Unlock(owner), reentrant.ErrLost)
	})
}

// After a crash a turn resumes its own hold, and does not wait in the queue for it.
func TestATurnTakesItsHoldAgainAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New()
		owner := reentrant.WithPortableOwner(t.Context(), "a turn")
		first, kill := lockOf(t, b)
		require.NoError(t, take(owner, first))
		before, err := first.Token(owner)
		require.NoError(t, err)
		kill()
		again, _ := lockOf(t, b)
		require.NoError(t, take(owner, again))
		after, err := again.Token(owner)
		require.NoError(t, err)
		assert.Equal(t, before, after, "the turn has the same hold")
		assert.NoError(t, again.Unlock(owner))
	})
}

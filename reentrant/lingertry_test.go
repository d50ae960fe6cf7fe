package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A try is refused for a lock that is in use, and not for one that another session only keeps.
func TestATryTakesALockThatAnotherSessionKeepsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		lingers := []reentrant.Option{reentrant.WithCohort(), reentrant.WithLinger(time.Hour)}
		keeper, other := newSession(t, b, lingers...).NewLock("x"), newSession(t, b).NewLock("x")
		slow(b)
		tries := map[string]func(context.Context) (bool, error){
			"TryLock":    other.TryLock,
			"TryLockFor": func(ctx context.Context) (bool, error) { return other.TryLockFor(ctx, 0) },
		}
		for name, try := range tries {
			require.NoError(t, keeper.Lock(t.Context()))
			start := time.Now()
			ok, err := try(t.Context())
			require.NoError(t, err, name)
			assert.False(t, ok, "%s: the lock is in use", name)
			assert.LessOrEqual(t, time.Since(start), 3*trip, name)
			require.NoError(t, keeper.Unlock(t.Context()))
			time.Sleep(time.Second) // the session releases the lock, since the try has asked for it

			require.NoError(t, keeper.Lock(t.Context()))
			require.NoError(t, keeper.Unlock(t.Context()))
			time.Sleep(time.Second)
			start = time.Now()
			ok, err = try(t.Context())
			require.NoError(t, err, name)
			assert.True(t, ok, "%s: the lock is idle", name)
			assert.LessOrEqual(t, time.Since(start), 3*trip, name)
			require.NoError(t, other.Unlock(t.Context()))
		}
	})
}

// A try is one command if the holder does not let the lock linger, or if the try succeeds.
func TestATryForALockThatDoesNotLingerIsOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, other := newSession(t, b, reentrant.WithCohort()).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, holder.Lock(t.Context()))
		before := b.Commands()
		ok, err := other.TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 1, b.Commands()-before)
		require.NoError(t, holder.Unlock(t.Context()))
	})
}

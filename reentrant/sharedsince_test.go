package reentrant_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A session that has a side or permits is shown with the time of its last grant: neither a renewal nor a release changes that
// time.
func TestASharedNameShowsSinceWhenItWasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), newSession(t, memory.New())
		m, rw := s.NewSemaphore("sem", 5), s.NewRWLock("rw")
		since := func(st reentrant.SharedState, err error) time.Duration {
			require.NoError(t, err)
			require.Len(t, st.Holders, 1)
			return time.Since(st.Holders[0].Since)
		}
		time.Sleep(time.Hour) // the zero of the server's clock is no time of a grant
		require.NoError(t, m.Acquire(ctx, 2))
		require.NoError(t, rw.Lock(ctx))
		time.Sleep(time.Minute)
		assert.Equal(t, time.Minute, since(m.Inspect(ctx)))
		assert.Equal(t, time.Minute, since(rw.Inspect(ctx)))

		require.NoError(t, m.Acquire(ctx, 3))
		require.NoError(t, m.Release(ctx, 3))
		time.Sleep(time.Minute)
		assert.Equal(t, time.Minute, since(m.Inspect(ctx)))
		require.NoError(t, m.Release(ctx, 2))
		require.NoError(t, rw.Unlock(ctx))
	})
}

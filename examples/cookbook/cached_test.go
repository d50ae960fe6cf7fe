package cookbook

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// virtual opens a session on a server in a bubble.
func virtual(t *testing.T, server *redistest.Server) *reentrant.Session {
	t.Helper()
	session, err := reentrant.NewSession(server.Backend())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close(context.Background())) })
	return session
}

func TestACachedValueIsLoadedOnceForEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		stored, loads := 1, 0 // what the lock protects
		var mu sync.Mutex     // of the counter, since two processes may load at once
		cached := func() *Cached[int] {
			return &Cached[int]{Lock: virtual(t, server).NewRWLock("price"), Load: func(context.Context) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				loads++
				return stored, nil
			}}
		}
		here, there := cached(), cached()
		for want := 1; want <= 3; want++ {
			var readers sync.WaitGroup
			for _, c := range []*Cached[int]{here, there, here, there, here} {
				readers.Go(func() {
					got, err := c.Get(t.Context())
					assert.NoError(t, err)
					assert.Equal(t, want, got)
				})
			}
			readers.Wait()
			assert.Equal(t, 2*want, loads, "once in each process")
			require.NoError(t, there.Change(t.Context(), func(context.Context) error {
				stored++
				return nil
			}))
		}
	})
}

func TestAValueThatCannotBeLoadedIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := true
		c := &Cached[string]{Lock: virtual(t, redistest.InBubble(t)).NewRWLock("price"), Load: func(context.Context) (string, error) {
			if failing {
				return "half", assert.AnError
			}
			return "all", nil
		}}
		_, err := c.Get(t.Context())
		require.ErrorIs(t, err, assert.AnError)
		failing = false
		value, err := c.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "all", value)
	})
}

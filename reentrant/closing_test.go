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

// While a session is being closed, holders can take their lock once more and no other owner gets a lock, in every mode,
// with and without an observer.
func TestHoldersReenterWhileTheirSessionIsClosed(t *testing.T) {
	for name, mode := range everyMode {
		for watched, opts := range map[string][]reentrant.Option{
			"": nil, ", observed": {reentrant.WithObserver(observe(func(reentrant.Event) {}))},
			", with a detector": {reentrant.WithDeadlockDetection()},
		} {
			t.Run(name+watched, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSession(t, memory.New(), append(mode, opts...)...)
					l := s.NewLock("x")
					require.NoError(t, l.Lock(t.Context()))
					closed := make(chan error)
					go func() { closed <- s.Close(context.Background()) }()
					synctest.Wait()
					for range 2 {
						require.NoError(t, l.Lock(t.Context()))
						ok, err := s.NewLock("x").TryLock(t.Context())
						require.NoError(t, err)
						require.True(t, ok)
						ok, err = l.TryLockFor(t.Context(), time.Second)
						require.NoError(t, err)
						require.True(t, ok)
					}
					assert.Equal(t, 7, l.HoldCount(t.Context()))
					other := owner(t, "other")
					assert.ErrorIs(t, l.Lock(other), reentrant.ErrClosed)
					assert.ErrorIs(t, s.NewLock("y").Lock(t.Context()), reentrant.ErrClosed)
					for range 7 {
						require.NoError(t, l.Unlock(t.Context()))
					}
					assert.NoError(t, <-closed)
					assert.ErrorIs(t, l.Lock(t.Context()), reentrant.ErrClosed)
				})
			})
		}
	}
}

// When Close begins, a goroutine waits for the operation of another goroutine of the same owner: it is a holder too.
func TestAWaiterForReentryIsNotExpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, ctx := s.NewLock("x"), owner(t, "a")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Reenter, memory.DelayReply(time.Second)))
		got := make(chan error)
		for range 2 {
			go func() { got <- l.Lock(ctx) }()
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- s.Close(context.Background()) }()
		for range 2 {
			assert.NoError(t, <-got)
		}
		for range 3 {
			require.NoError(t, l.Unlock(ctx))
		}
		assert.NoError(t, <-closed)
	})
}

package cookbook

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func TestRunEndsInOrderWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	begun, ended := make(chan bool), make(chan error, 1)
	prefixed := process(t, server).NewLock("lock:work")
	err := Run(ctx, "redis://"+server.Addr(), func(ctx context.Context, session *reentrant.Session) error {
		go func() {
			ended <- session.NewLock("work").Do(ctx, func(context.Context) error {
				close(begun)
				for !errors.Is(session.NewLock("other").Lock(t.Context()), reentrant.ErrClosed) { // another worker finds that the session is closing
					_ = session.NewLock("other").Unlock(t.Context())
				}
				return nil
			})
		}()
		<-begun
		locked, err := prefixed.IsLocked(t.Context())
		assert.True(t, locked, "names of locks have the prefix")
		stop()
		return err
	})
	require.NoError(t, err)
	require.NoError(t, <-ended, "a worker may finish")
	locked, err := prefixed.IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)
}

func TestRunSaysWhyItCannotBegin(t *testing.T) {
	t.Parallel()
	begun := false
	err := Run(t.Context(), "redis://127.0.0.1:1", func(context.Context, *reentrant.Session) error {
		begun = true
		return nil
	})
	require.Error(t, err)
	assert.False(t, begun)
}

func TestPlainGivesTheLockBackWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()
	lock := process(t, redistest.Start(t)).NewLock("work")
	ctx, stop := context.WithCancel(t.Context())
	require.ErrorIs(t, Plain(ctx, lock, func(ctx context.Context) error {
		stop()
		return ctx.Err()
	}), context.Canceled)
	locked, err := lock.IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)
}

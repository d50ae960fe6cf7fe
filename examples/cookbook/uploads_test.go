package cookbook

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

// tusLocker is the interface Locker of tusd v2.
type tusLocker interface {
	NewLock(id string) (UploadLock, error)
}

var _ tusLocker = UploadLocker{}

// One server still serves a connection that has gone silent when the client comes back at another server.
func TestANewRequestEndsTheOldOne(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	first, err := UploadLocker{process(t, redis)}.NewLock("42")
	require.NoError(t, err)
	released := make(chan struct{})
	require.NoError(t, first.Lock(t.Context(), func() {
		assert.NoError(t, first.Unlock())
		close(released)
	}))
	second, err := UploadLocker{process(t, redis)}.NewLock("42")
	require.NoError(t, err)
	require.NoError(t, second.Lock(t.Context(), func() { t.Error("no request waits") }))
	<-released
	require.NoError(t, second.Unlock())
}

func TestARequestThatCannotWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	locker := UploadLocker{process(t, redis)}
	first, err := locker.NewLock("42")
	require.NoError(t, err)
	asked := make(chan struct{})
	require.NoError(t, first.Lock(t.Context(), func() { close(asked) }))
	second, err := locker.NewLock("42")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked // a shorter time could be over before the second request is in the queue
		cancel()
	}()
	require.ErrorIs(t, second.Lock(ctx, func() {}), context.Canceled)
	require.NoError(t, first.Unlock())
}

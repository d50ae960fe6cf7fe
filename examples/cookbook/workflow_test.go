package cookbook

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

const secret = "3f8a6c1e-4f0b-4f5e-9c55-order-17"

func TestAWorkflowGoesOnInAnotherProcess(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	before := process(t, server).NewLock("order:17")
	inside, resumed, err := Continue(t.Context(), before, secret)
	require.NoError(t, err)
	assert.False(t, resumed, "it begins")
	token, err := before.Token(inside)
	require.NoError(t, err)

	after := process(t, server).NewLock("order:17")
	again, resumed, err := Continue(t.Context(), after, secret)
	require.NoError(t, err)
	assert.True(t, resumed)
	same, err := after.Token(again)
	require.NoError(t, err)
	assert.Equal(t, token, same)
	require.ErrorIs(t, before.Unlock(inside), reentrant.ErrLost, "the process that was thought dead is told")
	require.NoError(t, after.Unlock(again))
}

func TestAClosedSessionLeavesNothingToContinue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	session := process(t, server)
	_, _, err := Continue(t.Context(), session.NewLock("order:17"), secret)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, session.Close(ended), context.Canceled)

	after := process(t, server).NewLock("order:17")
	given(t, after)
	inside, resumed, err := Continue(t.Context(), after, secret)
	require.NoError(t, err)
	assert.False(t, resumed, "it was given up")
	require.NoError(t, after.Unlock(inside))
}

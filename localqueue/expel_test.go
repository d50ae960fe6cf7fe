package localqueue_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/localqueue"
)

func TestExpelSendsWaitersAwayAndLeavesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q localqueue.Queue[int]
		assert.Equal(t, localqueue.Claimed, q.Claim(0, false, nil, nil))
		outcomes := make(chan localqueue.Outcome, 3)
		for i := range 3 {
			go func() { outcomes <- q.Claim(i+1, false, make(chan struct{}), nil) }()
		}
		synctest.Wait()
		q.Expel()
		for range 3 {
			assert.Equal(t, localqueue.Cancelled, <-outcomes)
		}
		assert.Zero(t, q.Len())
		q.Settle(1)
		assert.Equal(t, 1, q.HoldCount(0), "the holder keeps the baton")
		assert.True(t, q.Evict(0))
		assert.True(t, q.Idle())
	})
}

func TestShutLetsNobodyWait(t *testing.T) {
	var q localqueue.Queue[int]
	assert.NoError(t, q.Acquire(t.Context(), 0))
	q.Shut()
	assert.Equal(t, localqueue.Cancelled, q.Claim(1, false, nil, nil), "nobody waits")
	assert.ErrorIs(t, q.Acquire(t.Context(), 1), localqueue.ErrExpelled)
	assert.NoError(t, q.Acquire(t.Context(), 0), "the holder goes on")
	assert.NoError(t, q.Release(0))
	assert.NoError(t, q.Release(0))
	assert.NoError(t, q.Acquire(t.Context(), 1), "what need not wait goes on")
}

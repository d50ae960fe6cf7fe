package localqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestShutSendsWaitersAwayAndLeavesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[int]
		assert.Equal(t, Claimed, q.Claim(0, Fair, nil, nil))
		outcomes := make(chan Outcome, 3)
		for i := range 3 {
			go func() { outcomes <- q.Claim(i+1, Fair, make(chan struct{}), nil) }()
		}
		synctest.Wait()
		q.Shut()
		for range 3 {
			assert.Equal(t, Cancelled, <-outcomes)
		}
		assert.Zero(t, q.Len())
		q.Settle(1)
		assert.Equal(t, 1, q.HoldCount(0), "the holder keeps the baton")
		assert.True(t, q.Evict(0))
		assert.True(t, q.Idle())
	})
}

func TestShutLetsNoClaimWait(t *testing.T) {
	var q Queue[int]
	assert.NoError(t, lock(t.Context(), &q, 0))
	q.Shut()
	assert.Equal(t, Cancelled, q.Claim(1, Fair, nil, nil), "the claim would have to wait")
	assert.ErrorIs(t, lock(t.Context(), &q, 1), errShut)
	assert.NoError(t, lock(t.Context(), &q, 0), "the holder goes on")
	assert.NoError(t, unlock(&q, 0))
	assert.NoError(t, unlock(&q, 0))
	assert.NoError(t, lock(t.Context(), &q, 1), "a claim that need not wait succeeds")
}

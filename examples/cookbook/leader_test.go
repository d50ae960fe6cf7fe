package cookbook

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// A candidate is a process that wants to become the leader.
type candidate struct {
	owner    context.Context // the context of its Lead, by which the test can ask about the hold
	lock     *reentrant.Lock
	requests chan Request
	ended    chan error
}

func stand(t *testing.T, ctx context.Context, server *redistest.Server) *candidate {
	c := &candidate{owner: reentrant.WithOwner(ctx, "leader"), lock: process(t, server).NewLock("leader"),
		requests: make(chan Request), ended: make(chan error, 1)}
	go func() { c.ended <- Lead(c.owner, c.lock, c.requests) }()
	return c
}

// term asks the leader for its term. If the candidate is not the leader yet, term waits.
func (c *candidate) term(t *testing.T) reentrant.Token {
	terms := make(chan reentrant.Token, 1)
	request := func(_ context.Context, term reentrant.Token) error {
		terms <- term
		return nil
	}
	select {
	case c.requests <- request:
	case <-t.Context().Done():
	}
	return <-terms
}

func TestALeaderThatIsDeposedStepsDownAndTheNextHasAHigherTerm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	first := stand(t, ctx, server)
	term := first.term(t)
	second := stand(t, ctx, server)
	waiting(t, process(t, server), "leader", 1)
	deposed, err := first.lock.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, deposed)
	require.ErrorIs(t, first.lock.Verify(first.owner), reentrant.ErrLost) // ask now, and not at the next renewal
	require.ErrorIs(t, <-first.ended, reentrant.ErrLost)
	assert.Greater(t, second.term(t), term)
	stop()
	require.ErrorIs(t, <-second.ended, context.Canceled)
	locked, err := first.lock.IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked, "a leader that is told to stop leaves the lock free")
}

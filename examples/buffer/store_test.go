package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"

	"github.com/relock-go/relock/examples/internal/deployment"
)

// each runs a test on the embedded Redis and on a real one. The test gets the URL of the Redis.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("embedded", func(t *testing.T) { test(t, "redis://"+redistest.Start(t).Addr()) })
	t.Run("redis", func(t *testing.T) { test(t, redisserver.Start(t).URL()) })
}

// join connects a process. None of the process's holds ends while the machine stands still, not even a hold that was pushed to
// the process and has not been renewed yet.
func join(t *testing.T, url string) *deployment.Member {
	t.Helper()
	member, err := deployment.Join(url, reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(10*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, member.Leave(t.Context())) })
	return member
}

func TestAStepMovesAnItemAndRecordsItsWorker(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s, ctx := &store{client: join(t, url).Client}, t.Context()
		require.NoError(t, s.put(ctx, 1, 0, 7))
		require.NoError(t, s.put(ctx, 1, 1, 8))
		require.NoError(t, s.put(ctx, 2, 1, 9))
		now, err := s.look(ctx, 2, 1)
		require.NoError(t, err)
		assert.Equal(t, view{length: 3, first: 7, made: 2, taken: 0}, now)

		require.NoError(t, s.take(ctx, 3, 7, "p1"))
		require.NoError(t, s.take(ctx, 3, 8, "p2.3"))
		now, err = s.look(ctx, 3, 0)
		require.NoError(t, err)
		assert.Equal(t, view{length: 1, first: 9, made: 1, taken: 2}, now)

		r, err := s.remains(ctx)
		require.NoError(t, err)
		assert.Equal(t, remains{taken: []record{{7, "p1"}, {8, "p2.3"}}, left: 1, made: 3, fullest: 3}, r)
		assert.EqualValues(t, 7, s.commands.Load())

		require.NoError(t, s.clear(ctx))
		now, err = s.look(ctx, 0, 1)
		require.NoError(t, err, "the fence is deleted too")
		assert.Equal(t, view{}, now)
	})
}

// When a hold has looked at the buffer, all earlier holds are refused. So what it saw stays true until its own step.
func TestAnEarlierHoldChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s, ctx := &store{client: join(t, url).Client}, t.Context()
		const early, late = 1_760_000_000_000_001, 1_760_000_000_000_002 // the smallest difference that two tokens can have
		require.NoError(t, s.put(ctx, early, 0, 1))
		before, err := s.look(ctx, late, 0)
		require.NoError(t, err)

		assert.ErrorIs(t, s.put(ctx, early, 0, 2), errStale)
		assert.ErrorIs(t, s.take(ctx, early, 1, "p1"), errStale)
		_, err = s.look(ctx, early, 0)
		assert.ErrorIs(t, err, errStale)

		after, err := s.look(ctx, late, 0)
		require.NoError(t, err)
		assert.Equal(t, before, after)
		assert.NoError(t, s.take(ctx, late, 1, "p2"))
	})
}

func TestOtherErrorsAreNotTakenForAnEarlierHold(t *testing.T) {
	s := &store{client: join(t, "redis://"+redistest.Start(t).Addr()).Client}
	require.NoError(t, s.client.Do(t.Context(), s.client.B().Set().Key(itemsKey).Value("no list").Build()).Error())
	err := s.put(t.Context(), 1, 0, 1)
	require.ErrorContains(t, err, "put: ")
	assert.ErrorContains(t, err, "WRONGTYPE")
	assert.NotErrorIs(t, err, errStale)
}

package cookbook

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestATickIsRunOnceByAllProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := database(t, `CREATE TABLE schedule (job TEXT PRIMARY KEY, last_tick BIGINT NOT NULL)`,
		`INSERT INTO schedule VALUES ('report', 0)`)
	var begun, ran atomic.Int64
	tick := func(at time.Time) {
		var all sync.WaitGroup
		for range 4 {
			lock := process(t, server).NewLock("report")
			all.Go(func() {
				for range 5 { // looks more often than the job is due, as a real process would
					done, err := RunTick(t.Context(), lock, db, at, func(context.Context) error {
						begun.Add(1)
						return nil
					})
					assert.NoError(t, err)
					if done {
						ran.Add(1)
					}
				}
			})
		}
		all.Wait()
	}
	tick(noon)
	assert.EqualValues(t, 1, begun.Load())
	assert.EqualValues(t, 1, ran.Load(), "one of them says so")
	tick(noon.Add(time.Hour))
	assert.EqualValues(t, 2, begun.Load(), "the job runs again for the next tick")
	tick(noon)
	assert.EqualValues(t, 2, begun.Load(), "a process that comes late, for an old tick")
}

func TestATickIsNotRunBesideItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := database(t, `CREATE TABLE schedule (job TEXT PRIMARY KEY, last_tick BIGINT NOT NULL)`,
		`INSERT INTO schedule VALUES ('report', 0)`)
	other := process(t, server).NewLock("report")
	failure := errors.New("no paper")
	ran, err := RunTick(t.Context(), process(t, server).NewLock("report"), db, noon, func(ctx context.Context) error {
		ran, err := RunTick(ctx, other, db, noon, func(context.Context) error { panic("a second run at the same time") })
		assert.NoError(t, err)
		assert.False(t, ran)
		return failure
	})
	require.ErrorIs(t, err, failure)
	assert.False(t, ran)
	ran, err = RunTick(t.Context(), other, db, noon, func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.True(t, ran, "a job that failed is due again")
}

func TestTheLockAloneLetsALaterProcessIn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for range 2 {
		lock := process(t, server).NewLock("report")
		free, err := lock.TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, free)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestAFixedLeaseEndsWithItsSession(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first := process(t, server)
	free, err := first.NewLock("report", reentrant.WithFixedLease(time.Hour)).TryLock(t.Context())
	require.NoError(t, err)
	require.True(t, free)
	second := process(t, server).NewLock("report", reentrant.WithFixedLease(time.Hour))
	free, err = second.TryLock(t.Context())
	require.NoError(t, err)
	require.False(t, free)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, first.Close(ended), context.Canceled)
	given(t, second)
	free, err = second.TryLock(t.Context())
	require.NoError(t, err)
	assert.True(t, free, "so the lock is no record of what was done")
	require.NoError(t, second.Unlock(t.Context()))
}

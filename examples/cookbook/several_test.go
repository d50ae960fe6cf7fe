package cookbook

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func TestTransfersInOppositeDirectionsAllEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first, second := process(t, server), process(t, server)
	back := make(chan error, 1)
	require.NoError(t, Transfer(t.Context(), first, "a", "b", func(context.Context) error {
		go func() {
			back <- Transfer(t.Context(), second, "b", "a", func(context.Context) error { return nil })
		}()
		waiting(t, first, "account:a", 1)
		return nil
	}))
	require.NoError(t, <-back)

	var inside, moved atomic.Int64
	move := func(context.Context) error {
		assert.EqualValues(t, 1, inside.Add(1), "both need the same two accounts")
		moved.Add(1)
		inside.Add(-1)
		return nil
	}
	var all sync.WaitGroup
	for session, way := range map[*reentrant.Session][2]string{first: {"a", "b"}, second: {"b", "a"}} {
		for range 2 {
			all.Go(func() {
				for range 10 {
					assert.NoError(t, Transfer(t.Context(), session, way[0], way[1], move))
				}
			})
		}
	}
	all.Wait()
	assert.EqualValues(t, 40, moved.Load())
}

func TestTheFirstPrinterThatIsFreePrints(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	printers := func() []*reentrant.Lock {
		session := process(t, server)
		return []*reentrant.Lock{session.NewLock("printer:1"), session.NewLock("printer:2")}
	}
	one, two, three := printers(), printers(), printers()
	require.NoError(t, Print(t.Context(), one, func(ctx context.Context, first string) error {
		assert.Equal(t, "printer:1", first)
		return Print(ctx, two, func(ctx context.Context, second string) error {
			assert.Equal(t, "printer:2", second)
			assert.ErrorIs(t, Print(ctx, three, nil), reentrant.ErrNotAcquired)
			return nil
		})
	}))
	require.NoError(t, Print(t.Context(), three, func(context.Context, string) error { return nil }))
}

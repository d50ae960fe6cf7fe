package cookbook

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func TestNoMoreCallsThanAllowedAreMadeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		var inside, most, made, busy atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			calls := virtual(t, server).NewSemaphore("api", 2)
			for range 4 {
				all.Go(func() {
					err := Limited(t.Context(), calls, func(context.Context) error {
						n := inside.Add(1)
						for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
						}
						time.Sleep(900 * time.Millisecond)
						inside.Add(-1)
						made.Add(1)
						return nil
					})
					if err != nil {
						assert.ErrorIs(t, err, ErrBusy)
						busy.Add(1)
					}
				})
			}
		}
		all.Wait()
		assert.EqualValues(t, 2, most.Load())
		assert.EqualValues(t, 12, made.Load()+busy.Load())
		assert.Positive(t, made.Load())
		assert.Positive(t, busy.Load(), "three rounds of two fit into two seconds")
	})
}

func TestACallBehindAFullQueueIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := virtual(t, redistest.InBubble(t))
		calls := session.NewSemaphore("api", 1, reentrant.WithMaxWaiting(1))
		slow := func(context.Context) error { time.Sleep(time.Second); return nil }
		var two sync.WaitGroup
		for range 2 {
			two.Go(func() { assert.NoError(t, Limited(t.Context(), calls, slow)) })
			synctest.Wait()
		}
		begun := time.Now()
		require.ErrorIs(t, Limited(t.Context(), calls, slow), ErrBusy)
		assert.Zero(t, time.Since(begun))
		two.Wait()
	})
}

package relockotel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
)

func TestSharedHoldsAreCountedByMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		session := s.session(memory.New())
		ctx := context.Background()
		l, m := session.NewRWLock("a"), session.NewSemaphore("b", 2)
		require.NoError(t, l.RLock(ctx))
		time.Sleep(time.Second)
		require.NoError(t, l.RUnlock(ctx))
		require.NoError(t, l.Lock(ctx))
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, m.Acquire(ctx, 2))
		time.Sleep(3 * time.Second)
		require.NoError(t, m.Release(ctx, 2))
		synctest.Wait()
		counts := s.count("relock.lock.acquisitions")
		for _, mode := range []string{"read", "write", "permits"} {
			assert.EqualValues(t, 1, counts["relock.lock.mode="+mode+",relock.result=acquired"], "%v", counts)
		}
		assert.Len(t, counts, 3)
		assert.Equal(t, map[string]times{
			"relock.lock.mode=read,relock.result=released": {1, 1}, "relock.lock.mode=write,relock.result=released": {1, 2},
			"relock.lock.mode=permits,relock.result=released": {1, 3},
		}, s.times("relock.lock.hold.duration"))
	})
}

// Every kind of wait counts: in the process's queue, for a side, for permits.
func TestLongWaitsOfAllKindsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		session := s.session(memory.New())
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		l, rw, m := session.NewLock("lock"), session.NewRWLock("book"), session.NewSemaphore("pool", 1)
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, rw.RLock(ctx))
		require.NoError(t, m.Acquire(ctx, 1))
		for range 2 {
			go func() { _ = l.Lock(ctx) }()
			go func() { _ = rw.Lock(ctx) }()
			go func() { _ = m.Acquire(ctx, 1) }()
		}
		time.Sleep(30 * second)
		assert.Equal(t, map[string]int64{"relock.cause=held": 6, "relock.cause=backend": 0}, s.count("relock.lock.long_waits"))
		<-ctx.Done()
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, rw.RUnlock(ctx))
		require.NoError(t, m.Release(ctx, 1))
	})
}

package relockotel_test

import (
	"context"
	"testing"
	"testing/synctest"

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
		require.NoError(t, l.RUnlock(ctx))
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, m.Acquire(ctx, 2))
		require.NoError(t, m.Release(ctx, 2))
		synctest.Wait()
		counts := s.count("relock.lock.acquisitions")
		for _, mode := range []string{"read", "write", "permits"} {
			assert.EqualValues(t, 1, counts["relock.lock.mode="+mode+",relock.result=acquired"], "%v", counts)
		}
		assert.Len(t, counts, 3)
		assert.Empty(t, s.times("relock.lock.hold.duration"))
	})
}

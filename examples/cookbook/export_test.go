package cookbook

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func TestAnExportEndsWithItsLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lock := process(t, server).NewLock("export")
	sent := 0
	err := Export(t.Context(), lock, slices.Values(make([]string, 10)), func(ctx context.Context, _ string) error {
		if sent++; sent == 3 {
			flush(t, server)
			assert.ErrorIs(t, lock.Verify(ctx), reentrant.ErrLost)
		}
		return nil
	})
	require.ErrorIs(t, err, reentrant.ErrLost)
	assert.Equal(t, 3, sent)
}

func TestAStepIsNotBegunThatMayOutlastTheHold(t *testing.T) {
	t.Parallel()
	lock := process(t, redistest.Start(t)).NewLock("disc")
	burnt := 0
	burn := func() error { burnt++; return nil }
	require.ErrorIs(t, Burn(t.Context(), lock, 0, burn), reentrant.ErrNotHeld)
	require.NoError(t, lock.Do(t.Context(), func(ctx context.Context) error {
		assert.ErrorIs(t, Burn(ctx, lock, time.Hour, burn), ErrTooLate)
		assert.Zero(t, burnt)
		return Burn(ctx, lock, time.Millisecond, burn)
	}))
	assert.Equal(t, 1, burnt)
}

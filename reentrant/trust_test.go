package reentrant_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A hold whose lease has ended is not re-entered, and its Unlocks return ErrLost, even before the watchdog has noticed.
// Goroutines and named owners take different paths in the code.
func TestACohortLooksAtTheClock(t *testing.T) {
	calls := map[string]lateCall{
		"Lock":    {func(ctx context.Context, l *reentrant.Lock) error { return l.Lock(ctx) }, 3},
		"TryLock": {func(ctx context.Context, l *reentrant.Lock) error { _, err := l.TryLock(ctx); return err }, 3},
		"Unlock":  {func(ctx context.Context, l *reentrant.Lock) error { return l.Unlock(ctx) }, 2},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { call.run(t, t.Context()) })
		})
		t.Run(name+", a named owner", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { call.run(t, reentrant.WithOwner(t.Context(), "a")) })
		})
	}
}

// A lateCall is a call by the owner of three holds, whose lease has ended, while the watchdog is late.
type lateCall struct {
	call func(context.Context, *reentrant.Lock) error
	owed int // Unlocks that the owner owes after the call
}

func (c lateCall) run(t *testing.T, ctx context.Context) {
	b := memory.New(memory.WithFault(memory.Script(memory.Renew, lose(1000)...)))
	var late atomic.Bool
	wake := make(chan struct{})
	l := newSession(t, b, reentrant.WithCohort(), reentrant.WithLook(func() {
		if late.Load() {
			<-wake
		}
	})).NewLock("x")
	defer close(wake)
	for range 2 {
		require.NoError(t, l.Lock(ctx))
	}
	until, err := l.TrustedUntil(ctx)
	require.NoError(t, err)
	late.Store(true)
	time.Sleep(time.Until(until) - 1)
	require.NoError(t, l.Lock(ctx), "the lease has not ended")
	require.NoError(t, l.Unlock(ctx))
	require.NoError(t, l.Lock(ctx))
	time.Sleep(1 * time.Nanosecond)
	require.ErrorIs(t, c.call(ctx, l), reentrant.ErrLost)
	require.Zero(t, l.HoldCount(ctx))
	for range c.owed {
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
	}
	assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
}

// The watchdog and the owner check the lease at the same moment, and either can be the first.
func TestAtTheEndOfItsLeaseACohortIsLostOrHeldAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.WithFault(memory.Script(memory.Renew, lose(100_000)...)))
		l := newSession(t, b, reentrant.WithCohort()).NewLock("x")
		for range 100 {
			require.NoError(t, l.Lock(t.Context()))
			until, err := l.TrustedUntil(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Until(until))
			if err = l.Lock(t.Context()); err == nil {
				renewed, err := l.TrustedUntil(t.Context())
				require.NoError(t, err)
				require.True(t, renewed.After(until), "re-entered at the end of its lease")
				require.NoError(t, l.Unlock(t.Context()))
			} else {
				require.ErrorIs(t, err, reentrant.ErrLost)
			}
			var lost int
			for err = l.Unlock(t.Context()); !errors.Is(err, reentrant.ErrNotHeld); err = l.Unlock(t.Context()) {
				require.ErrorIs(t, err, reentrant.ErrLost)
				lost++
			}
			assert.Equal(t, 1, lost)
		}
	})
}

package reentrant_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A hold whose lease has ended is not re-entered, and no hold of it is unlocked without ErrLost, also before the watchdog
// has noticed. This runs in real time: in a bubble the watchdog is never late.
func TestACohortLooksAtTheClock(t *testing.T) {
	b := memory.New(memory.WithFault(memory.Script(memory.Renew, lose(1000)...)))
	l := newSession(t, b, reentrant.WithCohort(), reentrant.WithLease(60*time.Millisecond)).NewLock("x")
	for range 20 {
		require.NoError(t, l.Lock(t.Context()))
		until, err := l.TrustedUntil(t.Context())
		if errors.Is(err, reentrant.ErrLost) { // the machine stood still for longer than the lease
			require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
			continue
		}
		require.NoError(t, err)
		owed := 1
		for err == nil {
			began := time.Now()
			if err = l.Lock(t.Context()); err == nil {
				owed++
				if now, _ := l.TrustedUntil(t.Context()); now.After(until) { // the loss was noticed first: it is a new hold
					break
				}
				require.True(t, began.Before(until), "re-entered %v late", began.Sub(until))
				began = time.Now()
				if err = l.Unlock(t.Context()); err == nil {
					require.True(t, began.Before(until), "unlocked %v late", began.Sub(until))
				}
				owed--
			}
		}
		if err == nil {
			for range owed {
				_ = l.Unlock(t.Context()) // of the new hold or of those that were lost
			}
			continue
		}
		require.ErrorIs(t, err, reentrant.ErrLost)
		for range owed {
			require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		}
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrNotHeld)
	}
}

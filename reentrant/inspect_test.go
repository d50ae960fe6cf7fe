package reentrant_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestTrustedUntilIsWhenLostCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b, reentrant.WithLease(9*time.Second)).NewLock("x")
		_, err := l.TrustedUntil(t.Context())
		require.ErrorIs(t, err, reentrant.ErrNotHeld)
		require.NoError(t, l.Lock(t.Context()))
		first, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 9*time.Second-92*time.Millisecond, time.Until(first))

		time.Sleep(4 * time.Second)
		renewed, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, renewed.Sub(first))

		b.SetFault(memory.Script(memory.Renew, lose(100)...))
		<-l.Lost(t.Context())
		assert.Equal(t, renewed, time.Now())
		_, err = l.TrustedUntil(t.Context())
		require.ErrorIs(t, err, reentrant.ErrLost)
		assert.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
	})
}

package reentrant_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
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

func TestInspectAllIsOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		theirs, s := newSession(t, b), newSession(t, b)
		var names []string
		for i := range 80 {
			names = append(names, fmt.Sprint("seat ", i))
			if i%2 == 1 {
				require.NoError(t, theirs.NewLock(names[i]).Lock(t.Context()))
			}
		}
		const trip = 100 * time.Millisecond
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Delay(trip) })
		begun := time.Now()
		states, err := s.InspectAll(t.Context(), names...)
		require.NoError(t, err)
		assert.Equal(t, trip, time.Since(begun))
		require.Len(t, states, len(names))
		for i, st := range states {
			assert.Equal(t, i%2 == 1, st.Locked, names[i])
		}
	})
}

// If one name cannot be read, the others are still read. The log reports that name once, and not again until it could be read.
func TestInspectAllSkipsWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := memory.New()
		s := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, s.NewLock("a").Lock(t.Context()))
		require.NoError(t, s.NewRWLock("rw").RLock(t.Context()))
		names := []string{"rw", "", backend.ConditionsOf("x"), "a", "free"}
		states, err := s.InspectAll(t.Context(), names...)
		require.NoError(t, err)
		require.Len(t, states, len(names))
		for i, st := range states[:3] {
			require.Error(t, st.Err, names[i])
			_, want := s.NewLock(names[i]).Inspect(t.Context())
			assert.Equal(t, reentrant.Refused(want), reentrant.Refused(st.Err), names[i])
		}
		require.ErrorIs(t, states[0].Err, reentrant.ErrWrongKind)
		assert.True(t, states[3].Locked)
		assert.Zero(t, states[4])
		require.NoError(t, s.NewRWLock("rw").RUnlock(t.Context()))
		require.NoError(t, s.NewLock("a").Unlock(t.Context()))
		for range 3 { // "rw" is kept for a heartbeat, and its name for ten seconds more
			states, err = s.InspectAll(t.Context(), names...)
			require.NoError(t, err)
			require.Error(t, states[0].Err)
		}
		time.Sleep(time.Minute)
		states, err = s.InspectAll(t.Context(), names...)
		require.NoError(t, err)
		require.NoError(t, states[0].Err)
		require.NoError(t, s.NewRWLock("rw").Lock(t.Context()))
		states, err = s.InspectAll(t.Context(), names...)
		require.NoError(t, err)
		require.Error(t, states[0].Err)
		require.NoError(t, s.NewRWLock("rw").Unlock(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, 2, strings.Count(log.String(), "some locks could not be read"), log.String())
		assert.Contains(t, log.String(), `[rw  `)
		assert.Contains(t, log.String(), `[rw]`)
	})
}

func TestInspectAllNamesTheLockThatCouldNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Lock == "b" {
				return memory.Refuse("NOPERM")
			}
			return memory.Pass
		})
		states, err := s.InspectAll(t.Context(), "a", "b", "c")
		require.ErrorContains(t, err, `"b"`)
		assert.Nil(t, states)
	})
}

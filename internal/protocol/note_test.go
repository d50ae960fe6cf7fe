package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

func TestANoteEndsUnlessItIsRepeated(t *testing.T) {
	l := &Lock{Keep: time.Hour}
	_, err := l.Acquire(0, "a", backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Lease: 24 * time.Hour, Tokens: 1}, time.Minute)
	require.NoError(t, err)
	end := 48 * time.Hour // until when the record is kept
	for range 2 {
		require.NotZero(t, l.Renew(end-48*time.Hour, "a", 1, 48*time.Hour))
		require.True(t, l.SetNote(end-48*time.Hour, "a", backend.NoteRequest{Epoch: 1, Text: "text"}))
		assert.Equal(t, "text", l.Inspect(end).Note)
		end += time.Hour
	}
	require.NotZero(t, l.Renew(end-2*time.Hour, "a", 1, 48*time.Hour), "setting the note again keeps the record")
	assert.Empty(t, l.Inspect(end).Note)
}

package exclusive

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// The loss of a hold ends the hold first, and then puts on record that its owner owes an Unlock, both under the mutex. So a
// call that finds no hold looks for the record under the mutex.
func TestALossThatIsNotOnRecordYetIsWaitedFor(t *testing.T) {
	room := NewRoom(core.NewSession(core.Config{Logger: slog.New(slog.DiscardHandler)}), nil, nil)
	h := &Handle{Room: room, Name: "lock"}
	st, err := room.getState(h)
	require.NoError(t, err)
	defer room.putState(st)
	err = h.holding(core.CurrentOwner(t.Context()), func(core.Owner) bool {
		free := st.mu.TryLock()
		if free {
			st.mu.Unlock()
		}
		assert.False(t, free, "a loss may come between")
		return true
	}, nil)
	assert.ErrorIs(t, err, core.ErrLost)
}

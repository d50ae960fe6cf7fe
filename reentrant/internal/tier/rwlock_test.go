package tier

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A loss ends the hold first, and then puts on record that its owner owes an Unlock, both under the mutex. So an Unlock that
// finds no hold looks for the record under the mutex.
func TestAnUnlockWaitsUntilALossIsOnRecord(t *testing.T) {
	session, room := newRoom()
	l := RWLock{&Handle{Session: session, Shared: room, Name: "x", Kind: backend.ReadWrite, Remote: busy{}}}
	n, err := l.join(l.newTier)
	require.NoError(t, err)
	defer n.Leave()
	q, owner := n.Tier().(*rwTier), core.CurrentOwner(t.Context())
	q.mu.Lock()
	result := make(chan error, 1)
	go func() { result <- l.Exit(t.Context(), owner, core.ModeRead) }()
	for !onStack("tier.RWLock.Exit(", "[sync.Mutex.Lock") && len(result) == 0 {
		runtime.Gosched()
	}
	session.Debts.Add(core.DebtOf(core.ModeRead, "x", owner), 1)
	q.mu.Unlock()
	assert.ErrorIs(t, <-result, core.ErrLost)
}

// onStack reports whether the stack of one goroutine has all texts.
func onStack(texts ...string) bool {
	stacks := make([]byte, 1<<20)
	for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(stack, []byte(text)) }) {
			return true
		}
	}
	return false
}

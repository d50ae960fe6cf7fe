package sharedqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// newOpen makes a queue that is open to readers, all of which use the same shard.
func newOpen(t *testing.T) *RW[string] {
	key := func(owner string) (hash, number uint64) {
		_, number = keyOf(owner)
		return 0, number
	}
	q := NewRW(func() time.Duration { return 0 }, key, named)
	q.Settle(terms0(All))
	for range calmReads {
		q.TryRead("a")
		q.ExitRead("a")
	}
	require.True(t, q.open)
	return q
}

func requireRead(t *testing.T, q *RW[string], want Outcome, owner string) {
	t.Helper()
	o, _, _ := q.TryRead(owner)
	require.Equal(t, want, o)
}

func requireLeft(t *testing.T, q *RW[string], want int, owner string) {
	t.Helper()
	left, ok, _ := q.ExitRead(owner)
	require.True(t, ok)
	require.Equal(t, want, left)
}

func TestALoneReaderReentersAndIsJoined(t *testing.T) {
	for _, other := range []string{"b", "c"} { // an owner with a number, and one without
		q := newOpen(t)
		shard, _ := q.shard("a")
		requireRead(t, q, Admitted, "a")
		require.True(t, shard.isAlone('a'))
		_, ok, _ := q.ExitRead(other)
		require.False(t, ok, "another owner's hold")
		requireRead(t, q, Admitted, other)
		requireRead(t, q, Reentered, "a")
		requireRead(t, q, Reentered, other)
		require.Equal(t, 4, q.Readers())
		requireLeft(t, q, 1, "a")
		requireLeft(t, q, 1, other)
		requireLeft(t, q, 0, "a")
		requireLeft(t, q, 0, other)
		_, ok, _ = q.ExitRead("a")
		require.False(t, ok)
		requireRead(t, q, Admitted, "a")
		require.True(t, shard.isAlone('a'), "when the last owner has left, a lone reader can enter")
	}
}

func TestALoneReaderIsSeenByAll(t *testing.T) {
	t.Run("a writer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			q := newOpen(t)
			requireRead(t, q, Admitted, "a")
			o, _ := q.TryWrite("a")
			require.Equal(t, Upgrade, o)
			writer := enterRW(q, "w", Write)
			requireOutcome(t, Waiting, writer)
			requireRead(t, q, Busy, "b")
			requireLeft(t, q, 0, "a")
			requireOutcome(t, Admitted, writer)
		})
	})
	t.Run("a loss", func(t *testing.T) {
		q := newOpen(t)
		requireRead(t, q, Admitted, "a")
		require.Equal(t, []Loss[string]{{Owner: "a", Reads: 1}}, q.Lose())
		_, ok, _ := q.ExitRead("a")
		require.False(t, ok)
	})
	t.Run("look", func(t *testing.T) {
		q := newOpen(t)
		requireRead(t, q, Admitted, "a")
		token, ok := q.ReadToken("a")
		require.True(t, ok)
		require.Equal(t, q.Used(), token)
		reads, _, _ := q.Holds("a")
		require.Equal(t, 1, reads)
		require.Equal(t, 1, q.Readers())
		require.Equal(t, 1, q.Look().InUse)
		require.False(t, q.Idle())
		require.False(t, q.Rest())
		requireLeft(t, q, 0, "a")
		q.Rest()
		require.True(t, q.Rest())
		requireRead(t, q, Admitted, "a")
		requireLeft(t, q, 0, "a")
		require.False(t, q.Rest(), "a reader came in between")
	})
}

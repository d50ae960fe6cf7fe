package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about taking a lock away from its holder.
var forceCases = []testCase{
	{"Force/FreesTheLock", forceFrees},
	{"Force/ReportsThatTheLockWasFree", forceOfAFreeLock},
	{"Force/GivesTheLockToTheLongestLiveWaiter", forceGivesOn},
	{"Force/LeavesTheOldHolderWithNothing", forceLeavesNothing},
}

func forceFrees(t *test) {
	a, b, _ := t.connect3()
	a.take(1, holds(3))
	require.True(t, b.force(), "of another session")
	b.free()
	a.take(2)
	require.True(t, a.force(), "of its own")
	a.free()
}

func forceOfAFreeLock(t *test) {
	a := t.connect()
	require.False(t, a.force())
	a.brief(1)
	a.expired()
	require.False(t, a.force())
}

func forceGivesOn(t *test) {
	a, b, c := t.connect3()
	got := a.take(1)
	b.wait(1, patience(short))
	c.wait(1, grantTTL(medium))
	a.dead(c)
	require.True(t, a.force())
	st := c.has(1)
	require.Greater(t, st.Token, got.Last)
	t.full(medium, st.TTL)
	c.waiting()
}

func forceLeavesNothing(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	a.force()
	a.stale(1)
	require.False(t, a.renew(1, long))
	require.True(t, a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 2}).Gone)
	require.Equal(t, backend.Nothing, a.release(1))
	a.free()
	a.take(2)
	b.wait(1)
	a.force()
	require.Equal(t, backend.Nothing, a.release(2))
	require.False(t, a.renew(2, long))
	b.has(1)
}

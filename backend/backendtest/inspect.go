package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Reading a lock's state.
var inspectCases = []testCase{
	{"Inspect/ShowsAFreeLock", inspectFree},
	{"Inspect/ShowsEveryField", inspectEverything},
	{"Inspect/KnowsTheTokenOfALockThatWasReleased", inspectAfterRelease},
	{"Inspect/ShowsTheSameToEverybody", inspectByOthers},
	{"Inspect/ChangesNothing", inspectChangesNothing},
}

func inspectFree(t *test) {
	st := t.connect().inspect()
	require.False(t, st.Locked)
	require.Empty(t, st.Session)
	require.Empty(t, st.Owner)
	require.Zero(t, st.Holds)
	require.Zero(t, st.Token)
	require.Empty(t, st.Waiting)
}

func inspectEverything(t *test) {
	a, b, c := t.connect3()
	got := a.take(17, owner("~worker"), holds(4), lease(medium))
	c.wait(1)
	b.wait(2)
	st := b.inspect()
	t.full(medium, st.TTL)
	st.TTL = 0
	require.Equal(t, backend.State{
		Locked: true, Session: a.id, Owner: "~worker", Holds: 4, Epoch: 17, Token: got.Last,
		Waiting: []string{c.id, b.id},
	}, st)
}

func inspectAfterRelease(t *test) {
	a := t.connect()
	got := a.take(1)
	a.release(1)
	st := a.inspect()
	require.False(t, st.Locked)
	require.Empty(t, st.Session)
	require.Equal(t, got.Last, st.Token)
}

func inspectByOthers(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	want := a.inspect()
	for _, s := range []*session{b, c} {
		st := s.inspect()
		require.InDelta(t, want.TTL, st.TTL, float64(limit))
		st.TTL = want.TTL
		require.Equal(t, want, st)
	}
}

func inspectChangesNothing(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	a.lapse() // Inspect finds it free, and b waiting, and leaves it at that
	c.take(1, barge)
	c.waiting(b)
}

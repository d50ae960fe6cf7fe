package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about giving up a hold, a grant or a place.
var releaseCases = []testCase{
	{"Release/FreesTheLockOnce", releaseFreesOnce},
	{"Release/OfAnotherSessionChangesNothing", releaseOfAnotherSession},
	{"Release/OfALowerEpochChangesNothing", releaseOfALowerEpoch},
	{"Release/OfAHigherEpochCoversTheLower", releaseOfAHigherEpoch},
	{"Release/WithdrawsFromTheQueue", releaseWithdraws},
	{"Release/GivesTheLockToTheLongestWaiter", releaseGivesOn},
	{"Release/OfAGrantGivesItToTheNext", releaseOfAGrant},
	{"Release/AgainDoesNotTakeTheLockFromTheNext", releaseAgain},
	{"Release/LetsTheSessionsNextAttemptIn", releaseThenAcquire},
}

func releaseFreesOnce(t *test) {
	a := t.connect()
	a.take(1, holds(3))
	require.Equal(t, backend.Released, a.release(1))
	a.free()
	require.Equal(t, backend.Nothing, a.release(1))
}

func releaseOfAnotherSession(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	require.Equal(t, backend.Nothing, c.release(9))
	a.has(1)
	a.waiting(b)
}

func releaseOfALowerEpoch(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	require.Equal(t, backend.Nothing, a.release(4))
	a.has(5)
	b.wait(5)
	require.Equal(t, backend.Nothing, b.release(4))
	a.waiting(b)
}

func releaseOfAHigherEpoch(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	b.wait(5)
	require.Equal(t, backend.Withdrawn, b.release(6))
	require.Equal(t, backend.Released, a.release(6))
	a.free()
}

func releaseWithdraws(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	c.wait(1)
	require.Equal(t, backend.Withdrawn, b.release(1))
	require.Equal(t, backend.Nothing, b.release(1))
	a.has(1)
	a.waiting(c)
	a.release(1)
	c.has(1)
}

func releaseGivesOn(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1, owner("9"), holds(2))
	c.wait(1)
	require.Equal(t, backend.Released, a.release(1))
	st := b.has(1)
	require.Equal(t, "9", st.Owner)
	require.Equal(t, 2, st.Holds)
	b.waiting(c)
}

func releaseOfAGrant(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	c.wait(1)
	a.release(1)
	require.Equal(t, backend.Released, b.release(1)) // it does not matter whether b has received the message
	c.has(1)
}

func releaseAgain(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1)
	a.release(1)
	require.Equal(t, backend.Nothing, a.release(1))
	b.has(1)
	b.release(1)
	a.take(2)
	require.Equal(t, backend.Nothing, a.release(1))
	a.has(2)
}

func releaseThenAcquire(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	a.release(1)
	a.take(2)
	b.wait(1)
	b.release(1)
	b.wait(2)
	a.waiting(b)
}

package sharedqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestOutcomesOfALimit(t *testing.T) {
	require.Equal(t, "full", Full.String())
	require.Equal(t, "unanswered", Unanswered.String())
	require.Equal(t, "Outcome(12)", (Unanswered + 1).String())
}

func TestAClaimOfAnRWWithinALimitDoesNotJoinALongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		o, _, _, _ := q.EnterFor(nil, "a", Write, 1)
		require.Equal(t, Admitted, o)
		writer := enterRW(q, "b", Write)
		for _, mode := range []Mode{Read, Write, Shared, Write | Shared} {
			o, w, _, _ := q.EnterFor(nil, "c", mode, 1)
			require.Equal(t, Full, o)
			require.Nil(t, w)
		}
		for _, mode := range []Mode{Read, Write} {
			o, _, _, _ = q.EnterFor(nil, "a", mode, 1)
			require.Contains(t, []Outcome{Admitted, Reentered}, o, "the owner does not wait")
		}
		o, _, _, _ = q.EnterFor(nil, "c", Write|Once, 1)
		require.Equal(t, Busy, o, "a try does not wait")
		require.Equal(t, 1, q.Look().Waiting, "a refused claim leaves nothing")
		q.ExitAll("a")
		requireOutcome(t, Admitted, writer)
	})
}

func TestAClaimOfPermitsWithinALimitDoesNotJoinALongLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(2)
		o, _, _, _ := q.EnterFor(nil, 2, 0, 1)
		require.Equal(t, Admitted, o)
		waiting := enterPermits(q, 1, 0)
		o, w, _, _ := q.EnterFor(nil, 1, 0, 1)
		require.Equal(t, Full, o)
		require.Nil(t, w)
		o, _, _, _ = q.EnterFor(nil, 1, Once, 1)
		require.Equal(t, Busy, o, "a try does not wait")
		q.Exit(1)
		requireOutcome(t, Admitted, waiting)
	})
}

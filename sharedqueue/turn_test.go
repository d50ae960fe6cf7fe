package sharedqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadersOfAWantedSessionAdmitNoNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		for range calmReads { // so that readers enter by their shards
			q.TryRead("a")
			q.ExitRead("a")
		}
		q.TryRead("a")
		q.Ask(0, 64, hour)
		q.Look()
		newcomer := enterRW(q, "b", Read)
		requireOutcome(t, Waiting, newcomer)
		_, _, changed := q.ExitRead("a")
		requireLook(t, true, changed) // the unit can be given back
		requireOutcome(t, Waiting, newcomer)
		s := q.Look()
		require.Equal(t, [3]int{1, 0, 1}, [3]int{s.Units, s.InUse, s.Want})
		kept, _ := q.Keep(0)
		require.Equal(t, 0, kept)
		q.Settle(terms0(1))
		requireOutcome(t, Admitted, newcomer)
	})
}

func TestATurnGoesOnInOrderWhileAWriterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("w1")
		r1, w2, r2 := enterRW(q, "r1", Read), enterRW(q, "w2", Write), enterRW(q, "r2", Read)
		q.Ask(0, 64, hour)
		q.ExitWrite("w1")
		requireOutcome(t, Admitted, r1)
		requireOutcome(t, Waiting, w2, r2)
		q.ExitRead("r1")
		requireOutcome(t, Admitted, w2)
		require.False(t, q.Look().TurnOver)
		_, _, changed := q.ExitWrite("w2")
		requireLook(t, true, changed)
		requireOutcome(t, Waiting, r2) // readers alone have no turn
		s := q.Look()
		require.True(t, s.TurnOver)
		require.Equal(t, [3]int{All, 0, 1}, [3]int{s.Units, s.InUse, s.Want})
		w3 := enterRW(q, "w3", Write)
		requireOutcome(t, Waiting, w3) // the turn does not begin again
		q.Ask(0, 64, hour)
		requireOutcome(t, Waiting, w3, r2)
		q.Keep(0)
		q.Settle(terms0(All))
		requireOutcome(t, Admitted, r2)
		q.ExitRead("r2")
		requireOutcome(t, Admitted, w3)
	})
}

func TestATurnEndsAfterItsPassesOrItsTime(t *testing.T) {
	for _, byTime := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, c := newRW(All)
			q.TryWrite("w1")
			w2, w3 := enterRW(q, "w2", Write), enterRW(q, "w3", Write)
			q.Ask(0, 1, 5*time.Millisecond)
			if byTime {
				c.time = 5 * time.Millisecond
			} else {
				q.ExitWrite("w1")
				requireOutcome(t, Admitted, w2)
			}
			q.Ask(0, 64, hour) // the same message again, which begins no other turn
			q.ExitWrite("w1")
			q.ExitWrite("w2")
			requireOutcome(t, Waiting, w3)
			require.True(t, q.Look().TurnOver)
			q.Settle(terms0(All))
			q.ExitWrite("w2")
			requireOutcome(t, Admitted, w3)
		})
	}
}

func TestADowngradeEndsTheTurnAndTakesTheReadersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("w")
		q.TryRead("w")
		r1, r2, w2, r3 := enterRW(q, "r1", Read), enterRW(q, "r2", Read), enterRW(q, "w2", Write), enterRW(q, "r3", Read)
		q.Ask(0, 64, hour)
		q.ExitWrite("w")
		requireOutcome(t, Admitted, r1, r2)
		requireOutcome(t, Waiting, w2, r3)
		require.True(t, q.Look().TurnOver)
		kept, _ := q.Keep(0)
		require.Equal(t, 1, kept)
		for _, reader := range []string{"w", "r1", "r2"} {
			q.ExitRead(reader)
		}
		requireOutcome(t, Waiting, w2, r3)
		require.Equal(t, All, q.Look().Want)
		q.Keep(0)
		q.Settle(terms0(All))
		requireOutcome(t, Admitted, w2)
		q.ExitWrite("w2")
		requireOutcome(t, Admitted, r3)
	})
}

func TestTheEngineIsCalledOnlyForWhatItHasNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(0)
		_, _, _, changed := q.Enter("a", Read)
		requireLook(t, true, changed)
		q.Look()
		_, _, _, changed = q.Enter("b", Read)
		requireLook(t, false, changed) // the request under way is for this claim, too
		q.Settle(terms0(1))
		q.Look()
		_, _, changed = q.ExitRead("a")
		requireLook(t, false, changed)
		_, _, changed = q.ExitRead("b")
		requireLook(t, false, changed) // an idle unit stays for a while
		_, w, _, changed := q.Enter("c", Write)
		requireLook(t, true, changed)
		q.Look()
		done := make(chan struct{})
		close(done)
		o, _, changed := q.Wait(w, done, nil)
		require.Equal(t, Cancelled, o)
		requireLook(t, true, changed) // the place in the server's queue is no longer needed
	})
}

// A claim that waits needs another command than the try before it.
func TestTheEngineIsCalledWhenTheTryBeforeAWaitingClaimLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		close(done)
		q, _ := newRW(0)
		_, try, _, _ := q.Enter("a", Write|Once)
		q.Look()
		_, _, _, changed := q.Enter("b", Write)
		requireLook(t, false, changed)
		o, _, changed := q.Wait(try, done, nil)
		require.Equal(t, Cancelled, o)
		requireLook(t, true, changed)
	})
}

package sharedqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPermitsAreTheSessionsUnits(t *testing.T) {
	q, _ := newPermits(3)
	o, _ := q.Try(2)
	require.Equal(t, Admitted, o)
	o, _ = q.Try(2)
	require.Equal(t, Busy, o)
	o, _ = q.Try(1)
	require.Equal(t, Admitted, o)
	ok, _ := q.Exit(4)
	require.False(t, ok, "more than are in use")
	require.Equal(t, 3, q.Look().InUse, "nothing has changed")
	ok, _ = q.Exit(3)
	require.True(t, ok)
	require.True(t, q.Idle())
}

func TestAClaimThatFitsDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(3)
		q.Try(2)
		wide, narrow := enterPermits(q, 2, 0), enterPermits(q, 1, 0)
		o, _ := q.Try(1)
		require.Equal(t, Busy, o)
		requireOutcome(t, Waiting, wide, narrow)
		s := q.Look()
		require.Equal(t, [3]int{2, 5, 2}, [3]int{s.Head, s.Want, s.Waiting})
		q.Exit(1)
		requireOutcome(t, Admitted, wide)
		requireOutcome(t, Waiting, narrow)
		q.Exit(2)
		requireOutcome(t, Admitted, narrow)
	})
}

func TestAClaimOutOfLineLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(3)
		q.Try(2)
		wide, narrow := enterPermits(q, 2, 0), enterPermits(q, 1, 0)
		wide.timeout <- time.Time{}
		requireOutcome(t, TimedOut, wide)
		requireOutcome(t, Admitted, narrow)
	})
}

func TestUnitsThatAnotherSessionMayHaveGoBackAfterATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(4)
		q.Try(4)
		c1, c2, c3 := enterPermits(q, 1, 0), enterPermits(q, 1, 0), enterPermits(q, 1, 0)
		q.Ask(2, 1, hour)
		q.Look()
		q.Exit(1)
		requireOutcome(t, Admitted, c1) // the turn
		_, changed := q.Exit(1)
		requireLook(t, true, changed)
		requireOutcome(t, Waiting, c2, c3)
		s := q.Look()
		require.True(t, s.TurnOver)
		require.Equal(t, 3, s.InUse)
		require.Equal(t, 3, q.Keep(2))
		q.Exit(1)
		requireOutcome(t, Waiting, c2, c3)
		require.Equal(t, 2, q.Keep(2))
		q.Exit(1)
		requireOutcome(t, Admitted, c2) // permits that the session may keep are passed on without an end of the turn
		requireOutcome(t, Waiting, c3)
		q.Exit(1)
		requireOutcome(t, Admitted, c3)
	})
}

func TestATurnOfPermitsEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, c := newPermits(2)
		q.Try(2)
		waiting := enterPermits(q, 1, 0)
		q.Ask(1, 64, 5*time.Millisecond)
		c.time = 5 * time.Millisecond
		q.Exit(1)
		requireOutcome(t, Waiting, waiting)
		q.Settle(Terms{Units: 2, Until: hour})
		requireOutcome(t, Admitted, waiting)
	})
}

func TestIdlePermitsGoBackAtOnceWhenAnotherSessionWaits(t *testing.T) {
	q, _ := newPermits(5)
	q.Try(2)
	q.Ask(1, 64, hour)
	q.Look()
	_, changed := q.Exit(1)
	requireLook(t, true, changed)
	require.Equal(t, 1, q.Keep(1))
}

func TestPermitsGoBackAtOnceWhenNoneIsInUse(t *testing.T) {
	q, _ := newPermits(3)
	q.Try(3)
	q.Look()
	_, changed := q.Exit(2)
	requireLook(t, false, changed)
	_, changed = q.Exit(1)
	requireLook(t, true, changed)
	require.Equal(t, 0, q.Keep(0))
}

func TestPermitsAreNotAdmittedWhenTrustHasEnded(t *testing.T) {
	q, c := newPermits(1)
	c.time = hour
	o, changed := q.Try(1)
	require.Equal(t, Busy, o)
	requireLook(t, true, changed)
	q.Trust(hour + 1)
	o, _ = q.Try(1)
	require.Equal(t, Admitted, o)
}

func TestLostPermitsAreNoLongerInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(2)
		q.Try(2)
		waiting := enterPermits(q, 1, 0)
		require.Equal(t, 2, q.Lose())
		require.Equal(t, 0, q.Lose())
		ok, _ := q.Exit(1)
		require.False(t, ok)
		requireOutcome(t, Waiting, waiting)
		q.Settle(Terms{Units: 1, Until: hour})
		requireOutcome(t, Admitted, waiting)
		require.Panics(t, func() { q.Settle(Terms{Until: hour}) })
	})
}

func TestPermitsAreOfTheLifeInWhichTheyWereTaken(t *testing.T) {
	q, _ := newPermits(2)
	_, _, life, _ := q.Enter(2, 0)
	require.Equal(t, q.Life(), life)
	_, early, _, _ := q.Enter(1, 0)
	_, late, _, _ := q.Enter(2, 0)
	q.Exit(2)
	q.Lose() // early has been granted a permit, and has not run yet; late is in line
	require.NotEqual(t, q.Life(), life)
	q.Settle(Terms{Units: 2, Until: hour})
	o, life, _ := q.Wait(early, nil, nil)
	require.Equal(t, Admitted, o)
	require.NotEqual(t, q.Life(), life)
	o, life, _ = q.Wait(late, nil, nil)
	require.Equal(t, Admitted, o)
	require.Equal(t, q.Life(), life)
}

func TestTriesForPermitsEndWithTheServersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(2)
		q.Try(1)
		try := enterPermits(q, 3, Once)
		requireOutcome(t, Busy, enterPermits(q, 1, Once))
		behind := enterPermits(q, 1, 0)
		q.EndTries(5)
		requireOutcome(t, Waiting, try, behind)
		q.EndTries(4)
		requireOutcome(t, Busy, try)
		requireOutcome(t, Admitted, behind)
	})
}

func TestShutPermitsSendEveryClaimAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(1)
		q.Try(1)
		waiting := enterPermits(q, 1, 0)
		q.Expel()
		requireOutcome(t, Expelled, waiting)
		waiting = enterPermits(q, 1, 0)
		q.Shut()
		requireOutcome(t, Expelled, waiting, enterPermits(q, 1, 0))
		ok, _ := q.Exit(1)
		require.True(t, ok)
	})
}

func TestPermitsRestWhenNoClaimCameInBetween(t *testing.T) {
	q, _ := newPermits(5)
	q.Try(3)
	require.False(t, q.Rest())
	q.Exit(3)
	require.True(t, q.Rest())
	q.Try(1)
	q.Exit(1)
	require.False(t, q.Rest())
	require.True(t, q.Rest())
}

// A limit holds for the whole deployment, and so also inside a session, for permits that the session already has.
func TestALoweredLimitHoldsInsideTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(10)
		q.Limit(10)
		o, _ := q.Try(10)
		require.Equal(t, Admitted, o)
		q.Exit(3)
		q.Look()
		require.True(t, q.Limit(3), "the engine gives back what is above the limit")
		o, _ = q.Try(1)
		require.Equal(t, Busy, o)
		waiter := enterPermits(q, 1, 0)
		q.Exit(4)
		requireOutcome(t, Waiting, waiter) // 3 permits are in use
		q.Exit(1)
		requireOutcome(t, Admitted, waiter)
		wide := enterPermits(q, 5, 0)
		q.Exit(2)
		requireOutcome(t, Waiting, wide)
		q.Exit(1)
		requireOutcome(t, Admitted, wide) // this claim asks for more than the limit, so it is admitted alone
	})
}

func TestARaisedLimitHelpsThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(10)
		q.Limit(1)
		q.Try(1)
		waiter := enterPermits(q, 1, 0)
		requireOutcome(t, Waiting, waiter)
		q.Limit(2)
		requireOutcome(t, Admitted, waiter)
	})
}

// Since is the time at which the first claim in line became the first.
func TestSinceIsWhenTheHeadCameToTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		q := NewPermits(func() time.Duration { return time.Since(opened) })
		enterPermits(q, 1, 0)
		time.Sleep(time.Second)
		second, _ := enterPermits(q, 2, 0), enterPermits(q, 3, 0)
		require.Zero(t, q.Look().Since)
		time.Sleep(time.Second)
		q.Settle(Terms{Units: 1, Until: hour})
		require.Equal(t, 2*time.Second, q.Look().Since)
		require.Equal(t, 2, q.Look().Head)
		requireOutcome(t, Waiting, second)
		q.Expel()
	})
}

// Pace is the longest time that the first claim in line has lately waited for an Exit. If several permits fall free together,
// the later ones find a new head that has not waited. Waits of long ago are forgotten.
func TestPaceIsTheLongestThatTheHeadLatelyWaitedForAnExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := time.Now()
		q := NewPermits(func() time.Duration { return time.Since(opened) })
		q.Settle(Terms{Units: 2, Until: hour})
		enterPermits(q, 2, 0)
		for range 20 {
			enterPermits(q, 1, 0)
		}
		exits := func(after time.Duration) {
			time.Sleep(after)
			for range 2 {
				ok, _ := q.Exit(1)
				require.True(t, ok)
			}
		}
		require.Zero(t, q.Look().Pace)
		exits(time.Second)
		require.Equal(t, time.Second, q.Look().Pace)
		exits(100 * time.Millisecond)
		require.Equal(t, time.Second, q.Look().Pace)
		exits(2 * time.Second)
		require.Equal(t, 2*time.Second, q.Look().Pace)
		for range 5 {
			exits(1900 * time.Millisecond)
		}
		require.Equal(t, 1900*time.Millisecond, q.Look().Pace)
		q.Expel()
	})
}

func TestThoseBehindATryForPermitsWithoutAReplyAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newPermits(2)
		try, next := enterPermits(q, 3, Once), enterPermits(q, 1, 0)
		requireOutcome(t, Waiting, try, next)
		q.FailTries()
		requireOutcome(t, Unanswered, try)
		requireOutcome(t, Admitted, next)
	})
}

func TestSinceIsWhenTheClaimBeforeTheHeadLeft(t *testing.T) {
	for how, leaves := range map[string]func(q *Permits, try *claim){
		"cancelled": func(_ *Permits, try *claim) { try.cancel() },
		"timed out": func(_ *Permits, try *claim) { try.timeout <- time.Time{} },
		"refused":   func(q *Permits, _ *claim) { q.EndTries(0) },
		"no reply":  func(q *Permits, _ *claim) { q.FailTries() },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, c := newPermits(2)
				try, head := enterPermits(q, 3, Once), enterPermits(q, 3, 0)
				defer head.cancel()
				requireOutcome(t, Waiting, try, head)
				c.time = time.Second
				leaves(q, try)
				requireOutcome(t, Waiting, head)
				require.NotEqual(t, Waiting, try.outcome())
				require.Equal(t, time.Second, q.Look().Since)
			})
		})
	}
}

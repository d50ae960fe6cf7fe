package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// The queue of waiting sessions.
var queueCases = []testCase{
	{"Queue/IsFirstInFirstOut", queueIsFIFO},
	{"Queue/ABeatKeepsThePlace", aBeatKeepsThePlace},
	{"Queue/ANewAttemptKeepsThePlace", aNewAttemptKeepsThePlace},
	{"Queue/AnOlderAttemptLeavesThePlaceAlone", anOlderAttemptLeavesThePlace},
	{"Queue/ABeatKeepsThePlaceAlive", aBeatShowsLife},
	{"Queue/DeadWaitersAreSkipped", theDeadAreSkipped},
	{"Queue/OnlyDeadWaitersLeaveTheLockFree", theDeadAlone},
	{"Queue/AWaiterTakesAnExpiredLock", aWaiterTakesAnExpiredLock},
	{"Queue/AnExpiredLockGoesToTheLongestWaiter", anExpiredLockGoesToTheFirst},
	{"Queue/ANewcomerGoesToTheEndOfAnExpiredLocksQueue", aNewcomerGoesToTheEnd},
	{"Queue/ATryDoesNotPassTheQueue", aTryDoesNotPass},
	{"Queue/ASessionUsesItsPlaceUp", aSessionUsesItsPlaceUp},
	{"Queue/ABargerUsesItsPlaceUp", aBargerUsesItsPlaceUp},
}

func queueIsFIFO(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(7)
	c.wait(3)
	a.waiting(b, c)
	a.release(1)
	b.has(7)
	a.wait(2)
	b.waiting(c, a)
	b.release(7)
	c.has(3)
	c.release(3)
	a.has(2)
	a.waiting()
}

func aBeatKeepsThePlace(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	c.wait(1)
	b.wait(1)
	a.waiting(b, c)
}

func aNewAttemptKeepsThePlace(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1, owner("7"))
	c.wait(1)
	b.wait(2, owner("9"), holds(2))
	a.waiting(b, c)
	a.release(1)
	st := b.has(2)
	require.Equal(t, "9", st.Owner)
	require.Equal(t, 2, st.Holds)
}

func anOlderAttemptLeavesThePlace(t *test) {
	a, b, _ := t.connect3()
	a.take(1, lease(medium))
	b.wait(5, owner("5"))
	b.stale(4, queue, owner("4"))
	require.NotEqual(t, backend.Granted, b.acquire(4).Status)
	a.brief(2)
	a.expired()
	b.stale(4)
	b.stale(4, barge)
	b.take(5, queue, owner("5"))
}

func aBeatShowsLife(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1, patience(short))
	c.wait(1, patience(short))
	b.wait(1, patience(long))
	a.dead(b) // c came later and is dead by now, as b would be without its heartbeat
	a.release(1)
	b.has(1)
}

func theDeadAreSkipped(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1, patience(short))
	c.wait(1)
	a.dead(c)
	a.release(1)
	c.has(1)
}

func theDeadAlone(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1, patience(short))
	a.dead()
	a.release(1)
	a.free()
	c.take(1)
}

func aWaiterTakesAnExpiredLock(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1)
	a.brief(2)
	t.eventually("a heartbeat of the waiter finds the lock free", func() bool {
		return b.acquire(1, queue).Status == backend.Granted
	})
	b.has(1)
	b.waiting()
}

func anExpiredLockGoesToTheFirst(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	c.wait(1)
	a.lapse()
	c.wait(1) // finds the lock free, but b is first in the queue, so b gets it
	b.has(1)
	b.waiting(c)
	b.take(1, queue)
}

func aNewcomerGoesToTheEnd(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	a.lapse()
	c.wait(1)
	b.has(1)
	b.waiting(c)
}

func aTryDoesNotPass(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	a.lapse()
	require.Equal(t, backend.Waiting, c.acquire(1).Status)
	b.take(1, queue)
	b.waiting()
}

func aSessionUsesItsPlaceUp(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	c.wait(1)
	a.lapse()
	b.take(2) // a newer attempt, although it would not queue
	b.waiting(c)
}

func aBargerUsesItsPlaceUp(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	c.wait(1)
	a.lapse()
	c.take(2, barge)
	c.waiting(b)
}

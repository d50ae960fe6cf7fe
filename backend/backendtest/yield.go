package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about giving the lock to another session while owners of the own session wait.
var yieldCases = []testCase{
	{"Yield/GivesTheLockToTheFirstWaiterAndQueuesUp", yieldGivesTheLock},
	{"Yield/WithoutQueueLeavesNoPlace", yieldWithoutPlace},
	{"Yield/AgainKeepsThePlace", yieldAgain},
	{"Yield/WithoutAWaiterTakesOver", yieldWithoutAWaiter},
	{"Yield/DoesNotGiveTheLockToADeadWaiter", yieldToTheDead},
	{"Yield/ATakeoverWithoutItDoesNotYield", takeoverDoesNotYield},
}

func yieldGivesTheLock(t *test) {
	a, b, c := t.connect3()
	got := a.take(1)
	b.wait(1, grantTTL(medium))
	c.wait(1)
	a.wait(2, yield, owner("9"))
	st := b.has(1)
	require.Greater(t, st.Token, got.Last)
	t.full(medium, st.TTL)
	b.waiting(c, a)
	b.release(1)
	c.release(1)
	require.Equal(t, "9", a.has(2).Owner)
}

func yieldWithoutPlace(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1)
	reply := a.acquire(2, yield, func(r *backend.AcquireRequest) { r.Queue = false })
	require.Equal(t, backend.Waiting, reply.Status)
	b.has(1)
	b.waiting()
	b.release(1)
	a.take(3)
}

func yieldAgain(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	a.wait(2, yield)
	c.wait(1)
	a.wait(2, yield)
	b.has(1)
	b.waiting(a, c)
	b.release(1)
	a.take(2, yield) // a copy of the attempt that has the lock now does not hand it over
	a.has(2)
	a.waiting(c)
}

func yieldWithoutAWaiter(t *test) {
	a := t.connect()
	got := a.take(1, lease(medium))
	require.Greater(t, a.take(2, yield).First, got.Last)
	t.full(long, a.has(2).TTL)
	a.waiting()
}

func yieldToTheDead(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1, patience(short))
	a.dead()
	a.take(2, yield)
	a.has(2)
}

func takeoverDoesNotYield(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1)
	a.take(2, queue)
	a.has(2)
	a.waiting(b)
	require.Equal(t, backend.Released, a.release(2))
	b.has(1)
}

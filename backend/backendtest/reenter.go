package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about counting the holds of the lock's owner.
var reenterCases = []testCase{
	{"Reenter/SetsTheCount", reenterSetsTheCount},
	{"Reenter/AnOpThatIsNotAboveTheLastChangesNothing", anOldOpChangesNothing},
	{"Reenter/ANewAttemptCountsItsOwnOps", aNewAttemptCountsItsOwnOps},
	{"Reenter/NeverShortensTheLease", reenterNeverShortensTheLease},
	{"Reenter/ProlongsAShorterLeaseWhenTheCountRises", reenterProlongsTheLease},
	{"Reenter/LeavesTheLeaseAloneWhenTheCountFalls", reenterLeavesTheLease},
	{"Reenter/IsGoneWithoutTheLock", reenterIsGone},
	{"Reenter/KeepsTheTokenAndTheQueue", reenterKeepsTheRest},
}

func reenterSetsTheCount(t *test) {
	a := t.connect()
	a.take(1)
	for op, n := range []int{2, 3, 7, 6, 1, 1 << 30} {
		reply := a.reenter(backend.ReenterRequest{Epoch: 1, Op: uint64(op + 1), Holds: n, Lease: long})
		require.Equal(t, backend.ReenterReply{Holds: n, First: reply.First}, reply)
		require.Equal(t, n, a.has(1).Holds)
	}
}

func anOldOpChangesNothing(t *test) {
	a := t.connect()
	a.take(1, lease(medium))
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 2, Holds: 5})
	for _, op := range []uint64{2, 1} { // a copy of the last one, and an older one that arrives late
		reply := a.reenter(backend.ReenterRequest{Epoch: 1, Op: op, Holds: 9, Lease: long})
		require.Equal(t, backend.ReenterReply{Holds: 5, First: reply.First}, reply)
	}
	st := a.has(1)
	require.Equal(t, 5, st.Holds)
	t.full(medium, st.TTL)
}

func aNewAttemptCountsItsOwnOps(t *test) {
	a := t.connect()
	a.take(1)
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 8, Holds: 5})
	a.take(2)
	require.Equal(t, 3, a.reenter(backend.ReenterRequest{Epoch: 2, Op: 1, Holds: 3}).Holds)
	require.Equal(t, 3, a.has(2).Holds)
}

func reenterNeverShortensTheLease(t *test) {
	a := t.connect()
	a.take(1, lease(long))
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 2, Lease: medium})
	t.full(long, a.has(1).TTL)
}

func reenterProlongsTheLease(t *test) {
	a := t.connect()
	a.take(1, lease(medium))
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 2, Lease: long})
	t.full(long, a.has(1).TTL)
}

func reenterLeavesTheLease(t *test) {
	a := t.connect()
	a.take(1, lease(medium))
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 3}) // this one has no lease
	t.full(medium, a.has(1).TTL)
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 2, Holds: 2, Lease: long})
	t.full(medium, a.has(1).TTL)
}

func reenterIsGone(t *test) {
	a, b, _ := t.connect3()
	gone := func(s *session, epoch uint64) {
		t.Helper()
		require.True(t, s.reenter(backend.ReenterRequest{Epoch: epoch, Op: 9, Holds: 2, Lease: long}).Gone)
	}
	gone(a, 5)
	a.free()
	a.take(5, lease(medium))
	gone(a, 4)
	gone(a, 6)
	gone(b, 5)
	st := a.has(5)
	require.Equal(t, 1, st.Holds)
	t.full(medium, st.TTL)
	a.release(5)
	gone(a, 5)
	a.brief(6)
	a.expired()
	gone(a, 6)
	a.free()
}

func reenterKeepsTheRest(t *test) {
	a, b, _ := t.connect3()
	got := a.take(1)
	b.wait(1)
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 2, Lease: long})
	require.Equal(t, got.Last, a.has(1).Token)
	a.waiting(b)
}

package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about taking a lock, repeating the attempt, and taking the lock over within a session.
var acquireCases = []testCase{
	{"Acquire/TakesAFreeLock", takesAFreeLock},
	{"Acquire/WaitsWhileAnotherHasTheLock", waitsWhileAnotherHasTheLock},
	{"Acquire/ATryLeavesNoPlace", aTryLeavesNoPlace},
	{"Acquire/AResendKeepsTheTokenAndSetsTheFullLease", aResendKeepsTheToken},
	{"Acquire/AResendKeepsTheHoldCount", aResendKeepsTheHoldCount},
	{"Acquire/ATakeoverGivesANewTokenAndOwner", aTakeoverGivesANewToken},
	{"Acquire/ATakeoverSetsItsLease", aTakeoverSetsItsLease},
	{"Acquire/ATakeoverWithKeepTTLLeavesTheLease", aTakeoverWithKeepTTL},
	{"Acquire/ALowerEpochIsStale", aLowerEpochIsStale},
	{"Acquire/AnEpochThatHadItsTurnIsStale", anEpochThatHadItsTurnIsStale},
	{"Acquire/AnEpochWhoseLeaseEndedIsStale", anEpochWhoseLeaseEndedIsStale},
	{"Acquire/TheLeaseEnds", theLeaseEnds},
	{"Acquire/AFixedLeaseStartsOnce", aFixedLeaseStartsOnce},
	{"Acquire/AFixedLeaseEndsThoughRepeated", aFixedLeaseEnds},
	{"Acquire/BargingPassesTheQueue", bargingPassesTheQueue},
	{"Acquire/BargingDoesNotPassTheHolder", bargingDoesNotPassTheHolder},
	{"Acquire/OwnersAreAnyBytes", ownersAreAnyBytes},
}

func takesAFreeLock(t *test) {
	a := t.connect()
	got := a.take(1, owner("7"), holds(3))
	require.Positive(t, got.First)
	require.Equal(t, got.First, got.Last)
	st := a.has(1)
	require.Equal(t, "7", st.Owner)
	require.Equal(t, 3, st.Holds)
	t.full(long, st.TTL)
}

func waitsWhileAnotherHasTheLock(t *test) {
	a, b, _ := t.connect3()
	got := a.take(5, lease(medium))
	for _, epoch := range []uint64{1, 5, 9} { // each session counts its own epochs
		reply := b.acquire(epoch)
		require.Equal(t, backend.Waiting, reply.Status)
		t.full(medium, reply.TTL)
		reply = b.wait(epoch)
		t.full(medium, reply.TTL)
	}
	require.Equal(t, got.Last, a.has(5).Token)
}

func aTryLeavesNoPlace(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	require.Equal(t, backend.Waiting, b.acquire(1).Status)
	require.Equal(t, backend.Waiting, b.acquire(2, barge).Status)
	a.waiting()
	a.release(1)
	a.free()
}

func aResendKeepsTheToken(t *test) {
	a := t.connect()
	first := a.take(1, lease(medium), tokens(3))
	again := a.take(1, lease(long), tokens(3))
	require.Equal(t, first, again)
	t.full(long, a.has(1).TTL)
}

func aResendKeepsTheHoldCount(t *test) {
	a := t.connect()
	a.take(1)
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 4})
	a.take(1)
	require.Equal(t, 4, a.has(1).Holds)
	require.Equal(t, 4, a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 9}).Holds, "re-entry with Op 1")
}

func aTakeoverGivesANewToken(t *test) {
	a := t.connect()
	first := a.take(1, owner("7"))
	for _, next := range []struct {
		epoch uint64
		owner string
	}{{2, "9"}, {8, "9"}} { // another owner's attempt, and a copy of it
		second := a.take(next.epoch, owner(next.owner), holds(2))
		require.Greater(t, second.First, first.Last)
		st := a.has(next.epoch)
		require.Equal(t, next.owner, st.Owner)
		require.Equal(t, 2, st.Holds)
		first = second
	}
}

func aTakeoverSetsItsLease(t *test) {
	a := t.connect()
	a.take(1, lease(medium))
	a.take(2, lease(long))
	t.full(long, a.has(2).TTL)
	a.take(3, lease(medium))
	t.full(medium, a.has(3).TTL)
}

func aTakeoverWithKeepTTL(t *test) {
	a := t.connect()
	first := a.take(1, lease(medium))
	second := a.take(2, lease(long), keepTTL)
	require.Greater(t, second.First, first.Last)
	t.full(medium, a.has(2).TTL)
	a.take(2, lease(long))
	t.full(long, a.has(2).TTL)
}

func aLowerEpochIsStale(t *test) {
	a := t.connect()
	a.take(5, owner("5"), lease(medium))
	a.stale(4, owner("4"))
	a.stale(4, owner("4"), barge)
	a.stale(1, queue)
	a.stale(1, yield)
	st := a.has(5)
	require.Equal(t, "5", st.Owner)
	t.full(medium, st.TTL)
	a.waiting()
}

func anEpochThatHadItsTurnIsStale(t *test) {
	a := t.connect()
	first := a.take(5)
	a.release(5)
	a.stale(5)
	a.stale(4, queue)
	a.free()
	require.Greater(t, a.take(6).First, first.Last)
}

func anEpochWhoseLeaseEndedIsStale(t *test) {
	a := t.connect()
	a.brief(5)
	a.expired()
	a.stale(5)
	a.free()
	a.take(6)
}

func theLeaseEnds(t *test) {
	a, b, _ := t.connect3()
	a.brief(1)
	t.eventually("another session gets the lock", func() bool { return b.acquire(1).Status == backend.Granted })
	b.has(1)
}

func aFixedLeaseStartsOnce(t *test) {
	a := t.connect()
	first := a.take(1, fixed(medium))
	t.full(medium, first.TTL)
	again := a.take(1, fixed(long))
	require.Equal(t, first.First, again.First)
	t.full(medium, again.TTL) // the reply has the rest of the lease that the first copy began
	t.full(medium, a.has(1).TTL)
	a.take(2, fixed(long)) // a new attempt begins a lease of its own
	t.full(long, a.has(2).TTL)
}

func aFixedLeaseEnds(t *test) {
	a := t.connect()
	a.brief(1, fixed(short))
	t.eventually("the lease ends although the attempt is repeated", func() bool {
		reply, over := a.try(1, fixed(short))
		return !over && reply.Status == backend.Stale
	})
	a.free()
}

func bargingPassesTheQueue(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	a.lapse()
	c.take(1, barge)
	c.has(1)
	c.waiting(b)
	c.release(1)
	b.has(1)
}

func bargingDoesNotPassTheHolder(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	require.Equal(t, backend.Waiting, b.acquire(1, barge).Status)
	a.has(1)
}

func ownersAreAnyBytes(t *test) {
	a, b, _ := t.connect3()
	for i, name := range []string{"", "7", "~7", ":", "a:b", " ", " a  b ", "\x00", "a\nb", "\xff\xfe", "é", "{a}", "%s", string(make([]byte, 1000))} {
		epoch := uint64(i + 1)
		a.take(epoch, owner(name))
		require.Equal(t, name, a.has(epoch).Owner)
		ctx, cancel := a.command()
		reply, err := a.raw.Reenter(ctx, backend.ReenterRequest{Epoch: epoch, Owner: name, Op: 1, Holds: 2})
		cancel()
		require.NoError(t, err)
		require.Equal(t, backend.ReenterReply{Holds: 2, First: reply.First}, reply, "re-entry of %q", name)
		b.wait(epoch, owner(name))
		a.release(epoch)
		require.Equal(t, name, b.has(epoch).Owner, "after a grant")
		b.release(epoch)
	}
}

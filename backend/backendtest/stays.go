package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about releases after which the lock stays taken for a time.
var staysCases = []testCase{
	{"Stays/TheLockIsNobodys", staysNobodys},
	{"Stays/ItEnds", staysEnds},
	{"Stays/ForLessThanTheLease", staysForLess},
	{"Stays/ARepeatedReleaseChangesNothing", staysAgain},
	{"Stays/ForceUnlockEndsIt", staysForced},
	{"Stays/OnlyWithAHold", staysWithoutAHold},
	{"Stays/InThePastTheLockIsFree", staysInThePast},
	{"Stays/TheOwnerHasNothingToResume", staysNotResumed},
}

// stays releases an epoch, and makes the lock stay taken for d.
func (r *remote) stays(epoch uint64, d time.Duration) backend.ReleaseResult {
	r.t.Helper()
	return r.send(backend.ReleaseRequest{Epoch: epoch, StaysUntil: time.Now().Add(d)})
}

// unlocked requires that the lock stays taken although the session has released it.
func (s *session) unlocked(epoch uint64) backend.State {
	s.t.Helper()
	st := s.has(epoch)
	require.True(s.t, st.Unlocked, "the holder has released it")
	return st
}

func staysNobodys(t *test) {
	a, b, _ := t.connect3()
	got := a.take(1, owner("7"), holds(2))
	require.False(t, a.has(1).Unlocked)
	require.Equal(t, backend.Released, a.stays(1, medium))
	st := a.unlocked(1)
	require.Equal(t, "7", st.Owner)
	require.Equal(t, got.Last, st.Token)
	t.full(medium, st.TTL)

	for _, s := range []*session{a, b} {
		require.Equal(t, backend.Waiting, s.acquire(2).Status)
		require.Equal(t, backend.Waiting, s.acquire(3, barge).Status)
	}
	a.stale(1)
	require.False(t, a.renew(1, long), "renewed")
	require.True(t, a.reenter(backend.ReenterRequest{Epoch: 1, Owner: "7", Op: 1, Holds: 3}).Gone)
	t.full(medium, a.unlocked(1).TTL)
}

func staysEnds(t *test) {
	a, b, _ := t.connect3()
	got := a.take(1)
	began := time.Now()
	a.stays(1, short)
	epoch, reply := b.taken(1, queue)
	require.GreaterOrEqual(t, time.Since(began), short*9/10) // the clocks may differ a little
	require.Greater(t, reply.First, got.Last)
	require.False(t, b.has(epoch).Unlocked)
	require.Equal(t, backend.Released, b.release(epoch))
	b.free()
}

func staysForLess(t *test) {
	a := t.connect()
	a.take(1, lease(long))
	a.stays(1, short)
	a.expired()
	a.take(2)
}

func staysAgain(t *test) {
	a := t.connect()
	a.take(1)
	a.stays(1, medium)
	require.Equal(t, backend.Nothing, a.stays(1, long))
	t.full(medium, a.unlocked(1).TTL)
	require.Equal(t, backend.Nothing, a.release(1))
	require.Equal(t, backend.Nothing, a.release(2))
	a.unlocked(1)
}

func staysForced(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	a.stays(1, medium)
	require.True(t, b.force())
	b.free()
	b.take(1)
}

func staysWithoutAHold(t *test) {
	a, b, _ := t.connect3()
	require.Equal(t, backend.Nothing, a.stays(1, medium))
	a.free()
	b.take(1)
	a.acquire(2, queue)
	a.stays(2, medium)
	require.False(t, b.has(1).Unlocked)
	b.release(1)
	a.free()
	a.take(3)
	require.Equal(t, backend.Nothing, a.stays(2, medium), "of a lower epoch")
	require.False(t, a.has(3).Unlocked)
}

func staysInThePast(t *test) {
	a := t.connect()
	a.take(1)
	require.Equal(t, backend.Released, a.stays(1, -time.Second))
	a.free()
}

func staysNotResumed(t *test) {
	a, b, _ := t.connect3()
	a.take(1, owner(portable))
	a.stays(1, medium)
	require.Equal(t, backend.NotThere, b.resume(1).Status)
	require.Equal(t, backend.NotThere, a.resume(2).Status)
	a.unlocked(1)
}

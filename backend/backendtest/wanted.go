package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// The message to a session that may have a lock without needing it. Like all messages it may be lost, so the cases
// repeat what must bring it until it has come.
var wantedCases = []testCase{
	{"Wanted/IsSaidWhenAnotherQueues", wantedByAQueuer},
	{"Wanted/IsSaidAtEachHeartbeat", wantedAtEachHeartbeat},
	{"Wanted/IsSaidWhenAnotherTries", wantedByATry},
	{"Wanted/IsSaidToWhomTheLockIsGivenBeforeOthers", wantedBehindAGrant},
	{"Wanted/IsNotSaidToOtherOwners", notWanted},
}

// lingering is the owner of a session that may have the lock without needing it.
var lingering = owner(backend.LingeringOwner)

// askedFor waits until s has been told that its epoch is wanted, with again to bring it about.
func (s *session) askedFor(epoch uint64, again func()) {
	s.t.Helper()
	s.t.eventually("the holder is asked for its lock", func() bool {
		again()
		return s.mail.asked(s.t.name) == epoch
	})
}

func wantedByAQueuer(t *test) {
	a, b, _ := t.connect3()
	a.take(5, lingering)
	a.askedFor(5, func() { b.wait(1) })
	a.has(5)
}

func wantedAtEachHeartbeat(t *test) {
	a, b, _ := t.connect3()
	a.take(5, lingering)
	b.wait(1)
	a.take(6, lingering)
	a.askedFor(6, func() { b.wait(1) })
}

func wantedByATry(t *test) {
	a, b, _ := t.connect3()
	a.take(5, lingering)
	epoch := uint64(0)
	a.askedFor(5, func() {
		epoch++
		require.Equal(t, backend.Waiting, b.acquire(epoch, barge).Status)
	})
	a.waiting()
}

func wantedBehindAGrant(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(2, lingering)
	c.wait(3)
	a.release(1)
	b.has(2)
	b.askedFor(2, func() { c.wait(3) })
}

func notWanted(t *test) {
	a, b, _ := t.connect3()
	a.take(5, owner("7"))
	b.wait(1)
	a.release(5)
	b.has(1)
	p, ok := b.mail.wait(t.Context(), t.name, 1, limit) // what comes after it came before this, if it came
	require.True(t, !ok || p.Epoch == 1)
	require.Zero(t, a.mail.asked(t.name))
}

package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about the message to a session that may have a lock without needing it. The message may be lost, so the cases repeat
// the command that causes it until it has come.
var wantedCases = []testCase{
	{"Wanted/IsSentWhenAnotherQueues", wantedByAQueuer},
	{"Wanted/IsSentAtEachHeartbeat", wantedAtEachHeartbeat},
	{"Wanted/IsSentWhenAnotherTries", wantedByATry},
	{"Wanted/IsSentToAWaiterThatGetsTheLockBeforeOthers", wantedBehindAGrant},
	{"Wanted/IsSentToANewAttemptThatTakesTheHoldOver", wantedByATakeover},
	{"Wanted/IsNotSentToOtherOwners", notWanted},
	{"Watch/ReportsASessionThatQueuesUp", watchReports},
	{"Watch/ReportsAtEachHeartbeat", watchReportsBeats},
	{"Watch/ReportsASessionThatWaitsAlready", watchFindsWaiter},
	{"Watch/DoesNotReportTries", watchIgnoresTries},
	{"Watch/EndsWithTheEpoch", watchEnds},
	{"Watch/EndsWhenTheHoldMoves", watchEndsWithResume},
	{"Watch/OfAHoldThatIsNotThereIsGone", watchGone},
	{"Watch/LeavesTheHoldAsItIs", watchKeepsHold},
	{"Watch/AGrantThatIsWatchedIsAccepted", watchGrant},
}

// lingering makes an attempt one of LingeringOwner. The attempt's session may have the lock without needing it.
var lingering = owner(backend.LingeringOwner)

// askedFor waits for the message that another session wants the lock that epoch has. Calling again causes such a message:
// askedFor calls it repeatedly until the message has come.
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
		reply := b.acquire(epoch, barge)
		require.Equal(t, backend.Waiting, reply.Status)
		require.True(t, reply.Lingers, "the holder may give it up at once")
	})
	a.take(6, owner("7"))
	t.eventually("the hold counts as in use, at all nodes of a quorum", func() bool {
		epoch++
		return !b.acquire(epoch, barge).Lingers
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

func wantedByATakeover(t *test) {
	a, b, _ := t.connect3()
	a.take(5, lingering)
	b.wait(1)
	epoch := uint64(5)
	t.eventually("the holder is asked for what its new attempt has", func() bool {
		epoch++
		a.take(epoch, lingering)
		return a.mail.asked(t.name) > 5
	})
}

func notWanted(t *test) {
	a, b, _ := t.connect3()
	a.take(5, owner("7"))
	b.wait(1)
	a.release(5)
	b.has(1)
	p, ok := b.mail.wait(t.Context(), t.name, 1, limit) // an earlier message would have arrived before this one
	require.True(t, !ok || p.Epoch == 1)
	require.Zero(t, a.mail.asked(t.name))
}

// watch requests messages about sessions that queue up. Remotes without Watch skip the case.
func (r *remote) watch(epoch uint64) backend.WatchReply {
	r.t.Helper()
	watcher, ok := r.raw.(backend.Watcher)
	if !ok {
		r.t.Skip("waiters are not reported")
	}
	ctx, cancel := r.command()
	defer cancel()
	reply, err := watcher.Watch(ctx, epoch)
	require.NoError(r.t, err)
	return reply
}

// watched watches a hold, which must exist. No session may wait for the lock.
func (r *remote) watched(epoch uint64) {
	r.t.Helper()
	require.Equal(r.t, backend.WatchReply{}, r.watch(epoch))
}

func watchReports(t *test) {
	a, b, _ := t.connect3()
	a.take(5, lease(medium))
	a.watched(5)
	a.watched(5)
	a.take(5, lease(long)) // a copy, with a longer lease: the server must keep the watch for as long
	a.askedFor(5, func() { b.wait(1) })
	a.has(5)
}

func watchReportsBeats(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	a.watched(5)
	for range 2 {
		a.askedFor(5, func() { b.wait(1) })
		a.mail.forget(t.name)
	}
}

func watchFindsWaiter(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	b.wait(1)
	require.True(t, a.watch(5).Waiting)
	b.release(1)
	a.watched(5)
}

func watchIgnoresTries(t *test) {
	a, b, c := t.connect3()
	a.take(5)
	a.watched(5)
	require.Equal(t, backend.Waiting, b.acquire(1).Status)
	require.Equal(t, backend.Waiting, b.acquire(2, barge).Status)
	a.nothingAsked(5, c)
}

// nothingAsked requires that this session was not asked for the lock. First it passes the lock to another session and back,
// because earlier messages arrive before the last grant.
func (s *session) nothingAsked(epoch uint64, next *session) {
	s.t.Helper()
	s.release(epoch)
	next.take(1)
	s.wait(epoch + 100)
	next.release(1)
	p, ok := s.mail.wait(s.t.Context(), s.t.name, epoch+100, limit)
	require.True(s.t, !ok || p.Epoch == epoch+100)
	require.Zero(s.t, s.mail.asked(s.t.name))
}

func watchEnds(t *test) {
	a, b, c := t.connect3()
	a.take(5)
	a.watched(5)
	a.take(6)
	b.wait(1)
	b.release(1)
	a.nothingAsked(6, c)
}

func watchEndsWithResume(t *test) {
	a, b, c := t.connect3()
	a.take(5, owner(portable))
	a.watched(5)
	b.resume(7)
	c.wait(1)
	c.release(1)
	b.nothingAsked(7, c)
}

func watchGone(t *test) {
	a, b, _ := t.connect3()
	require.True(t, a.watch(1).Gone)
	a.take(5)
	require.True(t, a.watch(4).Gone)
	require.True(t, a.watch(6).Gone)
	require.True(t, b.watch(5).Gone)
	a.release(5)
	require.True(t, a.watch(5).Gone)
	a.free()
}

func watchKeepsHold(t *test) {
	a := t.connect()
	got := a.take(5, holds(3))
	a.watched(5)
	st := a.has(5)
	require.Equal(t, 3, st.Holds)
	require.Equal(t, got.Last, st.Token)
	t.full(long, st.TTL)
	require.Equal(t, 4, a.reenter(backend.ReenterRequest{Epoch: 5, Owner: st.Owner, Op: 1, Holds: 4}).Holds)
	require.Equal(t, got.Last, a.acquire(5).Last, "a copy of the attempt returns the same token")
	require.True(t, a.renew(5, long))
}

func watchGrant(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(2)
	a.release(1)
	b.has(2)
	b.watched(2)
	require.Equal(t, backend.Granted, b.acquire(2).Status)
	b.askedFor(2, func() { c.wait(3) })
}

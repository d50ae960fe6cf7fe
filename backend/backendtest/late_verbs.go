package backendtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about every verb that changes something: a copy of the verb arrives after the lock has changed.
var lateVerbCases = []testCase{
	{"LateVerb/Acquire", afterwards(func(a *session) { a.stale(1, owner(portable), queue) })},
	{"LateVerb/Reenter", afterwards(func(a *session) {
		require.True(a.t, a.reenter(backend.ReenterRequest{Epoch: 1, Owner: portable, Op: 9, Holds: 5, Lease: long}).Gone)
	})},
	{"LateVerb/Release", afterwards(func(a *session) { require.Equal(a.t, backend.Nothing, a.release(1)) })},
	{"LateVerb/Renew", afterwards(func(a *session) { require.False(a.t, a.renew(1, long)) })},
	{"LateVerb/Resume", afterwards(func(a *session) {
		require.NotEqual(a.t, backend.Resumed, a.resume(1).Status)
	})},
	{"LateVerb/Await", afterwards(func(a *session) {
		require.Equal(a.t, backend.Gone, a.await(1, 100))
		require.Equal(a.t, backend.Gone, a.withdraw(100), "the attempt took no ticket")
	})},
	{"LateVerb/Note", afterwards(func(a *session) { require.False(a.t, a.note(1, "of the first epoch")) })},
	{"LateVerb/Watch", afterwards(func(a *session) { require.True(a.t, a.watch(1).Gone) })},
	{"LateVerb/Signal", lateSignal},
	{"LateVerb/Withdraw", lateWithdraw},
	{"LateVerb/Beat", lateBeat},
	{"LateVerb/ForceUnlock", lateForce},
	{"LateVerb/Share", lateShare},
	{"LateVerb/RenewOfUnits", lateRenewOfUnits},
	{"LateVerb/ForceShared", lateForceShared},
}

// afterwards returns a case about a late copy of a verb of a session's first epoch. The copy arrives three times: when the
// session has the lock with a higher epoch, when another session has the lock for the same owner, and when the lock is free.
// The copy must change nothing.
func afterwards(send func(a *session)) func(*test) {
	return func(t *test) {
		a, b, _ := t.connect3()
		a.take(1, owner(portable), holds(2))
		a.take(2, owner(portable), holds(2), lease(medium))
		a.leavesAlone(send)
		a.until(2, long) // copies of Acquire and Resume may be under way
		b.take(1, owner(portable), holds(2), lease(medium))
		a.leavesAlone(send)
		b.release(1)
		a.leavesAlone(send)
	}
}

// nodesApart allows for a quorum: since the case began, each of its nodes has received a lease at a different time, and each
// Inspect may see another majority.
const nodesApart = 100 * time.Millisecond

// leavesAlone requires that send does not change the lock.
func (s *session) leavesAlone(send func(*session)) {
	s.t.Helper()
	before := s.inspect()
	send(s)
	after := s.inspect()
	require.LessOrEqual(s.t, after.TTL, before.TTL+nodesApart+time.Since(s.t.began))
	after.TTL, before.TTL = 0, 0
	require.WithinDuration(s.t, before.Since, after.Since, nodesApart+limit)
	after.Since = before.Since
	require.Equal(s.t, before, after)
}

func lateSignal(t *test) {
	a, b, _ := t.connect3()
	b.waits(1)
	a.take(1)
	a.release(1)
	a.take(2)
	require.True(t, a.signal(1, 9, true).Gone)
	require.Equal(t, []backend.TicketStatus{backend.Waited}, b.beat(2))
	a.signal(2, 2, false) // this signals b, which gets the lock at the release
	a.release(2)
	b.take(3)
	b.release(3)
	require.True(t, a.signal(2, 3, true).Gone)
	b.free()
}

func lateWithdraw(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	b.waits(1)
	require.Equal(t, backend.Waited, a.withdraw(2))
	a.waits(3)
	require.Equal(t, backend.Gone, a.withdraw(2))
	require.Equal(t, []backend.TicketStatus{backend.Waited}, a.beat(4))
	require.Equal(t, []backend.TicketStatus{backend.Waited}, b.beat(2))
}

// A heartbeat makes no ticket, and acknowledges only the signals of its own tickets.
func lateBeat(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	require.Equal(t, backend.Waited, a.withdraw(2))
	a.beat(2)
	a.served(2)
	require.Equal(t, backend.Gone, a.withdraw(2))
	a.waits(3)
	b.take(1)
	b.signal(1, 1, true)
	a.served(2)
	require.Equal(t, backend.Signalled, a.withdraw(4))
}

// refusedLate requires the error of a copy that arrived after its time.
func (t *test) refusedLate(err error) {
	t.Helper()
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.False(t, backend.Refused(err), "%v", err)
	require.False(t, backend.OutcomeUnknown(err), "%v", err)
}

func lateForce(t *test) {
	a, b, _ := t.connect3()
	over := time.Now()
	a.take(1)
	require.True(t, b.force())
	a.take(2)
	t.pause(short)
	b.leavesAlone(func(*session) {
		ctx, cancel := b.command()
		defer cancel()
		_, err := b.raw.ForceUnlock(ctx, over)
		t.refusedLate(err)
	})
	a.has(2)
}

func lateShare(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	first := a.next(backend.ReadWrite, all, 0, all, nil)
	a.say(first)
	a.keep(0)
	b.read(0)
	require.Equal(t, backend.StaleShare, a.say(first).Status)
	require.Equal(t, 1, a.unitsOf(b))
	b.queued()
}

func lateRenewOfUnits(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.write(0)
	epoch, under := a.epoch, a.under
	a.keep(0)
	b.write(0)
	_, gone := a.renewShared(epoch, under, long)
	require.True(t, gone)
	require.Equal(t, all, a.unitsOf(b))
}

func lateForceShared(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	over := time.Now()
	a.write(0)
	c.forced(backend.ReadWrite)
	b.write(0)
	t.pause(short)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := c.raw.(backend.Sharer).ForceShared(ctx, backend.ReadWrite, over)
	t.refusedLate(err)
	require.Equal(t, all, c.unitsOf(b))
}

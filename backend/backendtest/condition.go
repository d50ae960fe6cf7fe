package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about conditions: waiting for one and signalling it. They are for Remotes with conditions.
var conditionCases = []testCase{
	{"Condition/AwaitGivesUpTheHoldForATicket", awaitGivesUp},
	{"Condition/AwaitHandsTheLockToTheNext", awaitHandsOn},
	{"Condition/AwaitAgainFindsItsTicket", awaitAgain},
	{"Condition/AwaitWithoutTheHoldTakesNoTicket", awaitWithoutHold},
	{"Condition/SignalGivesThePlaceThatTheLockIsPushedTo", signalPlaces},
	{"Condition/SignalGoesToTheLongestWaiter", signalOrder},
	{"Condition/SignalAllGoesToAllInOrder", signalAll},
	{"Condition/SignalAllGoesToManyInOrder", signalMany},
	{"Condition/ACopyOfASignalWakesNoWaiter", signalAgain},
	{"Condition/SignalWithoutTheHoldWakesNoWaiter", signalWithoutHold},
	{"Condition/SignalOfTheOwnSessionNamesTheTicketAndTakesNoPlace", signalOwn},
	{"Condition/SignalSkipsDeadWaiters", signalDead},
	{"Condition/SignalAllSkipsDeadWaiters", signalAllDead},
	{"Condition/ASignalThatNoSessionReceivedGoesToTheNext", signalUnheard},
	{"Condition/WithdrawReportsWhetherTheSignalCameFirst", withdrawDecides},
	{"Condition/TheSignalOfAWaiterThatLeavesGoesToTheNext", leaverSignalled},
	{"Condition/AnAcknowledgedSignalGoesToNoOtherWaiter", servedStays},
	{"Condition/LateCopiesOfTheAttemptAreRefusedAfterAwait", awaitBuries},
	{"Condition/ABeatKeepsATicketAlive", beatKeeps},
	{"Condition/ABeatReportsASignalWhoseMessageWasLost", beatReportsLostSignal},
	{"Condition/NamesDoNotMix", conditionNames},
}

// conditions returns the verbs of the lock's conditions. A Remote without them skips the case.
func (r *remote) conditions() backend.Conditions {
	r.t.Helper()
	conditions, ok := r.raw.(backend.Conditions)
	if !ok {
		r.t.Skip("the lock has no conditions")
	}
	return conditions
}

func (r *remote) await(epoch, ticket uint64, changes ...func(*backend.AwaitRequest)) backend.TicketStatus {
	r.t.Helper()
	req := backend.AwaitRequest{Condition: "ready", Epoch: epoch, Ticket: ticket, Owner: "1", Holds: 2,
		Patience: long, GrantTTL: long}
	for _, change := range changes {
		change(&req)
	}
	ctx, cancel := r.command()
	defer cancel()
	status, err := r.conditions().Await(ctx, req)
	require.NoError(r.t, err, "Await")
	return status
}

// waits takes the lock, and exchanges it for a ticket whose epoch is one higher.
func (r *remote) waits(epoch uint64, changes ...func(*backend.AwaitRequest)) {
	r.t.Helper()
	r.take(epoch)
	require.Equal(r.t, backend.Waited, r.await(epoch, epoch+1, changes...))
}

func (r *remote) signal(epoch, op uint64, all bool) backend.SignalReply {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	reply, err := r.conditions().Signal(ctx, backend.SignalRequest{Condition: "ready", Epoch: epoch, Op: op, All: all})
	require.NoError(r.t, err, "Signal")
	return reply
}

func (r *remote) withdraw(ticket uint64) backend.TicketStatus {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	status, err := r.conditions().Withdraw(ctx, "ready", ticket)
	require.NoError(r.t, err, "Withdraw")
	return status
}

func (r *remote) beat(tickets ...uint64) []backend.TicketStatus {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	answers, err := r.conditions().Beat(ctx, "ready", tickets, nil)
	require.NoError(r.t, err, "Beat")
	require.Len(r.t, answers, len(tickets))
	return answers
}

// served acknowledges the signals of these tickets.
func (r *remote) served(tickets ...uint64) {
	r.t.Helper()
	ctx, cancel := r.command()
	defer cancel()
	_, err := r.conditions().Beat(ctx, "ready", nil, tickets)
	require.NoError(r.t, err, "Beat")
}

// told waits for the message of a ticket's signal. It requires that placed is what the message says about a place in the queue.
func (s *session) told(ticket uint64, placed bool) {
	s.t.Helper()
	s.t.eventually("the signal arrives", func() bool { return s.mail.told(s.name, ticket) != nil })
	require.Equal(s.t, placed, *s.mail.told(s.name, ticket), "whether the waiter got a place")
}

func beatenEvery(patience time.Duration) func(*backend.AwaitRequest) {
	return func(r *backend.AwaitRequest) { r.Patience = patience }
}

// patiently calls try with a patience with which a ticket should be alive for the next command or two, and dead after a pause.
// On a slow machine the ticket may die too soon. Then try returns false, and patiently calls it with more patience. Each call
// of try may use ten epochs. A call that failed must leave nothing behind.
func (t *test) patiently(try func(epoch uint64, patience time.Duration) bool) {
	t.Helper()
	epoch := uint64(1)
	for patience := short; !try(epoch, patience); patience *= 2 {
		if patience > limit {
			t.Fatalf("the ticket is dead although its session sent a heartbeat within %v", patience)
		}
		epoch += 10
	}
}

// deafly makes a and b wait, and c signal a. Then a sends no heartbeats until its patience is over. As soon as a has received
// the message, deafly calls the function then. deafly returns the epoch that all three have used; the tickets have the next
// epoch.
func (t *test) deafly(a, b, c *session, then func(epoch uint64)) (epoch uint64) {
	t.Helper()
	t.patiently(func(first uint64, patience time.Duration) bool {
		epoch = first
		a.waits(epoch, beatenEvery(patience))
		b.waits(epoch)
		c.take(epoch)
		c.signal(epoch, 1, false)
		t.eventually("one of them gets the signal", func() bool {
			return a.mail.told(t.name, epoch+1) != nil || b.mail.told(t.name, epoch+1) != nil
		})
		if a.mail.told(t.name, epoch+1) == nil {
			c.release(epoch)
			b.served(epoch + 1)
			b.release(epoch + 1)
			return false
		}
		a.told(epoch+1, true)
		then(epoch)
		t.pause(patience + patience/2)
		return true
	})
	return epoch
}

func awaitGivesUp(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	a.free()
	b.take(1)
}

func awaitHandsOn(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1)
	require.Equal(t, backend.Waited, a.await(1, 2))
	b.has(1)
}

func awaitAgain(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	require.Equal(t, backend.Waited, a.await(1, 2), "a copy")
	b.take(1)
	require.Equal(t, backend.Waited, a.await(1, 2), "a late copy does not change the next holder's lock")
	b.has(1)
	b.signal(1, 1, false)
	require.Equal(t, backend.Signalled, a.await(1, 2), "a signalled waiter does not wait again")
	b.signal(1, 2, true)
	require.Equal(t, backend.Signalled, a.withdraw(2))
	a.served(2)
	require.Equal(t, backend.Gone, a.withdraw(2))
}

func awaitWithoutHold(t *test) {
	a, b, _ := t.connect3()
	require.Equal(t, backend.Gone, a.await(1, 2), "the lock is free")
	b.take(1)
	require.Equal(t, backend.Gone, a.await(1, 2), "another has it")
	a.wait(3)
	b.release(1)
	a.acquire(3)
	require.Equal(t, backend.Gone, a.await(2, 4), "another epoch has it")
	a.has(3)
	require.Equal(t, backend.Gone, a.withdraw(2))
}

func signalPlaces(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	b.take(1)
	b.signal(1, 1, false)
	a.told(2, true)
	b.waiting(a)
	b.release(1)
	st := a.has(2)
	require.Equal(t, 2, st.Holds, "the owner has as many holds as it gave up")
	g, ok := a.mail.wait(t.Context(), a.name, 2, limit)
	require.True(t, ok, "the lock is pushed to the waiter")
	require.Equal(t, st.Token, g.First)
	a.acquire(2)
	a.release(2)
}

func signalOrder(t *test) {
	a, b, c := t.connect3()
	a.waits(1)
	b.waits(1)
	c.take(1)
	c.signal(1, 1, false)
	a.told(2, true)
	require.Equal(t, []backend.TicketStatus{backend.Waited}, b.beat(2))
	c.signal(1, 2, false)
	b.told(2, true)
	c.waiting(a, b)
	c.signal(1, 3, false)
}

func signalAll(t *test) {
	a, b, c := t.connect3()
	b.waits(1)
	a.waits(1)
	c.take(1)
	c.signal(1, 1, true)
	b.told(2, true)
	a.told(2, true)
	c.waiting(b, a)
}

func signalAgain(t *test) {
	a, b, c := t.connect3()
	a.waits(1)
	b.waits(1)
	c.take(1)
	c.signal(1, 1, false)
	c.signal(1, 1, false)
	require.Equal(t, []backend.TicketStatus{backend.Waited}, b.beat(2), "a copy signals no other waiter")
	require.Equal(t, 1, c.inspect().Holds)
}

func signalWithoutHold(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	require.True(t, b.signal(1, 1, true).Gone)
	b.take(2)
	require.True(t, b.signal(1, 1, true).Gone)
	require.Equal(t, []backend.TicketStatus{backend.Waited}, a.beat(2))
}

func signalOwn(t *test) {
	a := t.connect()
	a.waits(1)
	a.take(3)
	require.Equal(t, []uint64{2}, a.signal(3, 1, false).Tickets)
	a.told(2, false)
	a.waiting()
	require.Empty(t, a.signal(3, 2, true).Tickets)
}

func signalDead(t *test)    { signalPastTheDead(t, false) }
func signalAllDead(t *test) { signalPastTheDead(t, true) }

func signalPastTheDead(t *test, all bool) {
	a, b, c := t.connect3()
	a.waits(1, beatenEvery(short))
	b.waits(1)
	c.take(1)
	t.pause(2 * short)
	c.signal(1, 1, all)
	b.told(2, true)
	require.Equal(t, backend.Gone, a.withdraw(2))
}

func signalUnheard(t *test) {
	a, b, c := t.connect3()
	epoch := t.deafly(a, b, c, func(epoch uint64) { c.release(epoch) }) // a never sends a heartbeat, like a process that has died
	b.beat(epoch + 1)
	b.told(epoch+1, true)
}

func withdrawDecides(t *test) {
	a, b, c := t.connect3()
	a.waits(1)
	b.waits(1)
	require.Equal(t, backend.Waited, a.withdraw(2))
	c.take(1)
	c.signal(1, 1, false)
	b.told(2, true)
	require.Equal(t, backend.Signalled, b.withdraw(2))
	require.Equal(t, backend.Signalled, b.withdraw(2), "a copy returns the same")
	b.served(2)
	require.Equal(t, backend.Gone, b.withdraw(2))
}

// A waiter that was signalled and withdraws keeps the signal until it acknowledges the signal. The waiter here never does.
func leaverSignalled(t *test) {
	a, b, c := t.connect3()
	epoch := t.deafly(a, b, c, func(epoch uint64) {
		require.Equal(t, backend.Signalled, a.withdraw(epoch+1))
		c.release(epoch)
	})
	b.beat(epoch + 1)
	b.told(epoch+1, true)
}

func servedStays(t *test) {
	a, b, c := t.connect3()
	epoch := t.deafly(a, b, c, func(epoch uint64) { a.served(epoch + 1) })
	b.beat(epoch + 1) // this heartbeat would pass on a signal that was not acknowledged
	require.Equal(t, []backend.TicketStatus{backend.Waited}, b.beat(epoch+1))
	c.signal(epoch, 2, false)
	b.told(epoch+1, true)
}

func awaitBuries(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	require.Equal(t, backend.Waited, a.await(5, 6, func(r *backend.AwaitRequest) { r.Until = time.Now().Add(long) }))
	b.use(1)
	a.stale(5)
	a.stale(5, queue)
	a.free()
	a.take(7)
}

func beatKeeps(t *test) {
	a, b, _ := t.connect3()
	t.patiently(func(epoch uint64, patience time.Duration) bool {
		a.waits(epoch, beatenEvery(patience))
		for range 5 { // all pauses together are longer than the waiter's patience
			t.pause(patience / 4)
			require.Equal(t, []backend.TicketStatus{backend.Waited}, a.beat(epoch+1))
		}
		b.take(epoch)
		b.signal(epoch, 1, false)
		kept := a.withdraw(epoch+1) == backend.Signalled
		if kept {
			a.told(epoch+1, true)
		}
		b.release(epoch)
		return kept
	})
}

func beatReportsLostSignal(t *test) {
	a, b, _ := t.connect3()
	a.waits(1)
	b.take(1)
	b.signal(1, 1, false)
	require.Equal(t, []backend.TicketStatus{backend.Signalled, backend.Signalled}, a.beat(2, 7),
		"a ticket that the server does not know")
	require.Equal(t, backend.Signalled, a.withdraw(2), "the reply may have been lost")
	a.served(2)
	require.Equal(t, backend.Gone, a.withdraw(2), "the signal is acknowledged")
}

func conditionNames(t *test) {
	a, b, _ := t.connect3()
	odd := "1:\x00} {b"
	a.waits(1, func(r *backend.AwaitRequest) { r.Condition = odd })
	b.take(1)
	b.signal(1, 1, true)
	ctx, cancel := a.command()
	defer cancel()
	status, err := a.conditions().Withdraw(ctx, odd, 2)
	require.NoError(t, err)
	require.Equal(t, backend.Waited, status, "a signal of another condition is not for it")
}

// A server may wake only some of many waiters at once. The next Op continues with those that have waited longest. A copy of an
// Op wakes no waiter, and its reply says that some waiters are left.
func signalMany(t *test) {
	const waiters = 250
	a, b, _ := t.connect3()
	for e := uint64(1); e < 2*waiters; e += 2 {
		a.waits(e, beatenEvery(long))
	}
	b.take(1)
	var woken []uint64
	for op := uint64(1); ; op++ {
		require.LessOrEqual(t, op, uint64(waiters), "each Op wakes a waiter")
		more := b.signal(1, op, true).More
		require.Equal(t, more, b.signal(1, op, true).More, "a copy")
		if !more {
			break
		}
	}
	for e := uint64(2); e <= 2*waiters; e += 2 {
		a.told(e, len(woken) == 0)
		woken = append(woken, e)
	}
	for _, status := range a.beat(woken...) {
		require.Equal(t, backend.Signalled, status)
	}
	require.False(t, b.signal(1, waiters+1, true).More)
}

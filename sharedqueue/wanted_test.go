package sharedqueue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// requireOpen checks whether a channel is open.
func requireOpen(t *testing.T, want bool, c <-chan struct{}) {
	t.Helper()
	open := true
	select {
	case <-c:
		open = false
	default:
	}
	require.Equal(t, want, open, "whether the channel is open")
}

// An owner that has called Wanted leaves under the mutex, so that the owner's channel ends with the owner's hold, however
// many readers come and go.
func TestReadersOfAQueueThatToldOneComeAndGoUnderItsMutex(t *testing.T) {
	q, _ := newRW(1)
	q.TryRead("c")
	wanted := q.Wanted("c")
	for range 2 * calmReads {
		q.TryRead("d")
		q.ExitRead("d")
	}
	q.ExitRead("c")
	q.TryRead("c")
	q.Ask(0, 0, 0)
	q.NoteWaiter(hour)
	requireOpen(t, true, wanted)
	requireOpen(t, false, q.Wanted("c"))
	q.ExitRead("c")
	require.Nil(t, q.Wanted("c"))
}

// An owner that is inside may stand in line, too, when the trust in the units has ended.
func TestAnOwnerIsNotToldOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, clock := newRW(All)
		q.TryWrite("a")
		wanted := q.Wanted("a")
		clock.time = 2 * hour
		again := enterRW(q, "a", Write)
		requireOutcome(t, Waiting, again)
		requireOpen(t, true, wanted)
		other := enterRW(q, "b", Read)
		requireOpen(t, false, wanted)
		q.Trust(3 * hour)
		requireOutcome(t, Reentered, again)
		q.ExitWrite("a")
		q.ExitWrite("a")
		requireOutcome(t, Admitted, other)
	})
}

// A try in line waits for the server's reply, and not for the users.
func TestUsersAreNotToldOfTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		q.TryRead("a")
		wanted := q.Wanted("a")
		try := enterRW(q, "b", Write|Once)
		require.Equal(t, Busy, try.outcome(), "it does not wait for readers here")
		p, _ := newPermits(3)
		p.Try(2)
		permits := p.Wanted(nil)
		once := enterPermits(p, 1, Once)
		require.Equal(t, Admitted, once.outcome())
		requireOpen(t, true, wanted)
		requireOpen(t, true, permits)

		p.Keep(3)
		once = enterPermits(p, 4, Once)
		requireOutcome(t, Waiting, once)
		p.NotePlaced()
		requireOpen(t, true, permits)
		p.EndTries(0)
		requireOutcome(t, Busy, once)
		wait := enterPermits(p, 4, 0)
		requireOpen(t, false, permits)
		wait.cancel()
		requireOutcome(t, Cancelled, wait)
	})
}

// What NoteWaiter noted ends with the next Settle or Unask. If all holds are lost, there is nothing that others may want.
func TestAWaiterThatHasLeftIsForgotten(t *testing.T) {
	for name, end := range map[string]func(q *RW[string], p *Permits){
		"unask":  func(q *RW[string], p *Permits) { q.Unask(); p.Unask() },
		"settle": func(q *RW[string], p *Permits) { q.Settle(terms0(1)); p.Settle(Terms{Units: 3, Until: hour}) },
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := newRW(1)
			p, _ := newPermits(3)
			q.TryRead("a")
			p.Try(1)
			q.NoteWaiter(hour)
			p.NoteWaiter(hour)
			requireOpen(t, true, q.Wanted("a"))
			requireOpen(t, true, p.Wanted(nil))
			q.Ask(0, 0, 0)
			p.Ask(0, 0, 0)
			q.NoteWaiter(hour)
			p.NoteWaiter(hour)
			requireOpen(t, false, q.Wanted("a"))
			requireOpen(t, false, p.Wanted(nil))
			end(q, p)
			q.TryRead("b")
			requireOpen(t, true, q.Wanted("b"))
			requireOpen(t, true, p.Wanted(nil))
			q.Lose()
			p.Lose()
			require.Nil(t, q.Wanted("b"))
			require.Nil(t, p.Wanted(nil))
		})
	}
}

// A session that waits says so again and again, until it has what it waits for.
func TestAWaiterOfWhichNothingIsHeardIsForgotten(t *testing.T) {
	q, now := newRW(1)
	p, then := newPermits(3)
	q.TryRead("a")
	p.Try(1)
	q.Ask(0, 0, 0)
	p.Ask(0, 0, 0)
	q.NoteWaiter(2)
	p.NoteWaiter(2)
	now.time = 1
	then.time = 1
	requireOpen(t, false, p.Wanted(nil))
	now.time = 2
	then.time = 2
	requireOpen(t, true, q.Wanted("a"))
	requireOpen(t, true, p.Wanted(nil))
	q.NoteWaiter(3)
	p.NoteWaiter(3)
	requireOpen(t, false, q.Wanted("a"))
	requireOpen(t, false, p.Wanted(nil))
}

// Each user of permits has a channel of its own. The channel of a user that gives its permits back is never closed.
func TestUsersOfPermitsAreToldApart(t *testing.T) {
	p, _ := newPermits(3)
	p.Try(3)
	gone, stays := p.Wanted("one"), p.Wanted("other")
	require.Equal(t, stays, p.Wanted("other"))
	p.Forget("one")
	p.Ask(0, 0, 0)
	p.NoteWaiter(hour)
	requireOpen(t, true, gone)
	requireOpen(t, false, stays)
}

package sharedqueue

import (
	"testing"
	"testing/synctest"
)

// An owner never waits for itself.

func TestAClaimToWriteBehindItsOwnToReadIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("a")
		reads := enterRW(q, "s", Read|Shared)
		requireOutcome(t, Upgrade, enterRW(q, "s", Write|Shared))
		other := enterRW(q, "o", Write|Shared)
		reads.cancel()
		requireOutcome(t, Cancelled, reads)
		writes := enterRW(q, "s", Write|Shared)
		requireOutcome(t, Waiting, writes)
		q.ExitWrite("a")
		requireOutcome(t, Admitted, other)
		q.ExitWrite("o")
		requireOutcome(t, Admitted, writes)
	})
}

// If an owner's claim to write is the first in line, the owner's claim to read enters with it, as a downgrade.
func TestAClaimToReadBehindItsOwnToWriteEntersWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("a")
		writes, reads, again := enterRW(q, "s", Write|Shared), enterRW(q, "s", Read|Shared), enterRW(q, "s", Write|Shared)
		q.ExitWrite("a")
		requireOutcome(t, Admitted, writes)
		requireOutcome(t, Reentered, reads, again)
	})
}

// The owner's first claim to write has left, so its other claim to write would be an upgrade.
func TestAClaimToWriteThatIsLeftBehindItsOwnToReadIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("a")
		writes, reads, again := enterRW(q, "s", Write|Shared), enterRW(q, "s", Read|Shared), enterRW(q, "s", Write|Shared)
		writes.cancel()
		requireOutcome(t, Cancelled, writes)
		q.ExitWrite("a")
		requireOutcome(t, Admitted, reads)
		requireOutcome(t, Upgrade, again)
	})
}

// A try to read may fail, so a claim to write by the same owner waits behind it. If the try succeeds, the claim to write is
// an upgrade.
func TestATryThatReadsEndsItsOwnersClaimToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for units, want := range map[int]Outcome{1: Upgrade, 0: Waiting} {
			q, _ := newRW(0)
			try, writes := enterRW(q, "s", Read|Shared|Once), enterRW(q, "s", Write|Shared)
			requireOutcome(t, Waiting, writes)
			if units == 1 {
				q.Settle(terms0(1))
				requireOutcome(t, Admitted, try)
			} else {
				q.EndTries(0)
				requireOutcome(t, Busy, try)
			}
			requireOutcome(t, want, writes)
			if want == Waiting {
				writes.cancel()
				requireOutcome(t, Cancelled, writes)
			}
		}
	})
}

// If the units are no longer trusted, an owner that is inside waits in line to enter again. When the units are trusted again,
// this owner must not wait for claims that wait for the owner.
func TestOwnersInsideEnterAgainWhenTheUnitsAreTrustedAgain(t *testing.T) {
	again := map[string]func(q *RW[string]){
		"renewed": func(q *RW[string]) { q.Trust(3 * hour) },
		"settled": func(q *RW[string]) {
			t := terms0(q.units)
			t.Until = 3 * hour
			q.Settle(t)
		},
	}
	for name, trust := range again {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, c := newRW(1)
				q.TryRead("a")
				other := enterRW(q, "b", Write)
				c.time = 2 * hour
				reads := enterRW(q, "a", Read)
				requireOutcome(t, Waiting, reads)
				trust(q)
				requireOutcome(t, Reentered, reads)
				requireOutcome(t, Waiting, other)
				other.cancel()
				requireOutcome(t, Cancelled, other)

				q, c = newRW(All)
				q.TryWrite("a")
				c.time = 2 * hour
				writes, newcomer := enterRW(q, "a", Write), enterRW(q, "b", Read)
				requireOutcome(t, Waiting, writes)
				trust(q)
				requireOutcome(t, Reentered, writes)
				requireOutcome(t, Waiting, newcomer)
				newcomer.cancel()
				requireOutcome(t, Cancelled, newcomer)

				q, c = newRW(All)
				q.TryWrite("s")
				q.TryRead("s")
				c.time = 2 * hour
				upgrade := enterRW(q, "s", Write|Shared)
				q.ExitWrite("s")
				requireOutcome(t, Waiting, upgrade)
				trust(q)
				requireOutcome(t, Upgrade, upgrade)
			})
		})
	}
}

package localqueue

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultDropGrant        = "drop-late-grant"          // a waiter that is cancelled after its grant drops the baton
	faultKeepCancelled    = "keep-cancelled-waiter"    // a cancelled waiter stays in line
	faultLIFO             = "last-in-first-out"        // the newest waiter is served first
	faultGrantTwice       = "grant-twice"              // two waiters are granted the baton
	faultRecycleEarly     = "recycle-early"            // a node serves again before its waiter has woken
	faultForgetSiblings   = "forget-siblings"          // settling does not let in waiters of the same shared owner
	faultForgetBegin      = "forget-begin"             // callers of Begin are not woken when the hold ends
	faultEvictBusy        = "evict-busy-holder"        // a holder with an operation under way is evicted
	faultOvertakeAlways   = "overtake-without-bound"   // a barging waiter is overtaken without bound
	faultReserveNoTurn    = "reserve-without-turn"     // a reservation that gets the baton at once never has its turn
	faultReserveShut      = "reserve-after-shut"       // a place is reserved in a line that is shut
	faultReserveOffer     = "reserve-takes-offer"      // a reservation takes a baton that is offered to another waiter
	faultReserveNoSibling = "reserve-without-siblings" // a waiter is not linked to the others of its shared owner
)

// misgrantLocked seeds the faults that concern a grant. q.mu is held.
func (q *Queue[K]) misgrantLocked(w *waiter[K]) {
	if fault == faultRecycleEarly {
		q.granted = nil
		q.recycleLocked(w)
	}
	if next := q.line.first; fault == faultGrantTwice && next != nil {
		q.dequeueLocked(next)
		next.wake(0)
	}
}

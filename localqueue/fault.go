package localqueue

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultLostGrant    = "lostgrant"    // cancelled but granted, a waiter drops the baton
	faultGhost        = "ghost"        // a cancelled waiter stays in line
	faultLIFO         = "lifo"         // the last in line is first
	faultDoubleGrant  = "doublegrant"  // two waiters are told that the baton is theirs
	faultEarlyRecycle = "earlyrecycle" // a node serves again before its waiter has woken
	faultDeafKin      = "deafkin"      // settling forgets those who wait for the same shared owner
	faultDeafOps      = "deafops"      // those in Begin are not told that the hold is gone
	faultEvictBusy    = "evictbusy"    // a holder at work is evicted
	faultGreedy       = "greedy"       // who competes is overtaken without bound
	faultUnturned     = "unturned"     // a place that gets the baton at once is not given its turn
	faultStraggler    = "straggler"    // a place is taken in a line that is shut
	faultSnatch       = "snatch"       // a place takes a baton that is offered to another
	faultEstranged    = "estranged"    // a place is not kin to the other waiters of its shared owner
)

// misgrantLocked seeds the faults that concern a grant. q.mu is held.
func (q *Queue[K]) misgrantLocked(w *waiter[K]) {
	if fault == faultEarlyRecycle {
		q.granted = nil
		q.recycleLocked(w)
	}
	if next := q.line.first; fault == faultDoubleGrant && next != nil {
		q.dequeueLocked(next)
		next.wake(0)
	}
}

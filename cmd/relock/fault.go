package main

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultLate     = "late"     // the command is told to end when the lease is over, not before
	faultAlone    = "alone"    // only the command is killed, not what it started
	faultLeftover = "leftover" // the lock is given back while what the command started still runs
	faultShort    = "short"    // the command begins with whatever lease the lock came with
	faultOrder    = "order"    // that the lock stays taken is said before how it went
	faultConflict = "conflict" // -E is not heeded
	faultNull     = "null"     // a hold ends when its input is /dev/null
	faultSilent   = "silent"   // nothing is said while the lock is waited for
)

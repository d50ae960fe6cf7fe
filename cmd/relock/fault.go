package main

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultLate     = "late"     // the command is told to end when the lease is over, not before
	faultAlone    = "alone"    // only the command is killed, not what it started
	faultLeftover = "leftover" // the lock is given back while what the command started still runs
	faultShort    = "short"    // the command begins with whatever lease the lock came with
)

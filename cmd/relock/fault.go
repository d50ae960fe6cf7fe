package main

// Seeded faults, to show that the tests would notice. A build with the tag mutant_relock_<name> has that one fault; in
// all other builds fault is a constant and the code is not there. MUTANTS lists which tests must fail.
const (
	faultLate     = "late"     // the command is told to end when the lease is over, not before
	faultAlone    = "alone"    // only the command is killed, not what it started
	faultLeftover = "leftover" // the lock is given back while what the command started still runs
	faultShort    = "short"    // the command begins with whatever lease the lock came with
)

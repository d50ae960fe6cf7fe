package main

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultDebt  = "debt"  // signals that died with a process are not made up for
	faultFence = "fence" // all holds carry the same token
)

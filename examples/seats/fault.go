package main

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultFence = "fence" // the row refuses no token
	faultLook  = "look"  // who has the lock is taken for the first
	faultEnds  = "ends"  // paying does not prolong the hold
)

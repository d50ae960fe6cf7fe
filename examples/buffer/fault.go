package main

// Seeded faults, to show that the tests would notice. A build with the tag mutant_buffer_<name> has that one fault; in
// all other builds fault is a constant and the code is not there. MUTANTS lists which tests must fail.
const (
	faultDebt  = "debt"  // signals that died with a process are not made up for
	faultFence = "fence" // all holds carry the same token
)

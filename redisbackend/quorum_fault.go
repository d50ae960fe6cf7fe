package redisbackend

// Seeded faults, quorum/<name> for package mutant, for the tests that MUTANTS lists.
const (
	quorumFaultMajority  = "majority"  // half of the nodes, rounded down, is enough
	quorumFaultWriteback = "writeback" // the highest token is not written back
	quorumFaultKeep      = "keep"      // what a vote that failed has got is kept
	quorumFaultElapsed   = "elapsed"   // the time that a vote took does not count
	quorumFaultSpent     = "spent"     // a node is asked again for an attempt that was given back there
	quorumFaultOvertake  = "overtake"  // a copy is sent although what gives it up was quicker
	quorumFaultSteal     = "steal"     // a hold is put back although the majority does not have it
	quorumFaultOrphan    = "orphan"    // a hold is put back although it has been given up
	quorumFaultCertain   = "certain"   // a copy that was not answered is not doubted
	quorumFaultGap       = "gap"       // a hold is put back although the majority's may have ended since
	quorumFaultTwins     = "twins"     // one server counts as two nodes
)

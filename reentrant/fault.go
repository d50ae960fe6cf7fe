package reentrant

// Seeded faults, to show that the tests would notice. A build with the tag mutant_reentrant_<name> has that one fault;
// in all other builds fault is a constant and the code is not there. MUTANTS lists which tests must fail.
const (
	faultLategrant = "lategrant" // a lease counts from when the answer came, not from when it was asked for
	faultAnygrant  = "anygrant"  // a grant is believed whatever attempt it names
	faultLostbaton = "lostbaton" // a caller that gives up frees neither the baton nor its place
	faultOrphan    = "orphan"    // what a cancelled attempt has in Redis is not given back
	faultDeadctx   = "deadctx"   // Unlock sends its release under the caller's context
	faultShift     = "shift"     // a repeated attempt is a new one, with a new epoch
	faultDeaf      = "deaf"      // a grant does not wake the head
	faultNorenew   = "norenew"   // nothing is renewed
	faultSpent     = "spent"     // a signal that came before the cancel is taken for a cancel
	faultForgetful = "forgetful" // an owner comes back from a condition with one hold
	faultCredulous = "credulous" // a hold is believed for ever
	faultTwintoken = "twintoken" // owners of a cohort have the same token
	faultTail      = "tail"      // a cohort gives its last used token back with the unused ones
	faultStubborn  = "stubborn"  // a session keeps a lock that another has asked for
	faultHasty     = "hasty"     // a deadlock over sessions is believed when it is first seen
	faultDaydream  = "daydream"  // a cohort re-enters a hold that was lost
)

package redisbackend

// Seeded faults of the client's part, to show that the tests would notice: redisclient/<name> for package mutant. MUTANTS
// lists which tests must fail. More faults in the scripts are in scripts_mutants.go.
const (
	faultDeafshard = "deafshard" // a lock's channel that is lost is not missed
	faultStayshard = "stayshard" // a lock's channel is not followed to another node
	faultEternal   = "eternal"   // a lock's channel is never closed
	faultStay      = "stay"      // the session's channel stays at the old master
	faultOnebad    = "onebad"    // a node that hangs takes all the time there is for renewals
	faultQuote     = "quote"     // an error quotes the URL
	faultPlain     = "plain"     // a name may be a side key's
	faultJoined    = "joined"    // nothing tells where a condition's name ends
	faultBus       = "bus"       // what was heard on the node goes over the bus too
	faultSilence   = "silence"   // what nobody heard on the node does not
	faultShardtag  = "shardtag"  // a lock's channel is not in its slot
	faultSignalbus = "signalbus" // a condition's signal always goes over the bus
	faultUnwatched = "unwatched" // without scripts, what others change meanwhile is overwritten
	faultStraddle  = "straddle"  // without scripts, an answer may be half from before and half from after a change
	faultAnytoken  = "anytoken"  // a message's tokens are believed, however high
	faultUncounted = "uncounted" // tokens are sent that Lua cannot read
	faultRounded   = "rounded"   // Lua rounds epochs
	faultFull      = "full"      // without scripts, a full server renews nothing
	faultHalf      = "half"      // without scripts, what fails inside a transaction is not noticed

	faultNoPatience = "no-patience" // a server that lacks replicas refuses for good

	faultUnreplicatedResume = "unreplicated-resume" // Resume does not wait for the replicas
	faultIgnoreJump         = "ignore-jump"         // a clock that jumps is taken for nothing more than a new sample
)

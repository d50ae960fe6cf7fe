package reentrant

// Seeded faults, to show that the tests would notice; package mutant says how to have one. MUTANTS lists which tests
// must fail.
const (
	faultLategrant  = "lategrant"          // a lease counts from when the answer came, not from when it was asked for
	faultAnygrant   = "anygrant"           // a grant is believed whatever attempt it names
	faultLostbaton  = "lostbaton"          // a caller that gives up frees neither the baton nor its place
	faultOrphan     = "orphan"             // what a cancelled attempt has in Redis is not given back
	faultDeadctx    = "deadctx"            // Unlock sends its release under the caller's context
	faultShift      = "shift"              // a repeated attempt is a new one, with a new epoch
	faultDeaf       = "deaf"               // a grant does not wake the head
	faultNorenew    = "norenew"            // nothing is renewed
	faultSpent      = "spent"              // a signal that came before the cancel is taken for a cancel
	faultForgetful  = "forgetful"          // an owner comes back from a condition with one hold
	faultCredulous  = "credulous"          // a hold is believed for a year more
	faultTwintoken  = "twintoken"          // owners of a cohort have the same token
	faultTail       = "tail"               // a cohort gives its last used token back with the unused ones
	faultStubborn   = "stubborn"           // a session keeps a lock that another has asked for
	faultHasty      = "hasty"              // a deadlock over sessions is believed when it is first seen
	faultSleepless  = "sleepless"          // nobody notices that the machine slept
	faultOversleep  = "oversleep"          // a head that waits is silent for a lease
	faultDaydream   = "daydream"           // a cohort re-enters a hold that was lost
	faultUnburied   = "unburied"           // Await leaves no tombstone for copies of its attempt
	faultPanicky    = "panicky"            // a renewal that crosses Await takes the hold for lost
	faultAmnesia    = "amnesia"            // those who asked for the loss of a hold are forgotten when Await gives it up
	faultJostle     = "jostle"             // those who were signalled queue up as their goroutines happen to run
	faultFidgety    = "fidgety"            // every new waiter puts the vigil's beat off
	faultDrowsy     = "drowsy"             // a reopened channel does not wake the vigil
	faultFirstbatch = "signal-first-batch" // SignalAll wakes the first batch of waiters alone
	faultCurt       = "curt"               // only the first tickets of a condition are shown
	faultIngrate    = "ingrate"            // signals are never acknowledged
	faultTrusting   = "trusting"           // a MultiLock does not look whether it lost one while it waited for another
	faultHoarder    = "hoarder"            // a signal is acknowledged although its owner cannot come back
	faultHeirloom   = "heirloom"           // what was left to one who gives up is left to whoever uses the entry next
	faultHomesick   = "homesick"           // nobody asks after a hold that moved while the channel was closed
	faultHeedless   = "heedless"           // that a hold has moved is forgotten if it was not known to have begun
	faultOverfull   = "overfull"           // an owner comes back from a condition with more holds than there can be

	faultRepeatOutage  = "repeat-outage"  // every try during an outage is logged
	faultThreeTries    = "three-tries"    // Unlock asks three times, however soon that is
	faultForgetRelease = "forget-release" // a release that was not confirmed is not sent again in the background
)

// Of the session's core.
const (
	faultLateLook  = "late-look"        // TryLock looks for a clean-up after the baton was refused
	faultTimeless  = "timeless-reentry" // a cohort re-enters without a look at the clock
	faultUncarried = "uncarried"        // the context of Do does not carry its owner
	faultNameless  = "nameless"         // any name of an owner or a condition will do
	faultTardy     = "tardy-release"    // an observer is told of a release after the next owner could be reported
	faultBrittle   = "brittle-observer" // a panic of the observer is not caught
	faultStifled   = "stifled"          // the observer is called by whoever has an event
	faultShutOut   = "shut-out"         // an owner cannot re-enter when its session is being closed
	faultRash      = "rash-verify"      // Verify takes a hold that is being given up for lost

	faultHollowMulti    = "multilock-is-held-in-part"      // a MultiLock counts as held if one of its locks is
	faultTryAnyHoards   = "tryany-keeps-all"               // TryAnyFor keeps every lock that it got
	faultTryAnyNests    = "tryany-reenters"                // TryAny takes a lock that the caller has already for a free one
	faultEmptyMultiLock = "empty-multilock-is-heedless"    // a MultiLock of nothing does not look at the context
	faultBelieveReplies = "believe-impossible-replies"     // what a backend answers is not looked at
	faultHandleLease    = "await-takes-lease-of-handle"    // an owner comes back from a condition with the lease of the condition's Lock
	faultMixedHandles   = "multilock-of-mixed-handles"     // of two handles of a name with different options a MultiLock takes the first
	faultFixedDeadlock  = "report-deadlock-of-fixed-lease" // a cycle is a deadlock although a hold in it ends by itself

	faultCleanerHolds     = "clean-up-is-an-owner"      // who waited for a clean-up is told that another has the lock
	faultForgetFirst      = "tryany-forgets-first-pass" // TryAnyFor forgets that its first tries may have got a lock
	faultEndlessCleanUp   = "endless-clean-up"          // TryLock waits for a clean-up as long as that takes
	faultBoundlessOptions = "boundless-options"         // leases may be longer, and heartbeats shorter, than can be counted
	faultPatientTry       = "patient-trylock"           // TryLock asks for re-entry until the hold is lost
)

// Of ends: of waits, calls and sessions.
const (
	faultSharedcrew  = "delay-by-hung-clean-ups"   // clean-ups of a node that hangs keep those of others waiting
	faultSummonagain = "repeat-clean-ups"          // a hold that lingers too long is sent a clean-up every second
	faultSlowclose   = "close-waits-for-commands"  // Close waits for commands without an answer after its context has ended
	faultIdleclose   = "close-ignores-its-context" // Close waits for holders after its context has ended
	faultEndlesswait = "wait-without-end"          // an owner that comes back from a wait tries for ever
	faultBareTimeout = "bare-timeouts"             // a command's own limit looks like the end of the caller's context
)

// Of clocks.
const (
	faultNoRefresh  = "no-refresh"  // another server does not have the leases renewed at once
	faultBlindFixed = "blind-fixed" // another server, or a sleep, does not have fixed leases asked for
	faultTrustTTL   = "trust-ttl"   // a lease is believed although Redis says that less is left
)

// Package history records the operations of processes on locks, and checks whether locks may behave like that.
//
// Each process writes its operations to a file of its own ([Log]), with the machine's monotonic clock, which all
// processes share. [Judge] reads them together and compares them with a model: a lock that is re-entrant, fenced and
// leased.
//
// # What must hold
// A hold lasts from an owner's outermost acquire to its last Unlock. For each lock there must be one order
// of all operations, each within the time between its call and its return, in which
//
//   - a lock is taken only when no owner holds it, and taken again only by its holder;
//   - a token is higher than all before, and re-entry keeps it;
//   - an operation that shows a hold (re-entry, Verify, IsHeldByCurrentOwner that returns true, an Unlock without error)
//     is the holder's;
//   - a hold ends by Unlock. By itself it ends at most once, no sooner than a lease can end, and no later than its
//     owner learns of the loss, if it does.
//
// So an owner that never learns of a loss, and whose Unlock succeeds, was alone all the time. An owner that learns of a loss
// may have lost the lock to another owner, but only after the shortest time in which a lease can end, and not while operations
// still showed it the hold.
//
// # Unknown outcomes
//
// An acquire that returned an error, or never returned because its process died, holds nothing that an owner could use. It may
// have been executed at any later time. Then it only keeps other owners out, and their operations are legal without it, too. So
// the model leaves the acquire out. For the same reason the hold of a dead process ends as soon as its lease can have ended, or
// its Unlock can have been executed: a later end would allow nothing more. This keeps the check fast and strict: operations
// that may happen at any later time hide faults, because they explain too much.
// An Unlock of unknown outcome ends the hold for its owner, whether Redis executed it or not.
//
// # When Redis forgets
//
// A flush, or a restart without persistence, frees all locks without notice ([History].Forgets). A hold from before may then be
// shown to its owner for at most one lease, by calls that do not ask Redis: IsHeldByCurrentOwner may return true, and the last
// Unlock may succeed, if it keeps the lock for the next owner of the process without a command. Re-entry and Verify ask Redis,
// and must fail. Tokens must rise nevertheless. In cohort mode processes ask less often, so only the tokens are judged
// ([History].Local): for one lease a process may go on with a block of tokens from before. These tokens rise, but may be lower
// than tokens that other processes have got since. A resource that has seen the higher tokens refuses the lower ones.
//
// A failover forgets as much of the last writes as the replica lacked ([Span].Partly), so a hold may be forgotten or kept. It
// was kept if its owner re-enters it afterwards: that extends the lease, and then no other owner can have the lock. A hold that
// Verify confirms exists, but for one lease it may end sooner than its owner expects, because the replica may lack a renewal.
// What Redis forgot earlier, the replica must have forgotten, too: in this model no failover brings back a hold from before a
// flush.
//
// # Shared holds
//
// Read-write locks and semaphores are judged by [JudgeShared]. There a hold is certain only from the end of the call that took
// it to the beginning of the last look that found the hold's Lost channel open. At no moment may more units be certainly in use
// than exist, except within a lease after Redis forgot: then sessions use what they have without asking. An owner whose hold
// was lost finds its channel closed. Every acquire is followed by one Unlock that returns nil or ErrLost.
//
// Tokens are even, versions are odd, and both rise together in the one order of reads and writes: two reads of one version
// have no write between them. The judge searches for that order only where Redis forgets nothing.
package history

// Package history records what processes did with locks, and judges whether locks may behave like that.
//
// Each process writes its operations to a file of its own ([Log]), with the machine's monotonic clock, which all
// processes share. [Judge] reads them together and holds them against a model: a lock that is re-entrant, fenced and
// leased.
//
// # What must hold
//
// A hold is what an owner has between its outermost acquire and the last Unlock. For each lock there must be one order
// of all operations, each within the time between its call and its return, in which
//
//   - a lock is taken only when nobody holds it, and taken again only by its holder;
//   - a token is higher than all before, and re-entry keeps it;
//   - what shows a hold (re-entry, Verify, IsHeldByCurrentOwner that answers true, an Unlock without error) is done by
//     the holder;
//   - a hold ends by Unlock. By itself it ends at most once, no sooner than a lease can end, and no later than its owner
//     is told, if it is told.
//
// So an owner that is never told of a loss, and whose Unlock succeeds, was alone all the time. An owner that is told
// may have been robbed, but not before the shortest time for which a lock is had, and not while it was still shown the
// hold.
//
// # Unknown outcomes
//
// An acquire that returned an error, or never returned because its process died, holds nothing that anybody could use.
// It may have been executed at any later time, but then only keeps others out; whatever others then did is legal
// without it too. So it is left out. The same reasoning ends the hold of a dead process as soon as its lease can have
// ended, or its Unlock can have been executed: a later end would allow nothing more. This is what keeps the judging
// fast and sharp. Operations that may happen at any later time hide faults, because they explain too much.
//
// An Unlock of unknown outcome ends the hold for its owner whatever became of it in Redis.
//
// # When Redis forgets
//
// A flush, or a restart without persistence, frees all locks and tells nobody ([History].Forgets). A hold from before
// may then be shown to its owner for one lease more at most, as long as Redis is not asked: IsHeldByCurrentOwner may
// answer true, and the last Unlock may succeed, which keeps the lock for the next owner of the process without asking.
// Re-entry and Verify ask, and must fail. Tokens must rise all the same. In cohort mode processes ask less, and only the
// tokens are judged then ([History].Local): for one lease a process may go on with a block from before, so that its tokens
// rise but may be lower than those that others were given since, and what has seen these refuses them.
//
// A failover forgets as much of the last writes as the replica lacked ([Span].Partly), so a hold is forgotten or it is not.
// It is not if its owner enters it again afterwards, which prolongs the lease, and then nobody else can have the lock. What
// Verify shows is there, but for a lease it may end sooner than its owner thinks: the replica may lack a renewal. And what
// Redis forgot before, the replica must have forgotten too: here no failover brings back a hold from before a flush.
//
// # Shared holds
//
// Read-write locks and semaphores are judged by [JudgeShared]. There a hold is certain only from the end of the call that
// took it to the beginning of the last look at it that found its Lost channel open. At no moment there is more in use for
// certain than there is, except for a lease after Redis forgot: sessions use what they have without asking. An owner whose
// hold is gone finds its channel closed. Every acquire is followed by one Unlock that answers nil or ErrLost.
//
// Tokens are even, versions are odd, and both rise together in the one order of reads and writes: two reads of one version
// have no write between them. That order is searched for where Redis forgets nothing.
package history

// Package reentrant is a distributed lock that behaves like java.util.concurrent.locks.ReentrantLock and asks Redis
// only what this process cannot decide itself.
//
//	session, err := relock.Open(ctx, "redis://localhost:6379") // one for each process; or NewSession, with a backend
//	if err != nil {
//		return err
//	}
//	defer session.Close(ctx) // ctx has a time limit
//	return session.NewLock("account:7").Do(ctx, transfer) // transfer gets a context that ends if the lock is lost
//
// [Lock.TryDo] skips the work if the lock is taken, and [Lock.TryDoFor] waits for a limited time first. A [Lock] has
// conditions, as in Java; an [RWLock] is for many readers, a [Semaphore] for at most n users at a time, and a [MultiLock]
// takes several locks together.
//
// # How it works
//
//	process A                                 Redis                                process B
//	┌───────────────────────┐   ┌──────────────────────────────────────┐   ┌───────────────────────┐
//	│ g7 ◀─ g9 ◀─ g12       │   │ orders     {A:7 → 2}      TTL 10 s   │   │ g4 ◀─ g5              │
//	│ ▲ holds               │──▶│ record     token, A, epoch           │◀──│ ▲ head: parked until  │
//	│ local queue of orders │   │ queue      B                         │──▶│   the lock is pushed  │
//	└───────────────────────┘   └──────────────────────────────────────┘   └───────────────────────┘
//
// Goroutines of one process queue in a local FIFO (package localqueue). Only the head of the queue talks to Redis,
// where the lock is a hash: field = owner, value = hold count. A process whose head finds the lock taken gets a
// place in Redis, and when its turn comes the lock is pushed to it, already taken. All other waiters cost Redis
// nothing.
//
// # Ownership and re-entry
//
// The owner of a lock is the calling goroutine, or the name that [WithOwner] put in the context. Its holds are
// counted, and only it can unlock. A child goroutine is not its parent: it waits. Owners of two sessions are never the same,
// unless they are portable ([WithPortableOwner]).
//
// # Life of a Lock call
//
//  1. The caller joins the local queue. If it already holds the lock, Redis adds one hold and that is all.
//  2. The baton reaches it: it is the head, the only goroutine of this process that sends commands for this lock.
//  3. It sends acquire with a new epoch, the number of the attempt. One command takes the lock, or takes it over
//     from this process's last holder, or takes a place behind other processes.
//  4. In the last case it parks. It wakes when the lock is pushed to it (which costs no command), and at every
//     heartbeat, to show that it is alive and to ask Redis again.
//  5. If Redis granted the lock, the caller holds it, and not before. If Redis refused, or did not answer before the
//     context ended, the baton goes to the next in the queue, and the session releases what the attempt may have got.
//
// # Trust window
//
// A hold is trusted for as long as Redis cannot have given the lock away, by local, monotonic time:
//
//	trustedUntil = sentAt + lease − margin
//
// where sentAt is the time just before the command was sent that acquired or renewed it, or, for a lock that was
// pushed, the earliest local time at which Redis can have made the grant. The margin is 1 % and 2 ms, for clocks that run at
// different speeds. Two properties follow: a slow reply only shortens the window, and without a reply it ends on time. At
// trustedUntil, whatever is in flight, [Lock.Lost] closes, the context of [Lock.Do] ends with cause [ErrLost], and Unlock
// returns ErrLost. No wall clock takes part, with one exception: when it jumps ahead of the monotonic one, the machine may
// have been suspended (which stops the latter in most systems). Then the trust in every earlier lease is shortened by that
// jump, to no less than a ninth of the lease if the session can renew it, and the session asks Redis at once to confirm its
// holds.
//
// The watchdog renews all leases of a session in one batch, every third of their length. It cannot stop a process that does
// not run: a process that was paused past its lease learns of the loss when it wakes, and its late writes carry an old
// [Token].
//
// # Hand-off
//
// Unlock with others waiting in this process sends nothing: the next owner takes the lock over in Redis with its
// own first command. So a contended section costs one command. This goes on for 64 sections, or with long sections until
// each owner that waited at the beginning has had the lock, for at most 50 ms (see [WithTurn]); then, if another process
// waits, the command gives the lock to that process, and queues this process behind it.
//
// Three examples of how long a waiter waits:
//
//   - Two goroutines, one process: they alternate, as with a fair ReentrantLock.
//   - Two busy processes: each has the lock for a turn. A waiter waits for those before it in its own queue, and
//     for one turn of the other process per turn of its own.
//   - A lone waiter in B while A has a hundred: it waits for the rest of A's turn, at most 64 sections and no
//     longer than the time limit plus one section, not for the hundred.
//
// TryLock barges: it takes a free lock past waiters. Re-entry never waits.
//
// # Conditions
//
// [Condition.Await] gives up all holds and takes a ticket in Redis, in one step; it waits, takes the lock again with as
// many holds, and only then returns. [Condition.Signal] moves the waiter that has waited longest in the deployment to the end
// of the lock's queue: the waiter gets the lock by a push, after the signaller's Unlock. Redis decides whether a
// cancellation or the signal came first. A waiter whose process has died is passed over, and a signal that such a
// process did not receive goes to the next waiter.
//
// # What a late message cannot do
//
// Every attempt has an epoch from one counter of its session, and Redis keeps it beside what the attempt got. So:
// an old acquire is refused when Redis has replied to a newer attempt, or after the time limit that it carries; an old
// release removes nothing that a newer attempt got; an old renewal or re-entry finds another epoch and changes
// nothing; a repeated message changes nothing either. A grant is believed only by the attempt that it names, and only while
// that attempt waits. Any other grant is given back.
//
// # When Redis is slow, gone, or failed over
//
// Waiting callers keep trying until their context ends. The session tries to renew holds until trustedUntil. Unlock
// tries for the length of the lease, at most 6 seconds, and then returns an error, with [OutcomeUnknown] if the lock
// may have been released; the session keeps trying for a minute, and the lock is free within the lease. A refusal by
// Redis (a wrong password, a missing right) is returned at once, in Redis's words. If Redis forgot the lock, by a flush
// or a failover that lost writes, holders learn of it at their next renewal, and tokens still rise.
//
// # What is not promised
//
// No lock that expires can promise exclusion to a process that was stopped past its lease, so let the protected resource
// check the [Token]. If Redis's memory of a lock is destroyed while it is held, another may get it before the holder's
// next renewal. Order across processes is by the arrival of their heads, not of each goroutine.
package reentrant

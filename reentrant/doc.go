// Package reentrant is a distributed lock that behaves like java.util.concurrent.locks.ReentrantLock and asks Redis
// only what this process cannot answer itself.
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
// place in Redis, and when its turn comes the lock is pushed to it, already taken. Everybody else costs Redis
// nothing.
//
// # Ownership and re-entry
//
// The owner of a lock is the calling goroutine, or the name that [WithOwner] put in the context. Its holds are
// counted, and only it can unlock. A child goroutine is not its parent: it waits. Owners of two sessions are never
// the same.
//
// # Life of a Lock call
//
//  1. The caller joins the local queue. If it already holds the lock, Redis adds one hold and that is all.
//  2. The baton reaches it: it is the head, the only goroutine of this process that sends commands for this lock.
//  3. It sends acquire with a new epoch, the number of the attempt. One command takes the lock, or takes it over
//     from this process's last holder, or takes a place behind other processes.
//  4. In the last case it parks. It wakes when the lock is pushed to it (which costs no command), and at every
//     heartbeat to say that it is alive and to look for itself.
//  5. Redis said yes: only now does the caller hold the lock. Redis said no, or nothing, and the context ended: the
//     baton goes to the next in the queue, and what Redis may have is given back.
//
// # Trust window
//
// A hold is believed for as long as Redis cannot have given the lock away, by local, monotonic time:
//
//	trustedUntil = sentAt + lease − margin
//
// where sentAt is before the command that got or renewed it was sent, or, for a lock that was pushed, the earliest
// local moment that Redis's time of the grant can mean. The margin is 1 % and 2 ms, for clocks that run at
// different speeds. Two properties follow: a slow answer only shortens the window, and no answer at all ends it on
// time. At trustedUntil, whatever is in flight, [Lock.Lost] closes, the context of [Lock.Do] ends with cause
// [ErrLost], and Unlock returns ErrLost. No wall clock takes part, with one exception: when it jumps ahead of the
// monotonic one, the machine may have been suspended (which stops the latter in most systems). Then every lease from
// before is shortened by that jump, and Redis is asked at once; what it does not confirm is lost within a ninth of the
// lease.
//
// The watchdog renews every third of the lease, all locks of a session in one batch. What it cannot do is stop a
// process that does not look: one that was paused past its lease finds out when it wakes, and its late writes carry
// an old [Token].
//
// # Hand-off
//
// Unlock with others waiting in this process sends nothing: the next owner takes the lock over in Redis with its
// own first command. So a contended section costs one command. This goes on for one generation of the local queue
// (or a few milliseconds, see [WithHandoffs] and [WithHandoffTime]); then, if another process waits, the same
// command gives the lock to it and queues this one behind.
//
// Three stories about how long one can wait:
//
//   - Two goroutines, one process: they alternate, as with a fair ReentrantLock.
//   - Two busy processes: each has the lock for a turn. A waiter waits for those before it in its own queue, and
//     for one turn of the other process per turn of its own.
//   - A lone waiter in B while A has a hundred: it waits for the rest of A's turn, at most 64 sections and no
//     longer than the time limit plus one section, not for the hundred.
//
// TryLock barges: it takes a free lock past those who wait. Re-entry never waits.
//
// # Conditions
//
// [Condition.Await] gives up all holds in one step with taking a ticket in Redis, waits, takes the lock again with as
// many holds, and only then returns. [Condition.Signal] moves the longest waiter of the deployment to the queue of the
// lock, as if its head had just come: it gets the lock by a push, after the signaller's Unlock. Whether a cancel or the
// signal came first is decided in Redis. A waiter whose process has died is passed over, and a signal that such a
// process did not hear goes to the next.
//
// # What a late message cannot do
//
// Every attempt has an epoch from one counter of its session, and Redis keeps it beside what the attempt got. So:
// an old acquire is refused when a newer attempt was answered, or after the time it named when it was sent; an old
// release removes nothing that a newer attempt got; an old renewal or re-entry finds another epoch and changes
// nothing; a repeated one changes nothing either. A grant is believed only by the attempt that it names, while that
// waits; any other is given back.
//
// # When Redis is slow, gone, or failed over
//
// Waiting callers go on trying until their context ends. Holders are renewed again and again until trustedUntil.
// Unlock tries for the length of the lease, at most 6 seconds, and then reports an error, with [OutcomeUnknown] if it may
// have been done; the session goes on trying for a minute, and the lock is free within the lease. What Redis refuses (a wrong password, a missing right) is returned at once in its own words. A Redis
// that forgot the lock, by a flush or a failover that lost writes, makes holders learn of it at their next renewal, and
// tokens rise all the same.
//
// # What is not promised
//
// No lock that expires can promise exclusion to a process that was stopped past its lease: let what is protected
// check the [Token]. If Redis's memory of a lock is destroyed while it is held, another may get it before the
// holder's next renewal. Order across processes is by the arrival of their heads, not of each goroutine.
package reentrant

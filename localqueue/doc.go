// Package localqueue hands one baton from goroutine to goroutine, first come, first served, and counts holds by
// owner. It is the part of a distributed lock that never leaves the process: no network, no clock, no goroutines
// of its own. It is also, used alone, a fair re-entrant lock ([Queue.Acquire], [Queue.Release]).
//
// # It is a mutex and a list
//
// A [Queue] is a small mutex around a doubly linked list, and every waiter parks on a channel of its own. It is not
// a lock-free CLH queue, because waiters here leave from the middle, by cancellation and by timeout. Repairing the
// links of a lock-free list while that happens has taken the best known implementation, that of java.util.concurrent,
// two decades of corrections. The mutex is held for some ten nanoseconds; the hand-over of a baton costs ten times
// that, whatever the list.
//
// Channels, and not a condition variable, because a goroutine must be able to wait for its turn and for its
// cancellation at once; and because a testing/synctest bubble then knows who is blocked.
//
//		                        the line, longest waiter first
//
//		   the baton     ┌───┐      ┌───┐      ┌───┐
//		  (owner,holds)  │ a │ ◀──▶ │ b │ ◀──▶ │ c │ ◀── enqueue
//		       │         └─┬─┘      └─┬─┘      └─┬─┘
//		       │           ▼          ▼          ▼
//		       └─────▶  channel    channel    channel     each with a buffer of one
//		     hand-over
//
//	  - Enqueue: whoever finds the baton out links a node at the end of the line and receives from its channel.
//	  - Hand-over: whoever gives the baton up makes the first in line its owner, unlinks that node and sends to its
//	    channel, all under the mutex, so the baton never lies free while somebody waits and no late caller can
//	    overtake.
//	  - Cancellation: a waiter that wants to leave takes the mutex and looks: still linked, it unlinks itself and was
//	    cancelled; no longer linked, it was granted the baton before it could leave, and has it.
//
// That last line is the whole of the race between cancellation and grant: being linked is the one fact both sides
// look at, and both look under the mutex.
//
// # The life of a baton
//
// The claimant of the baton is not yet the holder of anything: in the lock built on top, it is the one goroutine of
// the process that now asks the server. Only the answer makes it settle with a hold count.
//
//	           Claim                   Settle(n)
//	free ─────────────────▶  busy  ─────────────────▶ settled
//	 ▲                       │ ▲ ▲                     │   │
//	 │ Leave, nobody waits   │ │ └─────────────────────┘   │
//	 ├───────────────────────┘ │  Begin, Claim (re-entry)  │
//	 │                         │                           │
//	 │   Pass, Leave, Evict: the longest waiter has it     │
//	 │                                                     │
//	 └─────────────────────────────────────────────────────┘
//	                 Evict, nobody waits
//
// Busy means that one goroutine is at work with it: a claimant without holds, or an operation of the holder. One
// goroutine at a time, even when several act for one owner. A settled hold that needs no such work is counted up
// and down in place ([Queue.Reenter], [Queue.Exit]).
//
// # Owners
//
// An owner that holds the baton gets in again at once, past everybody in line; it must, or it would wait for
// itself. An owner that only one goroutine at a time acts for needs nothing more. A shared owner may have several
// goroutines in line when one of them gets the baton: as soon as it settles, they are let in one after the other,
// each as soon as the one before has settled. Those in line for a shared owner are therefore also found by owner.
// For other owners that map is never touched.
//
// # Fairness, by example
//
// Two goroutines that lock and unlock in a loop alternate strictly: the one that gives the baton up is behind the
// other before it can ask again. With a hundred in line, the one at the end waits for a hundred sections, whoever
// else arrives. Nobody gets in by trying often: [Queue.TryClaim] takes a baton that is free, and it is free only
// when nobody waits. The one thing that lengthens a wait is the holder's own re-entry.
//
// # Memory
//
// What a goroutine did before it gave the baton up (Pass, Leave, Evict, the last Release) happens before the next
// claim of it returns; so does what it did before it settled, for the next goroutine of the same owner. This is
// a promise about this process alone. Processes that meet at a server have no happens-before between them.
//
// The mutex is a leaf: nothing is called, locked or waited for while it is held, except the send to a channel
// whose buffer is known to be empty.
//
// Builds with the tag invariants, and those with the race detector, check the whole structure at the end of every
// critical section. A state that cannot be panics with a text that starts "localqueue: bug:".
package localqueue

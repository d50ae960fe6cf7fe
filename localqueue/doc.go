// Package localqueue passes one baton from goroutine to goroutine, first come, first served, and counts holds by owner.
// It is the part of a distributed lock that stays in the process: no network, no clock, no goroutines of its own.
//
// # A mutex and a list
//
// A [Queue] is a small mutex around a doubly linked list, and every waiter parks on a channel of its own. It is not a
// lock-free CLH queue, because waiters here also leave from the middle, by cancellation and by timeout. Repairing the
// links of a lock-free list while that happens took the best known implementation, that of java.util.concurrent, two
// decades of corrections. It would not be faster either: an empty critical section takes some ten nanoseconds, and making
// the next goroutine run takes ten times that, with any list.
//
// Waiters use channels and not a condition variable, because a goroutine waits for its turn and its cancellation at the
// same time, and because a testing/synctest bubble then knows which goroutines are blocked.
//
//	                       the line, longest waiter first
//	  the baton         ┌───┐      ┌───┐      ┌───┐
//	owner, holds        │ a │ ◀──▶ │ b │ ◀──▶ │ c │ ◀── enqueue
//	      │             └─┬─┘      └─┬─┘      └─┬─┘
//	      │               ▼          ▼          ▼
//	      └─ hand-over ▶ channel    channel    channel    with a buffer of one
//
// Three things happen to a waiter:
//
//   - Enqueue: a goroutine that cannot have the baton links a node at the end of the line and receives from its channel.
//   - Hand-over: the goroutine that gives the baton up makes the first in line its owner, unlinks that node and sends to
//     its channel, all under the mutex. So the baton is never free while a goroutine waits.
//   - Cancellation: a waiter that wants to leave locks the mutex and looks. If its node is still linked, it unlinks the node
//     and is cancelled. If not, the waiter was granted the baton before it could leave, and has the baton; or [Queue.Shut] has
//     cancelled it.
//
// That is the whole race between cancellation and grant. It is decided by whether the node is linked, and both sides look
// under the mutex.
//
// # The life of a baton
//
// A claimant has the baton and no hold yet. In the lock built on top it is the one goroutine of the process that now asks
// the server. When the server agrees, the claimant settles with a hold count.
//
//	┌──────┐  Claim   ┌──────┐          Settle          ┌─────────┐
//	│      │ ───────▶ │      │ ───────────────────────▶ │         │
//	│ free │  Leave   │ busy │  Begin, Claim by holder  │ settled │
//	│      │ ◀─────── │      │ ◀─────────────────────── │         │
//	└──────┘          └──────┘                          └─────────┘
//
// If a goroutine waits, Leave and Pass give the busy baton to the first in line, and Evict gives it the settled baton. The
// baton is then busy, without holds. If no goroutine waits, Leave and Evict free the baton, and Pass leaves the baton as it is.
//
// Busy means that one goroutine works with the baton, either a claimant without holds or an operation of the holder. Only one
// goroutine works with the baton at a time, even when several act for one owner. A settled hold that needs no such work is
// counted up and down in place ([Queue.Reenter], [Queue.ExitOrBegin]).
//
// # Owners
//
// An owner that holds the baton gets in again at once, past every waiter. Otherwise it would wait for itself. If only one
// goroutine at a time acts for an owner, that is all. A shared owner ([Shared]) may have several goroutines in line when
// one of them gets the baton. As soon as that one settles, the others are let in, one after the other, each when the one
// before has settled. To find them by owner, waiters of a shared owner are linked in a ring, which is kept in a map. Other
// owners never touch the map.
//
// # Fairness, by example
//
// Two goroutines that lock and unlock in a loop alternate: the one that gives the baton up lines up behind the one that
// waits. With a hundred in line, the last waits for a hundred sections, whatever else arrives. Trying often does not
// help: [Queue.TryClaim] takes the baton when it is free, and it is free only when no goroutine waits. Re-entry by the
// holder does lengthen a wait.
//
// A [Barging] claim gives up some of this fairness. The baton is then offered to the first in line and not given: the waiter is
// woken, and until it runs, other barging claims may take the baton in its place, [MaxOvertaken] times.
//
// # Memory
//
// What a goroutine did before it gave the baton up (Leave, Pass, Evict) synchronizes before the return of every later
// claim that is granted. What it did before Settle synchronizes before every later operation and re-entry of its owner.
// This holds in one process. Between processes that meet at a server there is no such order.
//
// The mutex is a leaf. No callback runs under it, no lock is taken, and no send blocks: the only sends are to channels
// whose buffer is empty.
//
// Builds with the tag invariants, and those with the race detector, check the whole structure at the end of every
// critical section. An impossible state panics with a text that starts "localqueue: bug:".
package localqueue

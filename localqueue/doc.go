// Package localqueue hands one baton from goroutine to goroutine, first come, first served, and counts holds by
// owner. It is the part of a distributed lock that never leaves the process: no network, no clock, no goroutines
// of its own. Used alone it is a fair re-entrant lock ([Queue.Acquire], [Queue.Release]).
//
// # A mutex and a list
//
// A [Queue] is a small mutex around a doubly linked list, and every waiter parks on a channel of its own. It is not
// a lock-free CLH queue, because waiters here also leave from the middle, by cancellation and by timeout. To repair
// the links of a lock-free list while that happens has taken the best known implementation, that of
// java.util.concurrent, two decades of corrections. Nor would it be faster: an empty critical section takes some ten
// nanoseconds, and making the next goroutine run takes ten times that, under any list.
//
// Channels, and not a condition variable, because a goroutine waits for its turn and for its cancellation at once,
// and because a testing/synctest bubble then knows who is blocked.
//
//	                       the line, longest waiter first
//	  the baton         ┌───┐      ┌───┐      ┌───┐
//	owner, holds        │ a │ ◀──▶ │ b │ ◀──▶ │ c │ ◀── enqueue
//	      │             └─┬─┘      └─┬─┘      └─┬─┘
//	      │               ▼          ▼          ▼
//	      └─ hand-over ▶ channel    channel    channel    with a buffer of one
//
// What happens to a waiter, in a sentence each:
//
//   - Enqueue: whoever finds the baton out links a node at the end of the line and receives from its channel.
//   - Hand-over: whoever gives the baton up makes the first in line its owner, unlinks that node and sends to its
//     channel, all under the mutex; so the baton never lies free while somebody waits.
//   - Cancellation: a waiter that wants to leave takes the mutex and looks: still linked, it unlinks itself and is
//     cancelled; no longer linked, it was granted the baton (or expelled) before it could leave, and has it.
//
// That is the whole race between cancellation and grant. Being linked is the one fact that decides it, and both
// sides look under the mutex.
//
// # The life of a baton
//
// Who claims the baton holds nothing yet: in the lock built on top it is the one goroutine of the process that now
// asks the server, and only the answer makes it settle with a hold count.
//
//	┌──────┐  Claim   ┌──────┐          Settle          ┌─────────┐
//	│      │ ───────▶ │      │ ───────────────────────▶ │         │
//	│ free │  Leave   │ busy │  Begin, Claim by holder  │ settled │
//	│      │ ◀─────── │      │ ◀─────────────────────── │         │
//	└──────┘          └──────┘                          └─────────┘
//
// If somebody waits, Leave and Pass give the busy baton, and Evict gives the settled one, to the first in line, for
// whom it is busy without holds. If nobody does, Leave and Evict free it, and Pass leaves it as it is.
//
// Busy means that one goroutine is at work with it, a claimant without holds or an operation of the holder; one at a
// time, even when several act for one owner. A settled hold that needs no such work is counted up and down in place
// ([Queue.Reenter], [Queue.Exit]).
//
// # Owners
//
// An owner that holds the baton gets in again at once, past everybody in line; it must, or it would wait for itself.
// If only one goroutine at a time acts for an owner, that is all. A shared owner may have several goroutines in line
// when one of them gets the baton: as soon as it settles they are let in, one after the other, each when the one
// before has settled. Therefore those in line for a shared owner are also found by owner, in a map that other
// owners never touch.
//
// # Fairness, by example
//
// Two goroutines that lock and unlock in a loop alternate: whoever gives the baton up while the other waits comes
// after it. With a hundred in line, the last waits for a hundred sections, whoever else arrives. Nobody gets in by
// trying often: [Queue.TryClaim] takes the baton when it is free, and it is free only when nobody waits. What does
// lengthen a wait is re-entry by the holder.
//
// Who waits in [Queue.Compete] instead gives some of that up. The baton is then offered to the first in line and not
// given: it is woken, and until it runs, others who compete may take the baton in its place, [MaxOvertaken] times.
// Offered is not free: the first in line still answers for the baton.
//
// # Memory
//
// What a goroutine did before it gave the baton up (Leave, Pass, Evict, the last Release) synchronizes before the
// return of every later claim that is granted; what it did before Settle, before every later operation and re-entry
// of its owner. This holds in one process. Between processes that meet at a server there is no such order.
//
// The mutex is a leaf. Nothing is called, locked or waited for while it is held, and nothing blocks: the only sends
// are to channels whose buffer is empty.
//
// Builds with the tag invariants, and those with the race detector, check the whole structure at the end of every
// critical section. A state that cannot be panics with a text that starts "localqueue: bug:".
package localqueue

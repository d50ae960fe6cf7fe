// Package sharedqueue admits the owners of one process to what their session shares with other sessions: readers and a
// writer ([RW]), or permits ([Permits]). It is the part of a read-write lock and of a semaphore that stays in the process:
// no network, no wall clock, no goroutines of its own. The clock is the caller's.
//
// # Units
//
// A session has units of a name, as the server granted them: an [RW] needs one for all its readers together, and [All] for
// a writer; each of the [Permits] is a unit. An engine, which sends the commands to the server, informs the queue of the
// units that the session has (Settle), of how long the session can trust them (Trust), that another session waits (Ask), and
// that the session has lost its units (Lose). The queue reports to the engine the units in use and those that the owners in
// line need (Look). Before the engine gives units back to the server, it has the queue no longer use them (Keep).
//
//	   owners                       the queue                      the engine
//	┌──────────┐  TryRead, Enter  ┌───────────┐  Look, Keep      ┌──────────┐
//	│ a, b, c  │ ───────────────▶ │ units     │ ◀─────────────── │ commands │
//	│          │  ExitRead …      │ holds     │  Settle, Ask …   │ answers  │
//	└──────────┘ ───────────────▶ │ the line  │ ◀─────────────── └──────────┘
//	                              └───────────┘
//
// # Order
//
// A claim that cannot be admitted waits in line, first come, first served. Readers at the head of the line enter together,
// up to the first writer; a claim of permits that would fit does not overtake one of more. An owner that is inside enters
// again at once, past all waiters, because it would wait for itself otherwise. A writer may read too and then go on as a
// reader. A reader that asks to write is refused: two such readers would wait for each other.
//
// When another session waits, a session with All has a turn: its own owners go on in order while a writer waits, for a
// number of admissions and for a time. A session of readers has no turn: it admits no newcomers, and its unit goes back when
// the last reader leaves.
//
// # Readers do not contend
//
// Read holds are counted by owner, in shards with a mutex each. While a reader needs nothing but trust in the session's
// lease, the queue is open: readers come and go in their shards alone, as in the BRAVO lock of Dice and Kogan. A reader
// that finds its shard empty does not take the mutex either: it writes its number into a word, and erases it when it
// leaves. A writer, a waiter or Ask closes the queue, which takes the shards' mutexes one after the other, and counts the
// readers in the words; a few readers that are admitted in the ordinary way open it again.
//
// # Memory
//
// What an owner did before it left synchronizes before the return of every later claim that had to wait until the owner
// left. This holds in one process. Between processes that meet at a server there is no such order.
//
// Builds with the tag invariants, and those with the race detector, check the whole structure at the end of every
// critical section. An impossible state panics with a text that starts "sharedqueue: bug:".
package sharedqueue

// Package sharedqueue admits the owners of one process to what their session shares with other sessions: readers and a writer
// ([RW]), or permits ([Permits]). The package is the part of a read-write lock and of a semaphore that stays in the process. It
// uses no network, no wall clock and no goroutines of its own. The clock is the caller's.
//
// # Units
//
// A session has units of a name, which the server has granted. An [RW] needs one unit for all its readers together, and [All]
// for a writer; of [Permits], each permit is a unit. An engine, which sends the commands to the server, informs the queue of
// the units that the session has (Settle), of how long the session can trust them (Trust), that another session waits (Ask),
// and that the session has lost its units (Lose). The queue reports to the engine the units in use and those that the owners in
// line need (Look). Before the engine gives units back to the server, it takes them from the queue (Keep).
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
// A claim that cannot be admitted waits in line, first come, first served. Readers at the head of the line enter together, up
// to the first writer; a claim of permits that would fit does not overtake an earlier claim of more permits. An owner that is
// inside enters again at once, past all waiters, because behind them the owner would wait for itself. A writer may read too and
// then go on as a reader. A reader that asks to write is refused: two such readers would wait for each other.
//
// When another session waits, a session with All has a turn: its own owners go on in order while a writer is inside or waits,
// for a limited number of admissions and a limited time. A session of readers has no turn: it admits no newcomers, and its unit
// goes back when the last reader leaves.
//
// # Readers do not contend
//
// Read holds are counted by owner, in shards with a mutex each. While nothing but the end of the trust in the session's lease
// can keep a reader out, the queue is open: readers come and go in their shards alone, as in the BRAVO lock of Dice and Kogan.
// A reader that finds its shard empty does not take the shard's mutex either: the reader writes its number into a word of the
// shard, and erases the number when it leaves. A writer, a waiter or Ask closes the queue. To close it takes the shards'
// mutexes one after the other, and counts the readers in the words. The queue opens again after it has admitted a few readers
// under its own mutex.
//
// # Memory
//
// What an owner did before it left synchronizes before the return of every later claim that had to wait until the owner
// left. This holds in one process. Between processes that meet at a server there is no such order.
//
// Builds with the tag invariants, and those with the race detector, check the whole structure at the end of every
// critical section. An impossible state panics with a text that starts "sharedqueue: bug:".
package sharedqueue

// Package memory is a lock server in one process: a [backend.Backend] for tests.
//
//	session A          Backend: the server           session B
//	┌──────┐  command  ┌──────────────────┐  command  ┌──────┐
//	│ Conn │──────────▶│ mu: locks, clock │◀──────────│ Conn │
//	│      │◀──────────│                  │──────────▶│      │
//	└──────┘   reply   └──────────────────┘   reply   └──────┘
//	   ▲                  │ grants      │                ▲
//	   └───── inbox ◀─────┘             └────▶ inbox ────┘
//
// The protocol itself, what redisbackend's scripts do, is Go code in internal/protocol. The rest
// is what lies between a session and a server, and what can happen there.
//
// It has no network and no timers of its own, so it works in a testing/synctest bubble, where its time is the
// bubble's: a lease that is over is found to be over by the next command that looks, as in Redis. Only what a
// [Fault] delays, and who waits for it, has a timer. Each Conn has one goroutine, which delivers what is pushed to it.
//
// A test stages what goes wrong with a [Fault], which is asked about every command and every pushed message, and with
// Partition, Flush, Restart and SetSkew; [WithFault] has an example. It watches with [WithTrace], Count and Commands.
//
// Sessions are named A, B, C, … in the order in which they connect, because their ids are random.
//
// Everything is guarded by one mutex, the Backend's: the server executes one command at a time. It is held for a few
// instructions and never while a Fault or a Sink is called. A trace function is called under it, so that lines come in
// the order of execution.
package memory

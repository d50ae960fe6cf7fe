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
// The protocol itself, which redisbackend implements in scripts, is Go code in internal/protocol. This package has the
// rest: the connections between sessions and a server, and their faults.
//
// The server has no network and no timers of its own, so it works in a testing/synctest bubble and uses the bubble's time. As
// in Redis, the next command on a lock notices that a lease has ended. There are timers only for commands and messages that a
// [Fault] delays, and for callers that wait for such a command. Each Conn has one goroutine, which delivers pushed messages.
//
// A test injects faults with a [Fault], which decides on every command and every pushed message, and with Partition, Flush,
// Restart and SetSkew; [WithFault] has an example. With [WithTrace], Count and Commands a test observes the server.
//
// Sessions are named A, B, C, … in the order in which they connect, because their ids are random.
//
// One mutex, the Backend's, guards everything, so the server executes one command at a time. The mutex is held for a few
// instructions and never while a Fault or a Sink is called. A trace function is called with the mutex held, so that lines come
// in the order of execution.
package memory

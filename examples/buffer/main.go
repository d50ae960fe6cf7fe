// Buffer moves 1,000 items through a small buffer that several processes share, and proves that each came through
// exactly once.
//
//	process p1                             Redis                             process p2
//	┌────────────┐   ┌─────────────────────────────────────────────────┐   ┌────────────┐
//	│ producer ──┼──▶│ items   17 ◀ 18 ◀ 19 ◀ 20 ◀ 21     5 places     │◀──┼── producer │
//	│ producer   │   │ book    fence 4711, made:0 → 9, made:1 → 8, …   │   │   producer │
//	│            │   │ taken   1 p1, 2 p2, 3 p2, 4 p1, …, 16 p2        │   │            │
//	│ consumer ◀─┼───│                                                 │───┼─▶ consumer │
//	│ consumer   │   │ lock    held by p2's consumer, p1's waits for it│   │   consumer │
//	└────────────┘   │ "not full"   p1, p2, p2        "not empty"   –  │   └────────────┘
//	                 └─────────────────────────────────────────────────┘
//
// It is the bounded buffer of every textbook on monitors, with the monitor spread over processes. A producer that finds
// the buffer full awaits the condition "not full"; each consumer signals it. A consumer that finds it empty awaits "not
// empty"; each producer signals that. No worker polls.
// A turn is: lock; look; await while the worker is blocked; step; signal; unlock. Looking and stepping are two
// commands, and between them only the lock keeps others away: two consumers that look at once take the same item, and
// the next one vanishes. See that with -lock none; the exit status is 1 then. An interrupt prints the result so far;
// the exit status is 130, or 1 if something was found.
//
// With -kill N it kills N of its processes on the way with SIGKILL, and replaces them. Three things keep every item then:
//
//   - A step is one script (put.lua, take.lua), which changes the buffer and records whose step it was. A new process
//     goes on where the book says that the old one stopped.
//   - Each look and each step carries the fencing token of its hold, and Redis refuses it after a later hold. So
//     a command that a dead process, or one that was stopped past its lease, has left under way does no harm.
//   - The process that replaces a killed one repeats the signals that may be lost; see [monitor].
//
// Until the others notice a death, they wait: for the lease if the dead process held the lock, for three heartbeats
// (the lease again) if it was signalled. So the lease is short here.
package main

import (
	"io"
	"os"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
)

func main() {
	if crew.IsChild() {
		os.Exit(crew.Play("buffer", role.play))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// parentMain does the job as its arguments say, and returns the exit status. A finding is an item lost, doubled or out
// of order, or a buffer too full.
func parentMain(args []string, stdout, stderr io.Writer) int {
	return screen.Run("buffer", args, stdout, stderr, parseOptions, move)
}

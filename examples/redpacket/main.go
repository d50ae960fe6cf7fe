// Redpacket gives out a red packet: 100 parts, and 200 people who each ask for one 50 times at once, at five processes.
// No person may get two.
//
//	openid 17 taps and taps                                       Redis
//	     │ ├──▶ process p1 ─▶ has 17 a part? ──────────▶ ┌───────────────────────────────────────┐
//	     │ ├──▶ process p1                               │ parts    1.17 ◀ 3.02 ◀ 0.41 ◀ …       │
//	     │ ├──▶ process p2 ─▶ lock redpacket:openid-17 ─▶│ of 17    –                            │
//	     │ └──▶ process p4      has 17 a part? ─────────▶│ of 18    2.60                         │
//	openid 18 …                 no: the first part ─────▶│ parts ──▶ of 17                       │
//	                          unlock                     └───────────────────────────────────────┘
//
// The packet is a list of amounts in cents, drawn at random so that they add up. The parts that a person got are
// another list, and a part goes from the one to the other in one command: it is never in both and never in neither.
// That command does not check whether the person has a part already. The check is a look before the move, and between
// the two another request of the same openid, at another process, can look too and find nothing. So both are done under
// a lock, and since the requests of different people are independent, each openid has a lock of its own: many names,
// each wanted by few, and different people never wait for each other. Before the lock there is a look without it, which
// is enough for many.
//
// At the end everything is given out, the amounts add up to the cent, and no person has two parts. If not, the exit
// status is 1: see the theft with -lock none. An interrupt prints the result so far; the exit status is 130, or 1 after
// a theft.
//
// A process that is stopped for longer than its lease between look and move would come too late with the move. The
// lock ends the context of the move then, so it is not sent; where that is not enough, a fencing token makes the
// server refuse it, as in examples/buffer.
package main

import (
	"io"
	"os"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
)

func main() {
	if crew.IsChild() {
		os.Exit(crew.Play("redpacket", role.play))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// parentMain does the job as its arguments say, and returns the exit status. A finding is a theft, or money that is not
// accounted for.
func parentMain(args []string, stdout, stderr io.Writer) int {
	return screen.Run("redpacket", args, stdout, stderr, parseOptions, giveOut)
}

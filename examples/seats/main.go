// Seats sells the seats of a cinema. Two servers show the same plan of the hall; a seat that a visitor picks is held
// for them for ten minutes, until they pay, let it go, or the time is over.
//
//	a browser        server 1 ──┐                ┌─ Redis ─ holds ──────────────────────────┐
//	   │ ├── pick ──▶           ├── lock ───────▶│ seats:A05   @<visitor>   9 min 20 s      │
//	   │ │                      │                └──────────────────────────────────────────┘
//	   │ │           server 2 ──┤                ┌─ SQL ─── sales ──────────────────────────┐
//	   │ └── pay ───▶           └── row ────────▶│ A05   visitor, token of the hold         │
//	   ◀──── events, from both                   └──────────────────────────────────────────┘
//
// A hold is a lock, and its owner is the visitor, not the server: a portable owner, named by a random id that only the
// visitor's browser has (in a cookie). So the other server can take up the hold (Resume), and when a server is killed
// the visitor keeps the seat until the end of the hold. The lock has a fixed lease, so the hold ends on time even if
// the servers die. During a payment it is renewed: no visitor loses a seat because the bank is slow.
//
// A sale is a row, written with the token of the hold. The row refuses a server that was stopped for longer than a hold
// and then continues, because it has seen the next hold's token.
//
// Several seats are paid for in one payment, under all of their holds, and their rows are written in one transaction: the
// visitor gets all of them or none.
// The plan that visitors see is read from Redis and SQL, more than once a second, and less often while they do not
// reply. A message makes a server read sooner; if it is lost, only that is delayed.
//
// The page shows the locks behind the seats on request (/locks): their tokens, the servers that have the holds, and how many
// commands that took. Each server has its metrics on /metrics, for Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	if isChild() {
		os.Exit(childMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// parentMain runs the cinema until it is interrupted, which is its regular end, and returns the exit status: 2 for flags
// that are wrong, 1 for another error.
func parentMain(args []string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "seats:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, opts, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "seats:", err)
		return exitError
	}
	return exitOK
}

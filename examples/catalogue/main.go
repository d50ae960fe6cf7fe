// Catalogue serves prices from a price list in SQL that five processes cache, and proves that no price it served was stale.
//
//	process p1               process p2               ┌─ SQL ─────────────────┐
//	 5 workers ─▶ cache ─┐    5 workers ─▶ cache ─┐   │ price  item 7, 4711,  │
//	                     └─ RWLock ◀── Redis ─────┘   │        token 1234     │
//	                          │                       └───────────────────────┘
//	                          └─ reload when Version is another ─────▲
//
// A reader takes the read side and asks for its Version, which sends nothing while the process is registered. Equal
// versions prove that there was no write in between, in the whole deployment: the cached list is still true. Otherwise
// the reader loads it again. Now and then a worker takes the write side and changes a price.
//
// Some of the prices that are served are compared with their row in the database, price and token, before the read side is
// given up: they must be equal. If not, the exit status is 1. See it fail with -lock none, where each process believes its
// cache for a while, as many do. An interrupt prints the result so far; the exit status is 130 then, or 1 if something was
// found.
// Without flags it needs no server: it has an embedded Redis, and SQLite in a temporary folder. With -kill N it kills N
// of its processes on the way with SIGKILL.
package main

import (
	"io"
	"os"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
)

func main() {
	if crew.IsChild() {
		os.Exit(crew.Play("catalogue", role.play))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// parentMain does the job as its arguments say, and returns the exit status. A finding is a stale price.
func parentMain(args []string, stdout, stderr io.Writer) int {
	return screen.Run("catalogue", args, stdout, stderr, parseOptions, serve)
}

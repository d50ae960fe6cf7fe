// Keygen hands out the numbers 1, 2, 3 … to the workers of several processes, and proves that no number was given out
// twice.
//
//	process p1              process p2                ┌─ SQL ───────────────────────────────┐
//	 5 workers ─┐            5 workers ─┐             │ key_generator     id 1, key 4711    │
//	            └─▶ lock ◀── Redis ──▶ lock           │ key_fetch_record  key 4710, p2, …   │
//	                 │                  └──── waits   └─────────────────────────────────────┘
//	                 └─ read the number, raise it, record it ────────▲
//
// Reading and raising are separate statements, each committed at once, so nothing in the database keeps two workers
// from reading the same number: only the lock does. At the end every number must have been recorded exactly once,
// with fencing tokens that rise from number to number. If not, the exit status is 1. See it fail with -lock none. An
// interrupt prints the result so far; the exit status is 130 then, or 1 if something was found.
//
// With -ids snowflake the workers draw 64-bit ids instead, which each makes itself, with a node number that no other worker
// of the deployment has: a slot of a semaphore. [generator] explains why no id comes twice, also with -kill.
// Without flags it needs no server: it has an embedded Redis, and SQLite in a temporary folder. With -redis and -dsn it
// runs on servers. With -kill N it kills N of its processes on the way with SIGKILL; [step] describes what a killed
// process may leave behind, and why that never becomes a duplicate.
package main

import (
	"io"
	"os"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/screen"
)

func main() {
	if crew.IsChild() {
		os.Exit(crew.Play("keygen", role.play))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// parentMain does the job as its arguments say, and returns the exit status. A finding is a duplicate, a gap or a token
// that went back.
func parentMain(args []string, stdout, stderr io.Writer) int {
	return screen.Run("keygen", args, stdout, stderr, parseOptions, generate)
}

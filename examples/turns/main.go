// Turns runs an agent's turns at two replicas: one turn per conversation at a time, in order of arrival at any replica.
//
//	a browser            replica 1 ── turn 1 ──┐               ┌─ Redis ─ who has the conversation ─────┐
//	   │ ├── new turn ──▶                       ├── lock ─────▶│ turns:A   @<turn 1>  then 2, then 3     │
//	   │ │               replica 2 ── turn 2 ──┤               └────────────────────────────────────────┘
//	   │ └── stop ─────▶           └─ turn 3 ──┤               ┌─ SQL ── what was said ──────────────────┐
//	   ◀──── events, from both                 └── row ───────▶│ A   text, highest token                 │
//	                                                           └────────────────────────────────────────┘
//
// A turn takes its time: it reads the conversation, calls a model and tools, and adds what they say, step by step. Two
// turns at once would each write over the other's steps. So a turn holds the lock of its conversation.
//
//   - In order: Redis has one queue of sessions for each lock. A session of many goroutines has only its first waiter in
//     it, so here each turn opens a session of its own. It costs a few commands, and a turn takes seconds.
//   - Fenced: each step is an SQL statement with the token of the hold. The row refuses a replica that was stopped for
//     longer than its lease and then continues.
//   - Notified: a turn whose hold is lost ends at once, and the page says so.
//   - Asked to stop: a newcomer may ask the running turn to stop. Lock.Wanted notifies the running turn that another
//     waits; only then it reads the other's request from SQL.
//   - Resumed: a replica that was killed is started again. Its running turn goes on after its last step, under the same
//     hold (Lock.Resume): the owner is the turn and not the process. If the lease ended first, the turn waits again.
//
// Try kill -9, or kill -STOP and after a while kill -CONT, with the process ids that it prints.
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
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

func main() {
	if isChild() {
		os.Exit(childMain(os.Stdin, os.Stderr))
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// parentMain runs the replicas until it is interrupted, which is its regular end, and returns the exit status: 2 for flags
// that are wrong, 1 for another error.
func parentMain(args []string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return screen.ExitClean
	case err != nil:
		fmt.Fprintln(stderr, "turns:", err)
		return screen.ExitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, opts, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "turns:", err)
		return screen.ExitFinding
	}
	return screen.ExitClean
}

// options is how the replicas are run.
type options struct {
	steps int           // of a turn
	step  time.Duration // how long each takes
	lease time.Duration
	redis string // URL; empty for the embedded server
}

const usage = `Turns runs the turns of an agent at two replicas, one at a time for each conversation. Open their addresses.
`

// parseOptions reads the command line.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opts options
	flags := screen.NewFlags("turns", usage, stderr)
	flags.IntVar(&opts.steps, "steps", 6, "how many steps a turn has")
	flags.DurationVar(&opts.step, "step", time.Second, "how long a step takes")
	flags.DurationVar(&opts.lease, "lease", 5*time.Second, "how long a conversation stays taken after its replica was killed")
	flags.StringVar(&opts.redis, "redis", "",
		"`URL` of a Redis 6.2 or later, redis://… or rediss://… (default: an embedded one)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if err := screen.NoArguments(flags); err != nil {
		return options{}, err
	}
	return opts, opts.validate()
}

// validate checks the values that the flag package does not check.
func (o options) validate() error {
	if o.steps < 1 || o.step < 0 {
		return errors.New("-steps must be at least 1, and -step cannot be negative")
	}
	if o.lease < time.Second {
		return errors.New("-lease must be at least a second")
	}
	return deployment.CheckURL(o.redis)
}

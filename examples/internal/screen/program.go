package screen

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

// Exit statuses. What keeps a program from proving anything (no server, an interrupt) counts as a finding.
const (
	ExitClean   = 0
	ExitFinding = 1
	ExitUsage   = 2
)

// A Proof is what a program comes to.
type Proof interface {
	Print(to io.Writer)
	Clean() bool // nothing was found
}

// Run is the main of a program that proves something: it reads the arguments, does the job until it is done or
// interrupted, prints what it came to, and gives the exit status.
func Run[O any, P Proof](name string, args []string, stdout, stderr io.Writer,
	parse func(args []string, stderr io.Writer) (O, error),
	prove func(ctx context.Context, opts O, stdout, stderr io.Writer) (P, error),
) int {
	opts, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitClean
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return ExitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	proof, err := prove(ctx, opts, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return ExitFinding
	}
	proof.Print(stdout)
	if !proof.Clean() {
		return ExitFinding
	}
	return ExitClean
}

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

// Exit statuses. An error that keeps a program from proving anything, such as a missing server, counts as a finding.
const (
	ExitClean       = 0
	ExitFinding     = 1
	ExitUsage       = 2
	ExitInterrupted = 130 // by SIGINT or SIGTERM, with nothing found until then
)

// ErrInterrupted is in the error of a job that was interrupted. The proof that comes with the error covers the work done until
// then.
var ErrInterrupted = errors.New("interrupted")

// A Proof is the result of a program.
type Proof interface {
	Print(to io.Writer)
	Clean() bool // nothing was found
}

// Run is the main of a program that proves something: it reads the arguments, does the job until it is done or
// interrupted, prints the proof, and returns the exit status. prove may return a proof and [ErrInterrupted].
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
	interrupted := errors.Is(err, ErrInterrupted)
	if err == nil || interrupted {
		proof.Print(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	switch {
	case interrupted && proof.Clean(), !interrupted && err != nil && ctx.Err() != nil: // the second before any work was done
		return ExitInterrupted
	case err != nil, !proof.Clean():
		return ExitFinding
	}
	return ExitClean
}

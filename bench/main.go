// Bench compares Relock with other locks on Redis, and with Relock itself without some of its parts.
//
//	go run ./bench                       # all of it, a quarter of an hour; the report is in bench/report
//	go run ./bench -quick                # a first look, two minutes
//	go run ./bench -only relock,cohort -workloads 5x20,1x100
//	go run ./bench -only rwlock -workloads rw-99 # with the commands that 5 x 20 goroutines sent, at 99 % reads
//	go run ./bench -readme               # write README.md's part and docs/bench from the report
//
// Each process of a workload is an operating system's process: bench starts itself again. The processes share a Redis, which is
// the one of -redis or a redis-server that bench starts. They also share a memory-mapped file by which they notice two holders
// that exclude each other ([worker.Site]). What the lock costs Redis is read from the server's own counters
// ([redisload.Counters]).
//
//	for each round, for each workload, for each contender:
//	    start the processes ── run for a moment ── read the counters ── run ── read the counters ── stop
//
// So the contenders take turns all the time, and a machine that is slow for a while is slow for all contenders. Do not compare
// numbers of different machines or runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/relock-go/relock/bench/internal/report"
	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/worker"
)

// Exit statuses. A finding is that two holders were inside at once.
const (
	exitClean   = 0
	exitFinding = 1
	exitUsage   = 2
)

func main() {
	if worker.IsChild() {
		os.Exit(worker.Main())
	}
	os.Exit(parentMain(os.Args[1:], os.Stdout, os.Stderr))
}

// The processes write to parentMain's stderr at the same time. So it must allow concurrent writes, as a file does.
func parentMain(args []string, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitClean
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if opts.readme {
		err = report.Publish(opts.out, published, readme)
	} else {
		err = benchmark(ctx, opts, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFinding
	}
	return exitClean
}

// The output of -readme, relative to the root of the repository.
const (
	published = "docs/bench"
	readme    = "README.md"
)

// errOverlaps says that two holders overlapped.
var errOverlaps = errors.New("FAILED: some lock had two holders at once, or a semaphore too many (column overlaps)")

func benchmark(ctx context.Context, opts options, stdout, stderr io.Writer) error {
	r, err := measure(ctx, opts, stderr)
	interrupted := ctx.Err() != nil && r != nil && len(r.Cells) > 0
	switch {
	case interrupted:
		r.Workloads = slices.DeleteFunc(r.Workloads, func(w result.Workload) bool { return len(r.Of(w.Name)) == 0 })
	case err != nil:
		return err
	}
	if err := r.WriteTable(stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	if err := report.WriteAims(r, stdout); err != nil {
		return err
	}
	if err := report.Write(r, opts.out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nThe report is %s/%s.\n", opts.out, report.Page)
	if interrupted {
		return errors.Join(verdict(r), errInterrupted)
	}
	return verdict(r)
}

// errInterrupted says that the report has only some of the measurements.
var errInterrupted = errors.New("interrupted: the report has what was measured until then")

func verdict(r *result.Result) error {
	if r.Overlaps() > 0 {
		return errOverlaps
	}
	return nil
}

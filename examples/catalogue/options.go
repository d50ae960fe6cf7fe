package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// lockMode is the means by which a worker knows that a cached price is still true.
type lockMode string

const (
	lockRelock lockMode = "relock" // by the Version of an RWLock
	lockNone   lockMode = "none"   // no check: a worker trusts a cache for a while
	lockSQL    lockMode = "sql"    // no cache: every price is read from the database
)

// defaultLease is short, because other workers wait for the rest of a killed writer's lease. It is longer than a busy machine
// stands still.
const defaultLease = 6 * time.Second

// options describe the job.
type options struct {
	processes  int
	workers    int // in each process
	items      int // in the price list
	reads      int
	writeEvery int // a worker changes a price after this many reads
	checkEvery int // a worker compares a price with its row after this many reads
	kills      int // how many processes to kill on the way
	lock       lockMode
	lease      time.Duration
	redis      string // URL; empty for the embedded server
}

const usage = `Catalogue serves prices that five processes cache, and shows that none was stale, also while processes are killed. Exit
status 1: one was; 130: interrupted before.
`

// parseOptions reads the command line.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opts options
	var mode string
	flags := screen.NewFlags("catalogue", usage, stderr)
	flags.IntVar(&opts.processes, "processes", 5, "number of processes")
	flags.IntVar(&opts.workers, "workers", 5, "workers in each process")
	flags.IntVar(&opts.items, "items", 100, "items in the price list")
	flags.IntVar(&opts.reads, "reads", 500_000, "how many prices to serve")
	flags.IntVar(&opts.writeEvery, "write-every", 2000, "each worker changes a price after this many reads")
	flags.IntVar(&opts.checkEvery, "check-every", 50, "each worker compares a price with the database after this many reads")
	flags.StringVar(&opts.redis, "redis", "", "`URL` of a Redis, redis://… or rediss://… (default: an embedded one)")
	flags.StringVar(&mode, "lock", string(lockRelock), "relock, sql to read every price from the database, or none to see stale prices")
	flags.IntVar(&opts.kills, "kill", 0, "kill this many processes on the way, and replace them")
	flags.DurationVar(&opts.lease, "lease", defaultLease, "lease of the lock: how long the others wait for a killed holder")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	opts.lock = lockMode(mode)
	if err := screen.NoArguments(flags); err != nil {
		return options{}, err
	}
	return opts, opts.validate()
}

// validate checks the values that the flag package does not check.
func (o options) validate() error {
	switch o.lock {
	case lockRelock, lockNone, lockSQL:
	default:
		return fmt.Errorf("-lock %q: there are relock, sql and none", o.lock)
	}
	if min(o.processes, o.workers, o.items, o.reads, o.writeEvery, o.checkEvery) < 1 {
		return errors.New("-processes, -workers, -items, -reads, -write-every and -check-every must be at least 1")
	}
	if o.kills < 0 {
		return errors.New("-kill must not be negative")
	}
	if o.lease <= 0 {
		return errors.New("-lease must be positive")
	}
	return deployment.CheckURL(o.redis)
}

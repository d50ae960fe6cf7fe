package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// lockMode is the means that keeps two workers from stepping at once.
type lockMode string

const (
	lockRelock lockMode = "relock"
	lockNone   lockMode = "none" // no lock: shows why one is needed
)

// defaultLease is short, because other workers wait for the rest of a killed process's lease. It is long enough that a live
// process on a busy machine does not lose the lock.
const defaultLease = 2 * time.Second

// options describe the job.
type options struct {
	processes int
	producers int // in each process
	consumers int // in each process
	items     int
	capacity  int
	kills     int // how many processes to kill on the way
	lock      lockMode
	lease     time.Duration
	redis     string // URL; empty for the embedded server
}

const usage = `Buffer moves items through a small buffer that the producers and consumers of several processes share, and shows
that each came through exactly once, also while processes are killed. Exit status 1: some did not; 130: interrupted before.
`

// parseOptions reads the command line.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opts options
	var mode string
	flags := screen.NewFlags("buffer", usage, stderr)
	flags.IntVar(&opts.processes, "processes", 3, "number of processes")
	flags.IntVar(&opts.producers, "producers", 3, "producers in each process")
	flags.IntVar(&opts.consumers, "consumers", 2, "consumers in each process")
	flags.IntVar(&opts.items, "items", 1000, "how many items to move")
	flags.IntVar(&opts.capacity, "capacity", 5, "places in the buffer")
	flags.StringVar(&opts.redis, "redis", "",
		"`URL` of a Redis, redis://… or rediss://…; its keys {buffer}:… are deleted (default: an embedded one)")
	flags.StringVar(&mode, "lock", string(lockRelock), "relock, or none to see the losses")
	flags.IntVar(&opts.kills, "kill", 0, "kill this many processes on the way, and replace them")
	flags.DurationVar(&opts.lease, "lease", defaultLease, "lease of the lock: how long the others wait for a killed process")
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
	if o.lock != lockRelock && o.lock != lockNone {
		return fmt.Errorf("-lock %q: there are relock and none", o.lock)
	}
	if o.processes < 1 || o.producers < 1 || o.consumers < 1 {
		return errors.New("-processes, -producers and -consumers must be at least 1")
	}
	if o.items < 1 || o.capacity < 1 {
		return errors.New("-items and -capacity must be at least 1")
	}
	if o.kills < 0 {
		return errors.New("-kill must not be negative")
	}
	if o.lease <= 0 {
		return errors.New("-lease must be positive")
	}
	return deployment.CheckURL(o.redis)
}

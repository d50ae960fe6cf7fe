package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/dsn"
	"github.com/relock-go/relock/examples/internal/screen"
)

// lockMode is the means that keeps two workers from reading the same number.
type lockMode string

const (
	lockRelock lockMode = "relock" // Relock, each holder registered in Redis
	lockCohort lockMode = "cohort" // Relock, the process as a whole registered in Redis
	lockNone   lockMode = "none"   // no lock: shows why one is needed
)

// idMode is the kind of ids that the workers draw.
type idMode string

const (
	idsTable     idMode = "table"     // the numbers 1, 2, 3 … from a table that the lock protects
	idsSnowflake idMode = "snowflake" // ids that each worker makes itself, with a node number that no other has
)

// defaultLease is short, because other workers wait for the rest of a killed process's lease. It is longer than a busy machine
// stands still. The tables take no token, so a holder that was stopped for longer could hand out a number twice.
const defaultLease = 10 * time.Second

// options describe the job.
type options struct {
	processes int
	workers   int // in each process
	keys      int // how many numbers to hand out
	kills     int // how many processes to kill on the way
	ids       idMode
	lock      lockMode
	lease     time.Duration
	turn      time.Duration // how long a process may hand the lock over among its own workers; 0 for the library's default
	redis     string        // URL; empty for the embedded server
	dsn       string        // URL of a server, or path of a SQLite file; empty for a file in a new folder
}

const usage = `Keygen hands out the numbers 1, 2, 3 … to the workers of several processes, from a table that nothing but a lock
protects, and shows that none was given out twice, also while processes are killed. Exit status 1: one was; 130: interrupted before.
`

// parseOptions reads the command line.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opts options
	var file, ids, mode string
	flags := screen.NewFlags("keygen", usage, stderr)
	flags.IntVar(&opts.processes, "processes", 5, "number of processes")
	flags.IntVar(&opts.workers, "workers", 5, "workers in each process")
	flags.IntVar(&opts.keys, "keys", 5_000, "how many numbers to hand out")
	flags.StringVar(&opts.redis, "redis", "", "`URL` of a Redis, redis://… or rediss://… (default: an embedded one)")
	flags.StringVar(&opts.dsn, "dsn", "",
		"`URL` of a database, mysql://user:password@host:port/name or postgres://…, or user:password@tcp(host:port)/name as "+
			"Go's MySQL driver has it; its tables key_generator and "+
			"key_fetch_record are dropped and made anew (default: SQLite)")
	flags.StringVar(&file, "db", "", "`path` of the SQLite file (default: one that is deleted at the end)")
	flags.StringVar(&ids, "ids", string(idsTable), "table, or snowflake: 64-bit ids that each worker makes itself, with a node number "+
		"from a semaphore's slot")
	flags.StringVar(&mode, "lock", string(lockRelock), "relock, cohort, or none to see the duplicates")
	flags.IntVar(&opts.kills, "kill", 0, "kill this many processes on the way, and replace them")
	flags.DurationVar(&opts.lease, "lease", defaultLease, "lease of the lock: how long the others wait for a killed holder")
	flags.DurationVar(&opts.turn, "turn", 0, "how long a process may hand the lock to its own workers (default: the library's)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	opts.ids, opts.lock = idMode(ids), lockMode(mode)
	if file != "" && opts.dsn != "" {
		return options{}, errors.New("-db is the path of a SQLite file, -dsn names another database: give one of them")
	}
	if kind, err := dsn.KindOf(opts.dsn); opts.dsn != "" && err == nil && kind == dsn.File && !strings.ContainsAny(opts.dsn, "/.") {
		return options{}, fmt.Errorf("-dsn %s: neither a URL, nor a data source name, nor the path of a file; -db takes any path", opts.dsn)
	}
	opts.dsn = cmp.Or(opts.dsn, file)
	if err := screen.NoArguments(flags); err != nil {
		return options{}, err
	}
	return opts, opts.validate()
}

// validate checks the values that the flag package does not check.
func (o options) validate() error {
	switch o.lock {
	case lockRelock, lockCohort, lockNone:
	default:
		return fmt.Errorf("-lock %q: there are relock, cohort and none", o.lock)
	}
	if err := o.validateIDs(); err != nil {
		return err
	}
	if o.processes < 1 || o.workers < 1 || o.keys < 1 {
		return errors.New("-processes, -workers and -keys must be at least 1")
	}
	if o.kills < 0 {
		return errors.New("-kill must not be negative")
	}
	if o.lease <= 0 {
		return errors.New("-lease must be positive")
	}
	if o.turn < 0 {
		return errors.New("-turn must not be negative")
	}
	if o.dsn != "" {
		if _, err := parseSource(o.dsn); err != nil {
			return fmt.Errorf("-dsn: %w", err)
		}
	}
	return deployment.CheckURL(o.redis)
}

// validateIDs checks -ids, and the flags that cannot be combined with it.
func (o options) validateIDs() error {
	switch {
	case o.ids == idsTable:
		return nil
	case o.ids != idsSnowflake:
		return fmt.Errorf("-ids %q: there are table and snowflake", o.ids)
	case o.lock == lockCohort || o.turn != 0:
		return errors.New("-lock cohort and -turn are of the lock; -ids snowflake takes none")
	case o.processes > maxNodes/max(o.workers, 1):
		return fmt.Errorf("-ids snowflake has %d node numbers, and each worker needs one", maxNodes)
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// lockMode is the means that keeps two requests of one openid apart.
type lockMode string

const (
	lockRelock lockMode = "relock"
	lockNone   lockMode = "none" // no lock: shows why one is needed
)

// options describe the job.
type options struct {
	processes int
	openids   int
	requests  int // of each openid, over all processes
	parts     int
	cents     int // in all parts together
	lock      lockMode
	redis     string // URL; empty for the embedded server
}

const usage = `Redpacket gives out a red packet to people who ask many times at once, at several processes, and shows that no person
got two parts, that everything was given out, and that the amounts add up. Exit status 1: they do not; 130: interrupted before.
`

// parseOptions reads the command line.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var opts options
	var mode string
	flags := screen.NewFlags("redpacket", usage, stderr)
	flags.IntVar(&opts.processes, "processes", 5, "number of processes")
	flags.IntVar(&opts.openids, "openids", 200, "how many people ask")
	flags.IntVar(&opts.requests, "requests", 15, "how often each of them asks, spread over the processes")
	flags.IntVar(&opts.parts, "parts", 100, "parts of the packet")
	flags.IntVar(&opts.cents, "cents", 20_000, "amount in the packet, in cents")
	flags.StringVar(&opts.redis, "redis", "",
		"`URL` of a Redis 6.2 or later, redis://… or rediss://…; its keys {redpacket}:… are deleted (default: an embedded one)")
	flags.StringVar(&mode, "lock", string(lockRelock), "relock, or none to see the theft")
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
	if o.processes < 1 || o.openids < 1 || o.requests < 1 || o.parts < 1 {
		return errors.New("-processes, -openids, -requests and -parts must be at least 1")
	}
	if o.cents < o.parts {
		return errors.New("-cents must be at least as many as -parts: no part is empty")
	}
	return deployment.CheckURL(o.redis)
}

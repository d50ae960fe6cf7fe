package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// options is how the cinema is run.
type options struct {
	servers int
	port    int // of the first server; 0 for any that are free
	hold    time.Duration
	payment time.Duration
	show    time.Time // when the film begins; zero for the next evening
	redis   string    // URL; empty for the embedded server
	dsn     string    // empty for a SQLite file that is deleted at the end
}

const usage = `Seats sells the seats of a cinema at two web servers. Open their addresses, in two browsers to be two visitors.
`

// parseOptions reads the command line.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	opts := options{servers: 2}
	flags := screen.NewFlags("seats", usage, stderr)
	flags.IntVar(&opts.port, "port", 0, "port of the first server, the next one follows (default: any that are free)")
	flags.DurationVar(&opts.hold, "hold", 10*time.Minute, "how long a seat is held for the visitor who picked it")
	flags.DurationVar(&opts.payment, "payment", 2*time.Second, "how long it takes to pay; it may be longer than a hold")
	flags.StringVar(&opts.redis, "redis", "",
		"`URL` of a Redis 6.2 or later, redis://… or rediss://… (default: an embedded one)")
	flags.StringVar(&opts.dsn, "dsn", "",
		"`URL` of the database, mysql://… or postgres://…, user:password@tcp(host)/name, or a SQLite file; it keeps the sales\n(default: a file that is deleted at the end)")
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
	if o.hold < time.Second {
		return errors.New("-hold must be at least a second")
	}
	if o.payment < 0 {
		return errors.New("-payment cannot be negative")
	}
	if last := o.port + o.servers - 1; o.port < 0 || o.port > 0 && last > 65535 {
		return fmt.Errorf("-port %d: there are no ports from %d to %d", o.port, o.port, last)
	}
	if o.dsn != "" {
		if _, err := parseSource(o.dsn); err != nil {
			return fmt.Errorf("-dsn: %w", err)
		}
	}
	return deployment.CheckURL(o.redis)
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// watchCommand is `relock watch`.
type watchCommand struct {
	lockName
	Interval seconds `default:"1s" help:"Interval between two looks at Redis. Changes that begin and end in between are not shown."`
	asJSON
}

// Validate is called by the parser.
func (c *watchCommand) Validate() error {
	if c.Interval <= 0 {
		return fmt.Errorf("--interval %v: must be positive", time.Duration(c.Interval))
	}
	return c.lockName.Validate()
}

// A sighting is a status and when it was seen.
type sighting struct {
	Time time.Time `json:"time"`
	status
}

// Run prints the state and its changes until it is interrupted. Then the exit status is 0.
func (c *watchCommand) Run(s *server, std *streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	session, done, err := s.openWithin(ctx, nil)
	if err != nil {
		return err
	}
	defer done()
	return c.watch(ctx, session, std)
}

// watch reads the state until ctx ends or Redis refuses. It tries again when Redis does not answer.
func (c *watchCommand) watch(ctx context.Context, session *reentrant.Session, std *streams) error {
	tick := time.NewTicker(time.Duration(c.Interval))
	defer tick.Stop()
	var last *status
	silence := outage{stderr: std.err}
	for {
		now, err := statusOf(ctx, session, c.Name)
		switch {
		case ctx.Err() != nil:
			return nil
		case reentrant.Refused(err):
			return err
		case err == nil:
			if last == nil || !last.same(now) {
				if err := c.print(sighting{time.Now().UTC(), now}, std); err != nil {
					return err
				}
			}
			last = &now
		}
		silence.update(err, func() string { return "relock tries again" })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *watchCommand) print(s sighting, std *streams) error {
	if c.JSON {
		return printJSON(std.out, s)
	}
	_, err := fmt.Fprintf(std.out, "%s  %s\n", s.Time.Format(stamp), s.line())
	return err
}

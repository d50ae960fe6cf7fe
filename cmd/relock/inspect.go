package main

import (
	"context"

	"github.com/relock-go/relock/reentrant"
)

// inspectCommand is `relock inspect`.
type inspectCommand struct {
	lockName
	asJSON
}

// asJSON is the flag for JSON output.
type asJSON struct {
	JSON bool `name:"json" help:"Print JSON, one object per line."`
}

// Run prints the state once.
func (c *inspectCommand) Run(s *server, std *streams) error {
	ctx := context.Background()
	session, done, err := s.openWithin(ctx, nil)
	if err != nil {
		return err
	}
	defer done()
	var st status
	if err := s.patiently(ctx, func(ctx context.Context) (err error) {
		st, err = statusOf(ctx, session, c.Name)
		return err
	}); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.out, st)
	}
	return st.print(std.out)
}

// patiently calls ask up to three times while the outcome is unknown. It does not repeat a refusal, or an attempt that
// could not reach Redis.
func patiently(ask func() error) (err error) {
	for range 3 {
		if err = ask(); !reentrant.OutcomeUnknown(err) {
			break
		}
	}
	return err
}

package main

import "context"

// inspectCommand is `relock inspect`.
type inspectCommand struct {
	lockName
	asJSON
}

// asJSON is how a state is printed.
type asJSON struct {
	JSON bool `name:"json" help:"Print JSON, one object per line."`
}

// Run prints the state once.
func (c *inspectCommand) Run(s *server, std *streams) error {
	session, done, err := s.open(context.Background())
	if err != nil {
		return err
	}
	defer done()
	st, err := session.NewLock(c.Name).Inspect(context.Background())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.out, newStatus(c.Name, st))
	}
	newStatus(c.Name, st).print(std.out)
	return nil
}

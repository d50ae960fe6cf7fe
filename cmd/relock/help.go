package main

import (
	"errors"

	"github.com/alecthomas/kong"
)

// helpCommand is `relock help`.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command; none for an overview."`
}

// Run prints what --help prints.
func (c *helpCommand) Run(k *kong.Kong) error {
	ctx, err := kong.Trace(k, c.Command)
	if err == nil {
		err = ctx.Error
	}
	if err != nil {
		return fail(exitUsage, errors.New(mistake(ctx, err)))
	}
	return ctx.PrintUsage(false)
}

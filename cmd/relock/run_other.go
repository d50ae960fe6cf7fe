//go:build !unix

package main

import "runtime"

// runCommand is `relock run` where there are no process groups: it could not promise what it is for.
type runCommand struct{ unixOnly }

// holdCommand is `relock hold`, which shares the signals with it.
type holdCommand struct{ unixOnly }

type unixOnly struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

// Run refuses.
func (unixOnly) Run() error {
	return failf(exitUsage, "this needs the process groups and signals of a Unix, which %s does not have", runtime.GOOS)
}

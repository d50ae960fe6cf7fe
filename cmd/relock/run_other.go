//go:build !unix

package main

import "runtime"

// runCommand is `relock run` on systems without process groups, where relock could not guarantee the end of the
// command.
type runCommand struct{ unixOnly }

// holdCommand is `relock hold` on such systems, which lack the signals that it needs.
type holdCommand struct{ unixOnly }

type unixOnly struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

// Run returns an error.
func (unixOnly) Run() error {
	return failf(exitUsage, "this needs the process groups and signals of a Unix, which %s does not have", runtime.GOOS)
}

//go:build !unix

package main

import "runtime"

// runCommand is `relock run` where there are no process groups: it could not promise what it is for.
type runCommand struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

// Run refuses.
func (runCommand) Run() error {
	return failf(exitUsage, "relock run needs the process groups of a Unix, which %s does not have", runtime.GOOS)
}

//go:build !linux

package redisserver

import "os/exec"

// dieWithParent does nothing. On this system a test process that is killed leaves its servers behind.
func dieWithParent(*exec.Cmd) {}

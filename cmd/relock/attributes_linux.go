package main

import (
	"runtime"
	"syscall"
)

// The kernel sends the parent's death signal when the thread that started the child ends, so that has to be the
// process's first, which stays.
func init() { runtime.LockOSThread() }

// processAttributes puts the command into a group of its own, and has it killed if relock is.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel sends the parent's death signal when the thread that started the child ends, so that has to be the
// process's first, which stays.
func init() { runtime.LockOSThread() }

// processAttributes puts the command into a group of its own, and has it killed if relock is.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopt makes relock the parent of what the command leaves behind, so that relock can reap it: until somebody has, it
// counts as a member of the group, and in a container nobody else may, or late.
func adopt() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // without it, the end only takes longer
}

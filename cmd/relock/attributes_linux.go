package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel sends the parent's death signal when the thread that started the child ends. So the child is started by
// the process's first thread, which does not end.
func init() { runtime.LockOSThread() }

// processAttributes puts the command into a process group of its own, and makes the kernel kill it when relock dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopt makes relock the parent of processes that the command leaves behind, so that relock can reap them. Until it is
// reaped, a process counts as a member of the group, and in a container there may be no init that reaps it soon.
func adopt() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // if this fails, relock only waits longer for the group's end
}

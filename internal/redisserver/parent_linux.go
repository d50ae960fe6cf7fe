package redisserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes a process end with this one, also if this one is killed, as by its time limit.
func dieWithParent(process *exec.Cmd) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package redisserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes a process end with this one, also if this one is killed or its time limit ends it.
func dieWithParent(process *exec.Cmd) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package redisserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent has a process end with this one, also if that is killed, or gives up because its time is over.
func dieWithParent(process *exec.Cmd) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package redisserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes a process end when this process ends, even if this process is killed, for example because its time is
// over.
func dieWithParent(process *exec.Cmd) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

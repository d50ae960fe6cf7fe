//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
)

// A command is a program that runs in a process group of its own, so that relock can end it with all processes it
// started.
type command struct {
	program string
	args    []string

	pid      int // the number of the program's process, and of the group
	changes  chan change
	terminal terminal
}

// A change is a change of state of the command's own process.
type change struct {
	exited        bool
	status        int  // the exit status, as a shell has it
	wantsTerminal bool // the process was stopped because it used the terminal, or with Ctrl-Z
}

// lookPath finds a program, as a shell does.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", fail(exitNotFound, err)
	}
	return "", fail(exitNoExec, err)
}

// start starts the program. Its standard streams are relock's own.
func (c *command) start(environment []string) error {
	p := &exec.Cmd{
		Path: c.program, Args: c.args, Env: environment,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: processAttributes(),
	}
	adopt()
	if err := p.Start(); err != nil {
		return fail(exitNoExec, err)
	}
	c.pid, c.changes = p.Process.Pid, make(chan change, 16)
	go c.wait()
	return nil
}

// wait reports every change of the command's own process, and reaps all processes that it leaves behind. exec.Cmd.Wait
// does not report that a process was stopped.
func (c *command) wait() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			return // all have been reaped
		case err != nil:
			panic(fmt.Sprintf("relock: bug: wait: %v", err))
		case pid != c.pid: // an orphan
		case ws.Exited():
			c.changes <- change{exited: true, status: ws.ExitStatus()}
		case ws.Signaled():
			c.changes <- change{exited: true, status: exitSignal + int(ws.Signal())}
		case ws.Stopped() && slices.Contains(terminalStops, ws.StopSignal()):
			c.changes <- change{wantsTerminal: true}
		}
	}
}

// terminalStops are the signals with which a terminal stops a process: one in the background that reads, or writes
// without being allowed to, or one for which Ctrl-Z was pressed. A command that was stopped with SIGSTOP stays stopped.
var terminalStops = []syscall.Signal{syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP}

// forwarded are the signals that relock forwards to the whole group. A terminal does the same, and a shell that is
// killed alone would leave its children running.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH,
}

// notify relays the signals that concern the command to c. Signals that were ignored when relock started stay ignored,
// for nohup. Two are received and dropped: SIGTSTP, because a stopped relock would not renew the lease, and SIGPIPE,
// because relock must not leave the command alone when its own output is closed.
func notify(c chan<- os.Signal) {
	wanted := append([]os.Signal{syscall.SIGTSTP, syscall.SIGPIPE}, forwarded...)
	signal.Notify(c, slices.DeleteFunc(wanted, signal.Ignored)...)
}

// forward sends a signal on to the group.
func (c *command) forward(sig os.Signal) {
	if slices.Contains(forwarded, sig) {
		c.signal(sig.(syscall.Signal))
	}
}

// signal sends a signal to the group. The kernel does not reuse the group's number while a member lives, nor at once
// after the leader has been reaped.
func (c *command) signal(sig syscall.Signal) {
	_ = syscall.Kill(-c.pid, sig) // the group may have ended
}

func (c *command) terminate() { c.signal(syscall.SIGTERM) }

func (c *command) kill() {
	c.signal(syscall.SIGKILL)
}

// groupAlive reports whether the group has members, zombies included.
func (c *command) groupAlive() bool { return !errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) }

// lendTerminal gives the terminal to the group, as a shell does with a job in its foreground, and continues it. While
// relock itself is in the background it returns false, and the command stays stopped.
func (c *command) lendTerminal() bool {
	if !c.terminal.lend(c.pid) {
		return false
	}
	c.signal(syscall.SIGCONT)
	return true
}

// finish takes the terminal back.
func (c *command) finish() { c.terminal.takeBack(c.pid) }

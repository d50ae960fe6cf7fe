//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is relock's controlling terminal, if it has one. The command begins in the background: Ctrl-C reaches
// relock and the other processes of a pipeline, and relock forwards it to the command. Relock puts the command into the
// foreground only when the command wants to read; from then on the terminal sends its signals to the command and not to
// relock. So the command never gets a signal twice.
type terminal struct {
	file *os.File // /dev/tty; nil until the terminal is to be lent for the first time
}

// lend puts a process group into the foreground if relock's own group is there. It reports whether the group is there
// now.
func (t *terminal) lend(group int) bool {
	if t.file == nil {
		file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return false
		}
		t.file = file
		signal.Ignore(syscall.SIGTTOU) // relock is in the background when it takes the terminal back
	}
	switch t.foreground() {
	case group:
		return true
	case syscall.Getpgrp():
		return t.setForeground(group)
	}
	return false
}

// takeBack undoes lend, so that a script which continues after relock can use its terminal.
func (t *terminal) takeBack(group int) {
	if t.file != nil && t.foreground() == group {
		t.setForeground(syscall.Getpgrp())
	}
}

func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

func (t *terminal) setForeground(group int) bool {
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) == nil
}

// isTTY reports whether a file is a terminal.
func isTTY(fd int) bool {
	_, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	return err == nil
}

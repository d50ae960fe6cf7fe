//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// holdCommand is `relock hold`.
type holdCommand struct {
	lockName
	sharing
	waiting
	Lease seconds `default:"10s" help:"How long other processes wait after a crash of this machine."`

	deadline deadline
}

// Help is shown by --help.
func (c *holdCommand) Help() string {
	return `  relock hold [-w SECONDS | -n] [-E CODE] [--lease SECONDS] [--note TEXT] [-s | -x | --permits N] NAME

Waits for the lock, prints the fencing token on a line (with -s the version, with --permits 0), and holds the lock until a signal (INT, TERM, HUP, QUIT) or the end of its input. A standard input that is /dev/null does not count. Relock hold ends no other process when the lock is lost: processes that rely on the lock have to watch for the end of relock hold.

Examples:
  relock hold deploy              keep deployments off while you look around; Ctrl-D gives it back
  relock hold --note 'disk is full' deploy     others see the reason
  relock hold -w 10 -E 1 deploy   give up if another has it for the next ten seconds, with status 1
  relock hold -s catalogue        keep writers off: relock run -x catalogue waits

Exit status:
    0  the lock was held to the end
   64  usage, or a URL that cannot be read; or a run around this one has the lock
   69  Redis cannot be reached, or refuses
   75  the lock was not acquired within --wait (-E has another number for it)
   79  the lock was lost
  128  plus the signal that ended the wait for the lock`
}

// Validate is called by the parser.
func (c *holdCommand) Validate() (err error) {
	if err := errors.Join(c.lockName.Validate(), c.sharing.check(), c.waiting.check()); err != nil {
		return err
	}
	c.deadline, err = newDeadline(time.Duration(c.Lease), nil)
	return err
}

// Run holds the lock until a signal, the end of the input, or the loss of the lock.
func (c *holdCommand) Run(s *server, std *streams) error {
	h := newHold(s, std.err, c.deadline)
	return h.during(c.Name, c.sharing, c.waiting, func(signals <-chan os.Signal) (int, error) {
		if _, err := fmt.Fprintln(std.out, uint64(h.token)); err != nil {
			return 0, err
		}
		if isTerminal(os.Stdin) && isTerminal(std.err) && !c.Quiet {
			fmt.Fprintf(std.err, "relock: %s is held; Ctrl-D or Ctrl-C gives it back\n", shown(c.Name))
		}
		signal.Ignore(syscall.SIGTTIN) // this signal would stop a background process that reads the terminal
		return 0, h.keep(signals, endOf(os.Stdin))
	})
}

// keep waits for the end: a signal, the end of the input, or the loss of the lock.
func (h *hold) keep(signals <-chan os.Signal, end <-chan struct{}) error {
	replies, stop := h.askRepeatedly()
	defer stop()
	lost := h.lock.Lost(h.owner)
	silence := outage{stderr: h.news()}
	for {
		select {
		case <-end:
			return nil
		case sig := <-signals:
			if slices.Contains(endings, sig) {
				return nil
			}
		case <-lost:
			return failf(exitLost, "lock %s was lost (%s)", shown(h.lock.Name()), leaseEnded)
		case a := <-replies:
			silence.update(a.err, func() string { return "the lock is lost when its lease ends" })
			if a.gone {
				return failf(exitLost, "lock %s was lost (%s%s)", shown(h.lock.Name()), takenAway, a.state.reason())
			}
		}
	}
}

// endOf returns a channel that is closed when the file has been read to its end. For /dev/null the channel is nil, so that
// a background job, whose input is /dev/null, keeps its lock. For a terminal that the process may not read it is never
// closed.
func endOf(file *os.File) <-chan struct{} {
	if isNull(file) {
		return nil
	}
	end := make(chan struct{})
	go func() {
		if _, err := io.Copy(io.Discard, file); err == nil {
			close(end)
		}
	}()
	return end
}

func isNull(file *os.File) bool {
	info, err := file.Stat()
	null, err2 := os.Stat(os.DevNull)
	return err == nil && err2 == nil && os.SameFile(info, null)
}

//go:build unix

package main

import (
	"cmp"
	"errors"
	"os"
	"time"
)

// runCommand is `relock run`.
type runCommand struct {
	lockName
	Command []string `arg:"" optional:"" passthrough:"partial" help:"The command and its arguments; relock's own options come before it."`
	Shell   *string  `short:"c" name:"command" placeholder:"COMMAND" help:"Run this text with the shell ($SHELL, or sh), instead of a command after --."`
	sharing
	waiting
	AtLeast seconds  `placeholder:"SECONDS" help:"Keep a plain lock for at least so long, counted from when it was taken: other processes wait until then although the command has ended, and relock too. For jobs that many machines start at about the same time."`
	Lease   seconds  `default:"10s" help:"How long other processes wait after a crash of this machine, and about how long an outage of Redis may last before relock ends the command."`
	Grace   *seconds `placeholder:"SECONDS" help:"Time between TERM and KILL for the command; at most a third of the lease. Default: a fifth of it."`

	deadline deadline
}

// Help is shown by --help.
func (c *runCommand) Help() string {
	return `  relock run [OPTION…] NAME -- COMMAND [ARGUMENT…]
  relock run [OPTION…] NAME -c COMMAND

The command runs in a process group of its own, with RELOCK_NAME, RELOCK_TOKEN (the fencing token; with -s the version, which changes with every write; with --permits 0), RELOCK_SESSION, RELOCK_SESSIONS (those of the runs around it, too) and RELOCK_OWNER in its environment. Relock forwards signals to it. When it exits, relock ends the rest of its group, and then gives the lock back.

If the lock is lost, or Redis does not answer for too long, the group gets TERM, and KILL after --grace: early enough to be dead before Redis can give the lock to another.

Examples:
  relock run deploy -- ./deploy.sh production     one at a time, others wait
  relock run -n nightly -- ./backup.sh            do not wait: exit with 75
  relock run -n -E 0 nightly -- ./backup.sh       the same, but exit with 0
  relock run -n -E 0 --at-least 5m nightly -- ./backup.sh    one of many machines, whose clocks differ
  relock run -w 30 migrate -c './migrate && ./warm-up'
  relock run --note 'release 4.2' deploy -- ./deploy.sh    others see the reason
  relock run -s catalogue -- ./report.sh          many reports at a time,
  relock run -x catalogue -- ./import.sh          and none while this runs
  relock run --permits 3 encode -- ./encode.sh    at most three at a time in the whole deployment

Exit status: the command's own, or 128 plus the signal that ended it; and
   64  usage, or a URL that cannot be read; or a run around this one has the lock, or a part of it
   69  Redis cannot be reached, or refuses: a name that is in use as another kind of lock
   75  the lock was not acquired within --wait (-E has another number for it)
   79  the lock was lost, and the command was ended
  126  the command cannot be executed
  127  the command was not found`
}

// Validate is called by the parser.
func (c *runCommand) Validate() (err error) {
	if err := errors.Join(c.lockName.Validate(), c.sharing.check(), c.waiting.check()); err != nil {
		return err
	}
	if err := c.keepFor(time.Duration(c.AtLeast)); err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	switch {
	case c.Shell != nil && len(c.Command) > 0:
		return errors.New("the command is given twice: by -c and after the name")
	case c.Shell != nil:
		c.Command = []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", *c.Shell}
	case len(c.Command) == 0:
		return errors.New("the command is missing: relock run [OPTION…] NAME -- COMMAND [ARGUMENT…]")
	}
	c.deadline, err = newDeadline(time.Duration(c.Lease), (*time.Duration)(c.Grace))
	return err
}

// Run finds the program, takes the lock, and runs the program.
func (c *runCommand) Run(s *server, std *streams) error {
	program, err := lookPath(c.Command[0])
	if err != nil {
		return err
	}
	h := newHold(s, std.err, c.deadline)
	return h.during(c.Name, c.sharing, c.waiting, func(signals <-chan os.Signal) (int, error) {
		return h.run(&command{program: program, args: c.Command}, signals)
	})
}

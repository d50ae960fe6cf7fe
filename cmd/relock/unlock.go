package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/reentrant"
)

// unlockCommand is `relock unlock`.
type unlockCommand struct {
	lockName
	Force bool `help:"Take the lock. The holder notices the loss within a third of its lease, a relock run within a tenth: until then two processes may run."`
	asJSON
}

// Help is shown by --help.
func (c *unlockCommand) Help() string {
	return `A read-write lock or a semaphore is taken from all its holders.

Exit status: 0 the lock was taken from its holders, and goes to the next waiter; 1 it was free; 64 it is held, and --force is missing.`
}

// unlocked is what --json prints.
type unlocked struct {
	Unlocked bool `json:"unlocked"`
	status        // the state just before
}

// Run reads the state of the lock, and takes it from its holders.
func (c *unlockCommand) Run(s *server, std *streams) error {
	ctx := context.Background()
	session, done, err := s.openWithin(ctx, nil)
	if err != nil {
		return err
	}
	defer done()
	var was unlocked
	if err := s.patiently(ctx, func(ctx context.Context) (err error) {
		was.status, err = statusOf(ctx, session, c.Name)
		return err
	}); err != nil {
		return err
	}
	if was.Locked && !c.Force {
		return failf(exitUsage, "lock %s is %s. Taking it away lets two run at once: --force if that is what you want",
			shown(c.Name), was.line())
	}
	if was.Locked {
		if err := within(ctx, s.patience(), func(ctx context.Context) (err error) {
			was.Unlocked, err = was.force(ctx, session)
			return err
		}); err != nil {
			return err
		}
	}
	return was.print(c.JSON, std)
}

// force takes the lock from its holders.
func (s status) force(ctx context.Context, session *reentrant.Session) (bool, error) {
	switch {
	case s.shared == nil:
		return session.NewLock(s.Name).ForceUnlock(ctx)
	case s.Kind == kindSemaphore:
		return session.NewSemaphore(s.Name, 1).ForceRelease(ctx)
	}
	return session.NewRWLock(s.Name).ForceUnlock(ctx)
}

// print prints the result.
func (u unlocked) print(json bool, std *streams) error {
	free := fail(exitFree, nil)
	if u.Unlocked {
		free = nil
	}
	switch {
	case json:
		return errors.Join(printJSON(std.out, u), free)
	case u.Unlocked:
		fmt.Fprintf(std.out, "%s unlocked; it was %s\n", shown(u.Name), u.line())
	default:
		fmt.Fprintf(std.out, "%s was free\n", shown(u.Name))
	}
	return free
}

//go:build unix

package main

import (
	"errors"
	"fmt"
	"time"
)

// waiting has the flags that say how long a command waits for its lock. They are those of flock(1).
type waiting struct {
	Wait             *seconds `short:"w" xor:"wait" placeholder:"SECONDS" help:"How long to wait for the lock, in seconds or as 5m or 1h30m; 0 tries once. Default: for ever."`
	Nonblock         bool     `short:"n" aliases:"nb,nonblocking" xor:"wait" help:"Do not wait: the same as --wait 0."`
	Quiet            bool     `short:"q" help:"Print only errors: not who has the lock meanwhile, and not that Redis does not answer."`
	ConflictExitCode int      `short:"E" default:"75" placeholder:"CODE" help:"The exit status if the lock was not acquired within --wait. Default: ${default}."`
}

// check returns an error for invalid values.
func (w waiting) check() error {
	switch {
	case w.Wait != nil && *w.Wait < 0:
		return fmt.Errorf("--wait %v: must not be negative", time.Duration(*w.Wait))
	case w.ConflictExitCode < 0 || w.ConflictExitCode > 255:
		return fmt.Errorf("--conflict-exit-code %d: must be from 0 to 255", w.ConflictExitCode)
	}
	return nil
}

// limit returns how long to wait, nil if there is no limit.
func (w waiting) limit() *time.Duration {
	if w.Nonblock {
		return new(time.Duration)
	}
	return (*time.Duration)(w.Wait)
}

// status returns err. If err says that the lock was not acquired in time, it gets the exit status of the flag.
func (w waiting) status(err error) error {
	f, ok := errors.AsType[*failure](err)
	if ok && f.code == exitNotAcquired {
		return fail(w.ConflictExitCode, f.err)
	}
	return err
}

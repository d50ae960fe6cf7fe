package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/reentrant"
)

// lockName is the lock's name, and so its key in Redis: HGETALL keygen shows its holder.
const lockName = "keygen"

// A hold is one stay of a worker in the section.
type hold struct {
	owner string // the worker's name as an owner of the lock
	token int64  // fencing token; 0 without a lock
}

// A section is a place in which only one worker of all processes should be at a time.
type section interface {
	// do runs fn in the section. The context of fn ends with the hold.
	do(ctx context.Context, fn func(ctx context.Context, hold hold) error) error
	// lost reports whether an error of do means that the hold ended before fn did.
	lost(err error) bool
}

// relockSection is a section that a lock protects. The lock's owner is the worker's goroutine.
type relockSection struct{ lock *reentrant.Lock }

func (s relockSection) do(ctx context.Context, fn func(ctx context.Context, hold hold) error) error {
	return s.lock.Do(ctx, func(ctx context.Context) error {
		token, err := s.lock.Token(ctx)
		if err != nil {
			return fmt.Errorf("token: %w", err)
		}
		return fn(ctx, hold{owner: reentrant.CurrentOwner(ctx).String(), token: int64(token)})
	})
}

func (relockSection) lost(err error) bool { return errors.Is(err, reentrant.ErrLost) }

// openSection lets every worker in at once.
type openSection struct{}

func (openSection) do(ctx context.Context, fn func(ctx context.Context, hold hold) error) error {
	return fn(ctx, hold{owner: reentrant.CurrentOwner(ctx).String()})
}

func (openSection) lost(error) bool { return false }

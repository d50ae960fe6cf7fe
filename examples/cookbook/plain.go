package cookbook

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// Plain is what most code of other libraries looks like: take, defer, work. Lock.Do does the same, and its context
// also ends when the lock is lost.
func Plain(ctx context.Context, lock *reentrant.Lock, work func(ctx context.Context) error) (err error) {
	if err := lock.Lock(ctx); err != nil {
		return err // nothing is held: there is nothing to unlock
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }() // also right if ctx has ended
	return work(ctx)
}

package cookbook

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// A Request is something that only the leader does. Its term rises with every leader.
type Request func(ctx context.Context, term reentrant.Token) error

// Lead waits until this process is the leader, and is it until ctx ends, a request fails, or the lock is lost. The
// error of a lost lock is reentrant.ErrLost: call Lead again to stand again.
func Lead(ctx context.Context, lock *reentrant.Lock, requests <-chan Request) (err error) {
	if err := lock.Lock(ctx); err != nil { // followers wait here
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }() // the next one leads at once
	lost := lock.Lost(ctx)
	for {
		select {
		case <-lost: // step down: from now on another may lead
			return nil // Unlock then returns ErrLost
		case <-ctx.Done():
			return ctx.Err()
		case request := <-requests:
			term, err := lock.Token(ctx) // ErrLost, if that came with the request
			if err == nil {
				err = request(ctx, term)
			}
			if err != nil {
				return err
			}
		}
	}
}

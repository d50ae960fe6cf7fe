package cookbook

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// Export sends rows one after the other, and sends no more when the lock is lost. It then returns reentrant.ErrLost.
func Export(ctx context.Context, lock *reentrant.Lock, rows iter.Seq[string], send func(ctx context.Context, row string) error) error {
	return lock.Do(ctx, func(ctx context.Context) error {
		for row := range rows {
			if ctx.Err() != nil {
				return context.Cause(ctx) // ErrLost, or why the caller's context ended
			}
			if err := send(ctx, row); err != nil { // send must stop with ctx, as net/http and database/sql do
				return err
			}
		}
		return nil
	})
}

// ErrTooLate is returned when what is left of the hold is too short for a step.
var ErrTooLate = errors.New("not enough of the lease is left")

// Burn takes a step that cannot be stopped once it has begun, and that takes no longer than longest. It is begun only
// if the hold is sure to last until its end, even if Redis never replies again. The caller holds the lock.
func Burn(ctx context.Context, lock *reentrant.Lock, longest time.Duration, step func() error) error {
	until, err := lock.TrustedUntil(ctx)
	if err != nil {
		return err
	}
	if time.Until(until) < longest {
		return ErrTooLate
	}
	return step()
}

package cookbook

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// Transfer moves something between two accounts while it holds both. Transfers in opposite directions do not wait for
// each other for ever: the locks are taken in the order of their names.
func Transfer(ctx context.Context, session *reentrant.Session, from, to string, move func(ctx context.Context) error) error {
	return reentrant.NewMultiLock(session.NewLock("account:"+from), session.NewLock("account:"+to)).Do(ctx, move)
}

// Print prints on the first printer that is free. If all are in use it returns reentrant.ErrNotAcquired.
func Print(ctx context.Context, printers []*reentrant.Lock, print func(ctx context.Context, printer string) error) (err error) {
	free, err := reentrant.TryAny(ctx, printers...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free.Unlock(ctx)) }()
	return free.Do(ctx, func(ctx context.Context) error { return print(ctx, free.Name()) })
}

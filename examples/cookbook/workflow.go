package cookbook

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// Continue takes up the lock of a workflow where it stands, in another process or before a restart, or takes it anew
// if it is held no more. Work under the context that it returns. The id is the workflow's secret, stored with its
// state: any process that knows it can act as the owner.
func Continue(ctx context.Context, lock *reentrant.Lock, id string) (inside context.Context, resumed bool, err error) {
	ctx = reentrant.WithPortableOwner(ctx, id)
	err = lock.Resume(ctx)
	if errors.Is(err, reentrant.ErrNotHeld) {
		return ctx, false, lock.Lock(ctx) // others may have come between: look at the state again
	}
	return ctx, err == nil, err
}

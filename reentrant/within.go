package reentrant

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// bound returns the name that the lock shares with other handles.
func (l *Lock) bound() core.Bound { return core.BoundTo(l.session.core, l.handle.Name) }

// asker returns the owner whose hold a caller asks about: the caller, or the owner of the Do in whose context it asks.
func (l *Lock) asker(ctx context.Context) (Owner, error) {
	return l.bound().Asker(ctx, l.invalid, l.handle.Has)
}

// bound returns the name that the lock shares with other handles.
func (l *RWLock) bound() core.Bound { return core.BoundTo(l.session.core, l.handle.Name) }

// asker returns the owner whose holds a caller asks about, as [Lock.asker] does.
func (l *RWLock) asker(ctx context.Context) (Owner, error) {
	return l.bound().Asker(ctx, l.invalid, l.has)
}

// has reports whether the owner has a side, or lost one and has not unlocked yet.
func (l *RWLock) has(owner Owner) bool {
	_, _, _, err := l.tier().HoldsOf(owner)
	return err == nil || errors.Is(err, ErrLost)
}

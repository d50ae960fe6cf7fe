package reentrant

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// Resume moves the hold of the caller's portable owner ([WithPortableOwner]) to this session, from another session or
// from before a restart. The hold keeps its hold count and its token. From here on it is renewed, unless the Lock has a fixed
// lease: then the hold keeps the rest of its lease. In the other session, if it still runs, the hold ends with ErrLost as soon as
// that session learns of the move; until then no owner of that session can take the lock. A hold of this very session can be
// resumed too: a Lock without a fixed lease then renews a hold that began with a fixed one.
//
// It returns [ErrNotHeld] if the owner does not have the lock anywhere; an error at once if the owner is not a portable
// one, and errors.ErrUnsupported if the backend cannot move holds; other errors are those of [Lock.Lock]. While the backend
// cannot be reached it keeps trying until ctx ends; after an error with [OutcomeUnknown] another Resume finds the hold, as
// long as its lease lasts and no other owner of this session takes the lock, or gives up waiting for it. A command that had
// no reply may still move the hold until the deadline of ctx, and for a third of the lease, at most 2 s, if ctx was
// cancelled, but not after another Resume in this session has had a reply.
//
// Any caller that knows the id is the owner: two processes that use one id do not exclude each other.
func (l *Lock) Resume(ctx context.Context) error {
	t := &exclusive.Try{Begun: l.session.core.Now()}
	err := l.error("resume", l.session.core.ExplainKind(ctx, l.handle.Remote, core.ALock, l.resume(ctx, t)))
	if err != nil {
		l.reportFailed(ctx, t.Begun, err)
	}
	return err
}

func (l *Lock) resume(ctx context.Context, t *exclusive.Try) error {
	owner, err := l.session.core.Admit(ctx, l.invalid)
	switch {
	case err != nil:
		return err
	case !core.IsPortable(owner):
		return fmt.Errorf("owner %v is known to one session only: see WithPortableOwner", owner)
	}
	remote, ok := l.handle.Remote.(backend.Resumer)
	if !ok {
		return fmt.Errorf("this backend cannot move holds: %w", errors.ErrUnsupported)
	}
	return l.handle.ResumeAs(ctx, owner, remote, t)
}

package reentrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/tier"
)

// SharedState is the state of a read-write lock or a semaphore in the whole deployment at one moment.
type SharedState = backend.SharedState

// A sharedName is what the handles RWLock and Semaphore have in common.
type sharedName struct {
	_       noCopy
	session *Session
	handle  tier.Handle
	invalid error // of an invalid name or option; every call returns it
}

// newSharedName returns what the handles of a name have in common. The caller binds it.
func (s *Session) newSharedName(name string, kind backend.ShareKind) sharedName {
	return sharedName{session: s, handle: tier.Handle{Session: s.core, Shared: s.shared, Conditions: s.conditions, Name: name, Kind: kind}}
}

// bind checks the handle's name and options, and binds its name to the backend.
func (x *sharedName) bind(opts []LockOption) {
	var l Lock
	err := l.apply(opts)
	switch {
	case x.invalid != nil:
		return
	case err != nil:
		x.invalid = err
		return
	case x.handle.Name == "":
		x.invalid = errors.New("the name of a lock must not be empty")
		return
	case strings.HasPrefix(x.handle.Name, backend.ConditionsPrefix):
		x.invalid = errReserved
		return
	case l.handle.Fixed != 0:
		x.invalid = fmt.Errorf("WithFixedLease: %w for shared holds", errors.ErrUnsupported)
		return
	case l.handle.Unfair:
		x.invalid = fmt.Errorf("WithFairness(false): %w for shared holds", errors.ErrUnsupported)
		return
	}
	x.handle.Remote, x.invalid = x.session.core.Conn.Bind(x.handle.Name)
	if x.invalid == nil {
		if _, ok := x.handle.Remote.(backend.Sharer); !ok {
			x.invalid = fmt.Errorf("the backend has no shared holds: %w", errors.ErrUnsupported)
		}
	}
}

// error adds the operation and the name to err. It returns nil if err is nil.
func (x *sharedName) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: x.handle.Name, Err: err}
}

// explainKind returns err; if it is ErrWrongKind, with what the name is in use as.
func (x *sharedName) explainKind(ctx context.Context, err error) error {
	return x.session.core.ExplainKind(ctx, x.handle.Remote, core.Kinds[x.handle.Kind], err)
}

// reportFailed reports that a call that asked for a side, or for permits, did not get them.
func (x *sharedName) reportFailed(ctx context.Context, mode Mode, permits int, t tier.Try, err error) {
	if !x.session.core.Reporting {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	x.session.core.Report(ctx, Event{Kind: EventFailed, Lock: x.handle.Name, Mode: mode, Permits: permits, Owner: core.CurrentOwner(ctx), Wait: time.Since(t.Begun), Err: err})
}

// inspect asks the server for the state of the name, for every exported method. A name of another kind is ErrWrongKind.
func (x *sharedName) inspect(ctx context.Context, op string) (SharedState, error) {
	st, err := x.read(ctx, op, x.session.core.Command)
	if err == nil && st.Kind != 0 && st.Kind != x.handle.Kind {
		return SharedState{}, x.error(op, x.handle.WrongKind(st.Kind))
	}
	return st, err
}

// read asks the server for the state of the name, which may be of another kind.
func (x *sharedName) read(ctx context.Context, op string, send sender) (st SharedState, err error) {
	err = x.command(ctx, op, send, func(ctx context.Context, remote backend.Sharer) (err error) {
		if st, err = remote.InspectShared(ctx); err == nil {
			err = check.Shared(&st)
		}
		return err
	})
	return st, err
}

// force takes all units of the name from all sessions. It reports whether a session had any.
func (x *sharedName) force(ctx context.Context, op string) (had bool, err error) {
	err = x.command(ctx, op, x.session.core.Command, func(ctx context.Context, remote backend.Sharer) (err error) {
		notAfter, _ := ctx.Deadline()
		had, err = remote.ForceShared(ctx, x.handle.Kind, notAfter)
		return err
	})
	return had, err
}

// command sends one command that belongs to no hold.
func (x *sharedName) command(ctx context.Context, op string, send sender, command func(context.Context, backend.Sharer) error) error {
	if x.invalid != nil {
		return x.error(op, x.invalid)
	}
	err := send(ctx, 1, func(ctx context.Context) error { return command(ctx, x.handle.Remote.(backend.Sharer)) })
	return x.error(op, x.explainKind(ctx, err))
}

// verify asks the server whether the session still has the units that its users hold. While the session has a command
// for the name under way, a reply without them proves nothing, and verify asks again.
func (x *sharedName) verify(ctx context.Context, holds func() error) error {
	return x.session.core.Repeat(ctx, core.Policy{
		Plain: true,
		Stop: func(last error) error {
			err := holds()
			if err == nil && last != nil && ctx.Err() != nil {
				err = core.InterruptedBy(ctx, "while the session asked for more or gave back", nil)
			}
			return x.error("verify", err)
		},
	}, func(ctx context.Context, _ core.Copy) error {
		n := x.handle.Find()
		if n == nil {
			return core.Final(x.error("verify", ErrNotHeld))
		}
		has, settled := n.Settled()
		st, err := x.read(ctx, "verify", x.session.core.Ask)
		switch {
		case err != nil:
			return core.Final(err)
		case slices.ContainsFunc(st.Holders, func(h backend.SharedHolder) bool {
			return h.Session == x.session.core.ID && h.Epoch == has.Epoch && h.Under == has.Under && h.Units >= has.Units
		}):
			return nil
		case settled && n.Refute(has.Epoch, "the server no longer had it at Verify"):
			return core.Final(x.error("verify", ErrLost))
		}
		return core.ErrUnsettled
	})
}

// Shared handles a grant of units.
func (k sink) Shared(g backend.ShareGrant) { k.s.shared.Granted(g) }

// SharedWanted handles the report that another session waits for units.
func (k sink) SharedWanted(name string, may int, try uint64) { k.s.shared.Wanted(name, may, try) }

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
	invalid error // what is wrong with the name or an option, nil if nothing is; every call returns this error
}

// newSharedName returns what the handles of a name have in common. The caller binds it.
func (s *Session) newSharedName(name string, kind backend.ShareKind) sharedName {
	return sharedName{session: s, handle: tier.Handle{Session: s.core, Shared: s.shared, Conditions: s.conditions, Name: name, Kind: kind}}
}

// bind checks the handle's name and options, and binds its name to the backend.
func (sn *sharedName) bind(opts []LockOption) {
	var l Lock
	err := l.apply(opts)
	switch {
	case sn.invalid != nil:
		return
	case err != nil:
		sn.invalid = err
		return
	case sn.handle.Name == "":
		sn.invalid = errors.New("the name of a lock must not be empty")
		return
	case strings.HasPrefix(sn.handle.Name, backend.ConditionsPrefix):
		sn.invalid = errReserved
		return
	case l.handle.Fixed != 0:
		sn.invalid = fmt.Errorf("WithFixedLease: %w for shared holds", errors.ErrUnsupported)
		return
	case l.handle.AtLeast != 0:
		sn.invalid = fmt.Errorf("WithAtLeast: %w for shared holds", errors.ErrUnsupported)
		return
	case l.handle.Unfair:
		sn.invalid = fmt.Errorf("WithFairness(false): %w for shared holds", errors.ErrUnsupported)
		return
	}
	sn.handle.MaxWaiting = l.handle.MaxWaiting
	sn.handle.Remote, sn.invalid = sn.session.core.Conn.Bind(sn.handle.Name)
	if sn.invalid == nil {
		if _, ok := sn.handle.Remote.(backend.Sharer); !ok {
			sn.invalid = fmt.Errorf("the backend has no shared holds: %w", errors.ErrUnsupported)
		}
	}
}

// error adds the operation and the name to err. It returns nil if err is nil.
func (sn *sharedName) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: sn.handle.Name, Err: err}
}

// explainWait does what error does, for a call that may have waited: its result also says who has what the call waited for.
func (sn *sharedName) explainWait(ctx context.Context, op string, err error) error {
	if err = sn.explainKind(ctx, err); err == nil {
		return nil
	}
	holders, why := sn.session.core.BehindWhom(err, sn.handle.Name, true, sn.handle.LocalHolders, sn.handle.Holders)
	return &Error{Op: op, Lock: sn.handle.Name, Holders: holders, Err: why}
}

// explainKind returns err. If it is ErrWrongKind, the result says what the name is in use as.
func (sn *sharedName) explainKind(ctx context.Context, err error) error {
	return sn.session.core.ExplainKind(ctx, sn.handle.Remote, core.Kinds[sn.handle.Kind], err)
}

// reportFailed reports that a call that asked for a side, or for permits, did not get them.
func (sn *sharedName) reportFailed(ctx context.Context, mode Mode, permits int, t tier.Try, err error) {
	if !sn.session.core.Reporting {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	sn.session.core.Report(ctx, Event{Kind: EventFailed, Lock: sn.handle.Name, Mode: mode, Permits: permits, Owner: core.CurrentOwner(ctx), Wait: time.Since(t.Begun), Err: err})
}

// inspect asks the server for the state of the name. It is the common part of the exported methods that do so. If the name has
// another kind, inspect returns ErrWrongKind.
func (sn *sharedName) inspect(ctx context.Context, op string) (SharedState, error) {
	st, err := sn.read(ctx, op, sn.session.core.Command)
	if err == nil && st.Kind != 0 && st.Kind != sn.handle.Kind {
		return SharedState{}, sn.error(op, sn.handle.WrongKind(st.Kind))
	}
	return st, err
}

// read asks the server for the state of the name, which may be of another kind.
func (sn *sharedName) read(ctx context.Context, op string, send sender) (st SharedState, err error) {
	err = sn.command(ctx, op, send, func(ctx context.Context, remote backend.Sharer) (err error) {
		if st, err = remote.InspectShared(ctx); err == nil {
			err = check.Shared(&st)
		}
		return err
	})
	return st, err
}

// force takes all units of the name from all sessions. It reports whether a session had any.
func (sn *sharedName) force(ctx context.Context, op string) (had bool, err error) {
	err = sn.command(ctx, op, sn.session.core.Command, func(ctx context.Context, remote backend.Sharer) (err error) {
		notAfter, _ := ctx.Deadline()
		had, err = remote.ForceShared(ctx, sn.handle.Kind, notAfter)
		return err
	})
	return had, err
}

// command sends one command that belongs to no hold.
func (sn *sharedName) command(ctx context.Context, op string, send sender, command func(context.Context, backend.Sharer) error) error {
	if sn.invalid != nil {
		return sn.error(op, sn.invalid)
	}
	err := send(ctx, 1, func(ctx context.Context) error { return command(ctx, sn.handle.Remote.(backend.Sharer)) })
	return sn.error(op, sn.explainKind(ctx, err))
}

// verify asks the server whether the session still has the units that its users hold. While the session has a command
// for the name under way, a reply without them proves nothing, and verify asks again.
func (sn *sharedName) verify(ctx context.Context, holds func() error) error {
	return sn.session.core.Repeat(ctx, core.Policy{
		Plain: true,
		Stop: func(last error) error {
			err := holds()
			if err == nil && last != nil && ctx.Err() != nil {
				err = core.InterruptedBy(ctx, "while the session asked for more or gave back", nil)
			}
			return sn.error("verify", err)
		},
	}, func(ctx context.Context, _ core.Copy) error {
		n := sn.handle.Find()
		if n == nil {
			return core.Final(sn.error("verify", ErrNotHeld))
		}
		has, settled := n.Settled()
		st, err := sn.read(ctx, "verify", sn.session.core.Ask)
		switch {
		case err != nil:
			return core.Final(err)
		case slices.ContainsFunc(st.Holders, func(h backend.SharedHolder) bool {
			return h.Session == sn.session.core.ID && h.Epoch == has.Epoch && h.Under == has.Under && h.Units >= has.Units
		}):
			return nil
		case settled && n.Refute(has.Epoch, "the server no longer had it at Verify"):
			return core.Final(sn.error("verify", ErrLost))
		}
		return core.ErrUnsettled
	})
}

// Shared handles a grant of units.
func (s sink) Shared(g backend.ShareGrant) { s.s.shared.Granted(g) }

// SharedWanted handles the report that another session waits for units.
func (s sink) SharedWanted(name string, may int, try uint64) { s.s.shared.Wanted(name, may, try) }

package reentrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// SharedState is the state of a read-write lock or a semaphore in the whole deployment at one moment.
type SharedState = backend.SharedState

// A sharedName is what the handles RWLock and Semaphore have in common.
type sharedName struct {
	_       noCopy
	session *Session
	name    string
	kind    backend.ShareKind
	remote  backend.Remote
	invalid error                     // of an invalid name or option; every call returns it
	latest  atomic.Pointer[share.Ref] // of the session's part that the handle used last
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
	case x.name == "":
		x.invalid = errors.New("the name of a lock must not be empty")
		return
	case strings.HasPrefix(x.name, backend.ConditionsPrefix):
		x.invalid = errReserved
		return
	case l.handle.Fixed != 0:
		x.invalid = fmt.Errorf("WithFixedLease: %w for shared holds", errors.ErrUnsupported)
		return
	case l.handle.Unfair:
		x.invalid = fmt.Errorf("WithFairness(false): %w for shared holds", errors.ErrUnsupported)
		return
	}
	x.remote, x.invalid = x.session.core.Conn.Bind(x.name)
	if x.invalid == nil {
		if _, ok := x.remote.(backend.Sharer); !ok {
			x.invalid = fmt.Errorf("the backend has no shared holds: %w", errors.ErrUnsupported)
		}
	}
}

// error adds the operation and the name to err. It returns nil if err is nil.
func (x *sharedName) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: x.name, Err: err}
}

// explainKind returns err; if it is ErrWrongKind, with what the name is in use as.
func (x *sharedName) explainKind(ctx context.Context, err error) error {
	return x.session.explainKind(ctx, x.remote, sharedKinds[x.kind], err)
}

// join returns the session's part in the name, with a reference.
func (x *sharedName) join(tier func() share.Tier) (*share.Name, error) {
	n := x.session.shared.Join(x.name, x.kind, x.remote, tier)
	switch {
	case n == nil:
		return nil, ErrClosed
	case n.Kind() != x.kind:
		n.Leave()
		return nil, x.wrongKind(n.Kind())
	}
	if ref := n.Ref(); x.latest.Load() != ref {
		x.latest.Store(ref)
	}
	return n, nil
}

// recent returns the session's part that the handle used last, nil if the session has forgotten it.
func (x *sharedName) recent() *share.Name {
	if ref := x.latest.Load(); ref != nil {
		return ref.Name()
	}
	return nil
}

// find returns the session's part in the name, nil if there is none.
func (x *sharedName) find() *share.Name {
	if n := x.recent(); n != nil {
		return n
	}
	if n := x.session.shared.Find(x.name); n != nil && n.Kind() == x.kind {
		return n
	}
	return nil
}

// A localQueue is the queue in which the callers of one session wait for a name.
type localQueue[K any, O comparable] interface {
	EnterFor(call any, claim K, mode sharedqueue.Mode) (o sharedqueue.Outcome, w *sharedqueue.Waiter[O], life uint64, look bool)
	Wait(w *sharedqueue.Waiter[O], done <-chan struct{}, timeout <-chan time.Time) (o sharedqueue.Outcome, life uint64, look bool)
}

// passQueue takes a call through the local queue. The session asks the server for the units that the queue needs. If
// the time of the call is up before the server has replied, passQueue makes one more attempt, which waits for the reply
// for at most an eighth of a command's time limit. life is the life of what the call got.
func passQueue[K any, O comparable](ctx context.Context, x *sharedName, n *share.Name, q localQueue[K, O], claim K, mode sharedqueue.Mode, asked wish, t exclusive.Try) (life uint64, ok bool, err error) {
	begun, call := time.Now(), x.session.callOf(ctx, t.Begun)
	if !t.Waits {
		mode |= sharedqueue.Once
	}
	o, life, waited := enter(ctx, x, n, q, call, claim, mode, asked, t.Timeout)
	if o == sharedqueue.TimedOut && n.Silent(begun) {
		timer := time.NewTimer(x.session.core.Config.CommandTimeout / 8)
		defer timer.Stop()
		o, life, waited = enter(ctx, x, n, q, call, claim, mode|sharedqueue.Once, asked, timer.C)
	}
	ok, err = x.outcome(ctx, n, o, waited, begun)
	return life, ok, err
}

// enter enters the local queue, and waits in it if it must.
func enter[K any, O comparable](ctx context.Context, x *sharedName, n *share.Name, q localQueue[K, O], call *sharedCall, claim K, mode sharedqueue.Mode, asked wish, timeout <-chan time.Time) (o sharedqueue.Outcome, life uint64, waited bool) {
	o, w, life, look := q.EnterFor(call, claim, mode)
	waited = o == sharedqueue.Waiting
	if look || waited && mode&sharedqueue.Once != 0 {
		n.Wake()
	}
	if waited {
		watch := x.watchWait(ctx, asked)
		if o, life, look = q.Wait(w, ctx.Done(), timeout); look {
			n.Wake()
		}
		watch.Stop()
	}
	return o, life, waited
}

// outcome returns the result of a call that went through the local queue.
func (x *sharedName) outcome(ctx context.Context, n *share.Name, o sharedqueue.Outcome, waited bool, begun time.Time) (bool, error) {
	switch o {
	case sharedqueue.Admitted, sharedqueue.Reentered:
		return true, nil
	case sharedqueue.Upgrade:
		return false, ErrUpgrade
	case sharedqueue.TooMany:
		return false, ErrTooManyHolds
	case sharedqueue.Cancelled:
		return false, core.InterruptedBy(ctx, "waiting for the lock", n.Unheard(begun))
	case sharedqueue.TimedOut:
		return false, n.Unheard(begun)
	case sharedqueue.Busy:
		if waited {
			return false, n.Err()
		}
		return false, nil
	}
	if err := n.Reason(); err != nil {
		return false, err
	}
	return false, ErrClosed
}

// inspect asks the server for the state of the name, for every exported method. A name of another kind is ErrWrongKind.
func (x *sharedName) inspect(ctx context.Context, op string) (SharedState, error) {
	st, err := x.read(ctx, op, x.session.core.Command)
	if err == nil && st.Kind != 0 && st.Kind != x.kind {
		return SharedState{}, x.error(op, x.wrongKind(st.Kind))
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

// wrongKind returns the error of a name that is in use as another kind.
func (x *sharedName) wrongKind(found backend.ShareKind) error {
	return &kindError{found: sharedKinds[found], wanted: sharedKinds[x.kind], err: backend.WithRefused(backend.ErrWrongKind)}
}

// force takes all units of the name from all sessions. It reports whether a session had any.
func (x *sharedName) force(ctx context.Context, op string) (had bool, err error) {
	err = x.command(ctx, op, x.session.core.Command, func(ctx context.Context, remote backend.Sharer) (err error) {
		notAfter, _ := ctx.Deadline()
		had, err = remote.ForceShared(ctx, x.kind, notAfter)
		return err
	})
	return had, err
}

// command sends one command that belongs to no hold.
func (x *sharedName) command(ctx context.Context, op string, send sender, command func(context.Context, backend.Sharer) error) error {
	if x.invalid != nil {
		return x.error(op, x.invalid)
	}
	err := send(ctx, 1, func(ctx context.Context) error { return command(ctx, x.remote.(backend.Sharer)) })
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
		n := x.find()
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

// An alarm notifies the users of a name that they have lost it. All of them lose it together.
type alarm struct {
	s    *session
	name string

	mu       sync.Mutex         // taken after share.Name's, before the queue's
	notifier *core.LossNotifier // of the present users; nil until one of them asks to be notified
	leaving  *sharedCall        // the call that gives up holds or permits at this moment
}

// notifierLocked returns the loss notifier of the present users. a.mu is held.
func (a *alarm) notifierLocked() *core.LossNotifier {
	if a.notifier == nil {
		a.notifier = core.NewLossNotifier()
	}
	return a.notifier
}

// tripLocked closes the channels of Lost. The returned function ends the contexts of Do, and is called without a mutex.
// a.mu is held.
func (a *alarm) tripLocked() (notify func()) {
	notifier := a.notifier
	a.notifier = nil
	if notifier == nil {
		return func() {}
	}
	notifier.CloseLost()
	return notifier.Notify
}

// report reports that an owner has lost its holds, as e describes them.
func (a *alarm) report(e Event, why string) {
	a.s.core.Counts.Lost.Add(1)
	e.Kind, e.Lock, e.Err = EventLost, a.name, fmt.Errorf("%w (%s)", ErrLost, why)
	a.s.core.Report(context.Background(), e)
}

// Shared handles a grant of units.
func (k sink) Shared(g backend.ShareGrant) { k.s.shared.Granted(g) }

// SharedWanted handles the report that another session waits for units.
func (k sink) SharedWanted(name string, may int, try uint64) { k.s.shared.Wanted(name, may, try) }

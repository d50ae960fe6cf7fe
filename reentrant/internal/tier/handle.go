// Package tier is the local tier of read-write locks and semaphores: which users of a session are inside, how a call gets in
// and out, what the users lose together, and what is reported of all that. Package share asks the server for the units that
// these users need.
package tier

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// ErrUpgrade is returned to an owner that reads and asks for the write side.
var ErrUpgrade = errors.New("the read lock is held: give it up before asking for the write lock")

// A Handle is what an RWLock or a Semaphore knows of its name. Handles of one session with equal names share a local tier.
type Handle struct {
	Session    *core.Session
	Shared     *share.Room
	Conditions *condition.Room
	Name       string
	Kind       backend.ShareKind
	Remote     backend.Remote
	MaxWaiting int                       // how many calls may wait in this session at once: a further one fails; 0: any number
	latest     atomic.Pointer[share.Ref] // the Ref of the Name that the handle used last
}

// A Try describes a call that asks for a side or for permits.
type Try struct {
	Op    string
	Waits bool
	For   time.Duration // how long it may wait; 0: until its context ends
	Begun time.Time     // zero if the session reports no events
}

// TryFor returns a try that waits for at most wait, and not at all if wait is zero or less.
func TryFor(op string, wait time.Duration) Try {
	return Try{Op: op, Waits: wait > 0, For: max(wait, 0)}
}

// WrongKind returns the error of a name that is in use as another kind.
func (h *Handle) WrongKind(found backend.ShareKind) error {
	return &core.KindError{Found: core.Kinds[found], Wanted: core.Kinds[h.Kind], Err: backend.WithRefused(backend.ErrWrongKind)}
}

// join returns the session's part in the name, with a reference.
func (h *Handle) join(tier func() share.Tier) (*share.Name, error) {
	n := h.Shared.Join(h.Name, h.Kind, h.Remote, tier)
	switch {
	case n == nil:
		return nil, core.ErrClosed
	case n.Kind() != h.Kind:
		n.Leave()
		return nil, h.WrongKind(n.Kind())
	}
	if ref := n.Ref(); h.latest.Load() != ref {
		h.latest.Store(ref)
	}
	return n, nil
}

// Recent returns the session's part in the name that the handle used last, nil if the session has forgotten that part.
func (h *Handle) Recent() *share.Name {
	if ref := h.latest.Load(); ref != nil {
		return ref.Name()
	}
	return nil
}

// Find returns the session's part in the name, nil if there is none.
func (h *Handle) Find() *share.Name {
	if n := h.Recent(); n != nil {
		return n
	}
	if n := h.Shared.Find(h.Name); n != nil && n.Kind() == h.Kind {
		return n
	}
	return nil
}

// A localQueue is the queue in which the callers of one session wait for a name.
type localQueue[K any, O comparable] interface {
	EnterFor(call any, claim K, mode sharedqueue.Mode, most int) (o sharedqueue.Outcome, w *sharedqueue.Waiter[O], life uint64, look bool)
	Wait(w *sharedqueue.Waiter[O], done <-chan struct{}, timeout <-chan time.Time) (o sharedqueue.Outcome, life uint64, look bool)
}

// enterQueue takes a call through the local queue. The session asks the server for the units that the queue needs. If the time
// of the call is up before the server has replied, enterQueue makes one more attempt, so that the server has an eighth of a
// command's time limit for its reply; if the time is up while the session waits at the server, a waitLimit asks the server once
// more. life is that of the tier when the call got a hold or permits: once the tier's Life has changed, they are lost.
func enterQueue[K any, O comparable](ctx context.Context, h *Handle, n *share.Name, q localQueue[K, O], claim K, mode sharedqueue.Mode, asked wish, t Try) (life uint64, ok bool, err error) {
	begun, call := time.Now(), h.callOf(ctx, t.Begun)
	if !t.Waits {
		mode |= sharedqueue.Once
	}
	end, since := h.limitOf(n, t, begun), begun
	defer end.stop()
	o, life := enter(ctx, h, n, q, call, claim, mode, asked, end.ends())
	if o == sharedqueue.TimedOut {
		if !end.unheard.IsZero() {
			since = end.unheard
		}
		silent, unanswered := n.Silent(begun)
		if left := h.Session.Config.CommandTimeout/8 - unanswered; silent && left > 0 {
			timer := time.NewTimer(left)
			defer timer.Stop()
			o, life = enterOnce(ctx, h, n, q, call, claim, mode, asked, since, timer.C)
		}
	}
	ok, err = h.outcome(ctx, n, o, since)
	return life, ok, err
}

// enterOnce makes one more attempt. If others of this session wait for the server's reply, enterOnce waits for the same
// reply, and then makes the attempt again. It does not line up behind them, since they may go on waiting after that reply.
func enterOnce[K any, O comparable](ctx context.Context, h *Handle, n *share.Name, q localQueue[K, O], call *sharedCall, claim K, mode sharedqueue.Mode, asked wish, since time.Time, timeout <-chan time.Time) (o sharedqueue.Outcome, life uint64) {
	for {
		o, life = enter(ctx, h, n, q, call, claim, mode|sharedqueue.Once, asked, timeout)
		if o != sharedqueue.Busy {
			return o, life
		}
		heard := n.NextWord(since)
		if heard == nil {
			return o, life
		}
		select {
		case err := <-heard:
			if err != nil {
				return sharedqueue.Unanswered, 0
			}
		case <-timeout:
			return sharedqueue.TimedOut, 0
		case <-ctx.Done():
			return sharedqueue.Cancelled, 0
		}
	}
}

// enter enters the local queue, and waits in it if it must.
func enter[K any, O comparable](ctx context.Context, h *Handle, n *share.Name, q localQueue[K, O], call *sharedCall, claim K, mode sharedqueue.Mode, asked wish, timeout <-chan time.Time) (o sharedqueue.Outcome, life uint64) {
	o, w, life, look := q.EnterFor(call, claim, mode, h.MaxWaiting)
	if look {
		n.Wake()
	}
	if o == sharedqueue.Waiting {
		watch := h.watchWait(ctx, asked)
		if o, life, look = q.Wait(w, ctx.Done(), timeout); look {
			n.Wake()
		}
		watch.Stop()
	}
	return o, life
}

// outcome returns the result of a call that went through the local queue.
func (h *Handle) outcome(ctx context.Context, n *share.Name, o sharedqueue.Outcome, begun time.Time) (bool, error) {
	switch o {
	case sharedqueue.Admitted, sharedqueue.Reentered:
		return true, nil
	case sharedqueue.Upgrade:
		return false, ErrUpgrade
	case sharedqueue.Full:
		return false, core.QueueFull(h.MaxWaiting)
	case sharedqueue.TooMany:
		return false, core.ErrTooManyHolds
	case sharedqueue.Cancelled:
		if err := n.Interrupted(begun); err != nil {
			return false, core.InterruptedBy(ctx, "waiting for Redis", err)
		}
		return false, core.Outwaited(ctx, "others come first")
	case sharedqueue.TimedOut:
		return false, n.Unheard(begun)
	case sharedqueue.Busy:
		return false, nil
	case sharedqueue.Unanswered:
		return false, n.Failed()
	}
	if err := n.Reason(); err != nil {
		return false, err
	}
	return false, core.ErrClosed
}

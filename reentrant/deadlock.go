package reentrant

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/deadlock"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// A DeadlockError ends the wait of an owner that would wait for ever: for a lock whose holder waits for a lock whose
// holder … waits for one that the owner holds. The caller still holds its locks, and must release them so that the others can
// go on. A cycle that a hold with a fixed lease is part of ends by itself, and is not reported.
type DeadlockError struct {
	Cycle []Blocked // the caller first; each waits for a lock that the next holds, the last for one of the caller's
	_     struct{}
}

// Blocked is one owner of a cycle.
type Blocked struct {
	Session string
	Owner   string // as Owner.String prints it
	Lock    string // the lock that the owner waits for
	Stack   string // the stack of the goroutine that waits; "" if it is not one of this session
	_       struct{}
}

func (e *DeadlockError) Error() string {
	var text strings.Builder
	text.WriteString("deadlock")
	separator := ": "
	for i, b := range e.Cycle {
		next := e.Cycle[(i+1)%len(e.Cycle)]
		fmt.Fprintf(&text, "%sowner %s of session %s waits for %q, which owner %s of session %s holds",
			separator, core.Shown(b.Owner), core.Shown(b.Session), b.Lock, core.Shown(next.Owner), core.Shown(next.Session))
		separator = "; "
	}
	return text.String()
}

// newDeadlockError returns the error for a cycle.
func newDeadlockError(c deadlock.Cycle) error {
	e := &DeadlockError{}
	for _, l := range c {
		e.Cycle = append(e.Cycle, Blocked{Session: l.Session, Owner: l.Owner, Lock: l.Lock, Stack: l.Stack})
	}
	return e
}

// newDetector returns a running detector. Without a backend.Registry it finds only the cycles within the session.
func newDetector(s *session) *deadlock.Detector[Owner] {
	registry, ok := s.core.Conn.(backend.Registry)
	d := deadlock.New(waitGraph{s, registry}, s.core.Config.Heartbeat, s.core.Config.CommandTimeout)
	if ok {
		d.Start()
	}
	return d
}

// takeWithDetector takes the lock for an owner that waits without a time limit.
func (l *Lock) takeWithDetector(ctx context.Context, owner Owner, d *deadlock.Detector[Owner], t *exclusive.Try) (bool, error) {
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w, cycle := d.Begin(owner, l.handle.Name, func(c deadlock.Cycle) { cancel(newDeadlockError(c)) })
	if cycle != nil {
		return false, newDeadlockError(cycle)
	}
	ok, err := l.handle.TakeAs(watched, owner, t)
	d.End(owner, w)
	if deadlock, ok := errors.AsType[*DeadlockError](context.Cause(watched)); ok && err != nil && ctx.Err() == nil {
		err = deadlock
	}
	return ok, err
}

// A waitGraph is the session as its deadlock detector sees it.
type waitGraph struct {
	s        *session
	registry backend.Registry // nil if the backend keeps no records
}

// ID returns the id of the session.
func (w waitGraph) ID() string { return w.s.core.ID }

// Holder returns the owner of this session that has a lock, unless the owner's hold ends by itself.
func (w waitGraph) Holder(name string) (owner Owner, held bool) {
	return w.s.locks.UnboundedHolder(name)
}

// Held returns the locks that each owner of the session holds until it unlocks.
func (w waitGraph) Held() map[Owner][][]byte { return w.s.locks.UnboundedHolders() }

// Inspect asks the backend for the holder of a lock.
func (w waitGraph) Inspect(ctx context.Context, name string) (backend.State, error) {
	remote, err := w.s.core.Conn.Bind(name)
	if err != nil {
		return backend.State{}, err
	}
	w.s.core.Counts.Commands.Add(1)
	return remote.Inspect(ctx)
}

// Register puts this session's record where others read it.
func (w waitGraph) Register(ctx context.Context, text string) error {
	w.s.core.Counts.Commands.Add(1)
	return w.registry.Register(ctx, text, w.s.core.Config.Patience)
}

// Registered reads a session's record.
func (w waitGraph) Registered(ctx context.Context, session string) (string, error) {
	w.s.core.Counts.Commands.Add(1)
	return w.registry.Registered(ctx, session)
}

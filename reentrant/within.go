package reentrant

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// A running is a Do that has not returned. Its context carries its owner, if that is a goroutine, for questions about its
// holds: the goroutines that fn starts can ask them too. It carries no right to unlock.
type running struct {
	names []boundName // of the locks that it holds
	owner Owner
	over  atomic.Bool // set when Do returns: later holds of the owner do not belong to this context
	outer *running    // the Do in which it runs, if there is one
}

// A boundName is what all handles with one name of one session have in common.
type boundName struct {
	session *Session
	name    string
}

type runningKey struct{}

// runningIn returns the innermost Do in whose context a call is made, nil if there is none.
func runningIn(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	return r
}

// inside returns the context of a Do by ctx's owner, and a function to be called when it returns.
func inside(ctx context.Context, names ...boundName) (context.Context, func()) {
	if core.IsShared(core.CurrentOwner(ctx)) { // ctx carries it already
		return ctx, func() {}
	}
	return carry(ctx, names...)
}

// carry is inside for any owner, of a Do whose holds have none: only the report of a long wait asks about it.
func carry(ctx context.Context, names ...boundName) (context.Context, func()) {
	r := &running{names: names, owner: core.CurrentOwner(ctx), outer: runningIn(ctx)}
	return context.WithValue(ctx, runningKey{}, r), func() { r.over.Store(true) }
}

// holds reports whether the Do holds the name.
func (r *running) holds(n boundName) bool { return !r.over.Load() && slices.Contains(r.names, n) }

// has reports whether the Do, or one around it, has what goes by that name in a session.
func (r *running) has(s *session, name string) bool {
	is := func(n boundName) bool { return n.name == name && n.session.session == s }
	for ; r != nil; r = r.outer {
		if !r.over.Load() && slices.ContainsFunc(r.names, is) {
			return true
		}
	}
	return false
}

// asker returns the owner that a question is about: the caller, or the owner of the Do whose context this is, if ctx names
// no owner and the calling goroutine has no hold itself. invalid is the handle's error, has reports whether an owner has a
// hold.
func (n boundName) asker(ctx context.Context, invalid error, has func(Owner) bool) (Owner, error) {
	owner, err := n.session.core.Caller(ctx, invalid)
	if err != nil || core.IsShared(owner) {
		return owner, err
	}
	r := runningIn(ctx)
	for r != nil && !r.holds(n) {
		r = r.outer
	}
	if r == nil || has(owner) {
		return owner, nil
	}
	return r.owner, nil
}

// bound returns the name that the lock shares with other handles.
func (l *Lock) bound() boundName { return boundName{l.session, l.name} }

// asker returns the owner that a question about the lock is about.
func (l *Lock) asker(ctx context.Context) (Owner, error) {
	return l.bound().asker(ctx, l.invalid, l.has)
}

// has reports whether the owner has the lock, or lost it and has not been evicted yet.
func (l *Lock) has(owner Owner) (has bool) {
	l.withState(func(e *lockState) {
		e.mu.Lock()
		defer e.mu.Unlock()
		has = e.hold.belongsTo(owner)
	})
	return has
}

// bound returns the name that the lock shares with other handles.
func (l *RWLock) bound() boundName { return boundName{l.session, l.name} }

// asker returns the owner that a question about the lock is about.
func (l *RWLock) asker(ctx context.Context) (Owner, error) {
	return l.bound().asker(ctx, l.invalid, l.has)
}

// has reports whether the owner has a side, or lost one and has not unlocked yet.
func (l *RWLock) has(owner Owner) bool {
	_, _, _, err := l.holdsOf(owner)
	return err == nil || errors.Is(err, ErrLost)
}

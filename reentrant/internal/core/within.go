package core

import (
	"context"
	"slices"
	"sync/atomic"
)

// A Running is a Do that has not returned. If its owner is a goroutine, the context that Do passes to fn carries the Running:
// so the goroutines that fn starts can ask about the owner's holds too, but they have no right to unlock.
type Running struct {
	names []Bound // of the locks that it holds
	owner Owner
	over  atomic.Bool // set when Do returns: later holds of the owner do not belong to this context
	outer *Running    // the Do in which it runs, if there is one
}

// A Bound is a name in a session. All handles with that name are bound to it.
type Bound struct {
	session *Session
	name    string
}

// BoundTo returns the Bound of all handles with a name.
func BoundTo(s *Session, name string) Bound { return Bound{s, name} }

type runningKey struct{}

// RunningIn returns the innermost Do in whose context a call is made, nil if there is none.
func RunningIn(ctx context.Context) *Running {
	r, _ := ctx.Value(runningKey{}).(*Running)
	return r
}

// Inside returns the context of a Do by ctx's owner, and a function to be called when the Do returns.
func Inside(ctx context.Context, names ...Bound) (context.Context, func()) {
	if IsShared(CurrentOwner(ctx)) { // ctx carries the owner already
		return ctx, func() {}
	}
	return Carry(ctx, names...)
}

// Carry does what Inside does, also if ctx names its owner. It is called directly for permits: they have no owner, and only the
// report of a long wait asks about a Do that has permits.
func Carry(ctx context.Context, names ...Bound) (context.Context, func()) {
	r := &Running{names: names, owner: CurrentOwner(ctx), outer: RunningIn(ctx)}
	return context.WithValue(ctx, runningKey{}, r), func() { r.over.Store(true) }
}

// holds reports whether the Do holds the name.
func (r *Running) holds(n Bound) bool { return !r.over.Load() && slices.Contains(r.names, n) }

// has reports whether the Do, or one around it, has the lock, or permits of the semaphore, with that name in session s.
func (r *Running) has(s *Session, name string) bool {
	is := func(n Bound) bool { return n.name == name && n.session == s }
	for ; r != nil; r = r.outer {
		if !r.over.Load() && slices.ContainsFunc(r.names, is) {
			return true
		}
	}
	return false
}

// Asker returns the owner that a question is about: the caller, or the owner of the Do whose context this is, if ctx names
// no owner and the calling goroutine has no hold itself. invalid is the handle's error, nil if the handle is valid. has reports
// whether an owner has a hold.
func (b Bound) Asker(ctx context.Context, invalid error, has func(Owner) bool) (Owner, error) {
	owner, err := b.session.Caller(ctx, invalid)
	if err != nil || IsShared(owner) {
		return owner, err
	}
	r := RunningIn(ctx)
	for r != nil && !r.holds(b) {
		r = r.outer
	}
	if r == nil || has(owner) {
		return owner, nil
	}
	return r.owner, nil
}

package reentrant

import (
	"context"
	"slices"
	"sync/atomic"
)

// A running is a Do that has not returned. Its context carries its owner, if that is a goroutine, for questions about its
// locks: the goroutines that fn starts can ask them too. It carries no right to unlock.
type running struct {
	locks []*Lock
	owner Owner
	over  atomic.Bool // set when Do returns: later holds of the owner do not belong to this context
	outer *running    // the Do in which it runs, if there is one
}

type runningKey struct{}

// inside returns the context of a Do by ctx's owner, and a function to be called when it returns.
func inside(ctx context.Context, locks ...*Lock) (context.Context, func()) {
	owner := CurrentOwner(ctx)
	if owner.shared() { // ctx carries it already
		return ctx, func() {}
	}
	r := &running{locks: locks, owner: owner}
	r.outer, _ = ctx.Value(runningKey{}).(*running)
	return context.WithValue(ctx, runningKey{}, r), func() { r.over.Store(true) }
}

// holds reports whether the Do holds a lock, by whichever handle.
func (r *running) holds(l *Lock) bool {
	return !r.over.Load() && slices.ContainsFunc(r.locks, func(x *Lock) bool { return x.name == l.name && x.session == l.session })
}

// asker returns the owner that a question is about: the caller, or the owner of the Do whose context this is, if ctx names
// no owner and the calling goroutine does not have the lock itself.
func (l *Lock) asker(ctx context.Context) (Owner, error) {
	owner, err := l.session.caller(ctx, l.invalid)
	if err != nil || owner.shared() {
		return owner, err
	}
	r, _ := ctx.Value(runningKey{}).(*running)
	for r != nil && !r.holds(l) {
		r = r.outer
	}
	if r == nil || l.has(owner) {
		return owner, nil
	}
	return r.owner, nil
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

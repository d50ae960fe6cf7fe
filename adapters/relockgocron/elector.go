package relockgocron

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-co-op/gocron/v2"

	"github.com/relock-go/relock/reentrant"
)

// ErrNotLeader is returned by [Elector.IsLeader] when another process is the leader.
var ErrNotLeader = errors.New("another process is the leader")

// An Elector makes one process the leader, which alone runs jobs. The leader holds a lock until it resigns, dies or loses
// the lock. An Elector is safe for concurrent use.
type Elector struct {
	lock  *reentrant.Lock
	owner string
	turn  chan struct{} // 1-buffered: one campaign at a time, so that the lock is held once
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector; the processes that use the same name have one leader.
func NewElector(session *reentrant.Session, name string) *Elector {
	return &Elector{lock: session.NewLock(name), owner: rand.Text(), turn: make(chan struct{}, 1)}
}

// IsLeader returns nil if this process is the leader, or becomes it now. The leader's check sends nothing; any other
// process makes one attempt to take the lock. It returns an error for which errors.Is(err, [ErrNotLeader]) if another
// process is the leader; any other error is that of [reentrant.Lock.TryLock], or ctx's.
func (e *Elector) IsLeader(ctx context.Context) error {
	owner := reentrant.WithOwner(ctx, e.owner)
	if e.lock.IsHeldByCurrentOwner(owner) {
		return nil
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.campaign(owner)
}

// campaign takes the lock if it is free. The caller has the turn.
func (e *Elector) campaign(ctx context.Context) error {
	if e.lock.IsHeldByCurrentOwner(ctx) {
		return nil
	}
	ok, err := e.lock.TryLock(ctx)
	if errors.Is(err, reentrant.ErrLost) { // the hold of an earlier term was lost: try for the next term
		ok, err = e.lock.TryLock(ctx)
	}
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("relockgocron: %q: %w", e.lock.Name(), ErrNotLeader)
	}
	return nil
}

// Resign gives the leadership up, if this process has it, so that another can take it at once. It works under a ctx that
// has ended. Errors are those of [reentrant.Lock.Unlock].
func (e *Elector) Resign(ctx context.Context) error {
	owner := reentrant.WithOwner(ctx, e.owner)
	if !e.lock.IsHeldByCurrentOwner(owner) {
		return nil
	}
	return e.lock.Unlock(owner)
}

package reentrant

import (
	"context"
	"sync"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
)

// InspectAll asks Redis for the states of many locks, as [Lock.Inspect] does for one, and returns them in the order of the
// names. All are asked for at once: they take one round trip to each node, and together no longer than one command may take.
// Each counts as a command in [Stats]. With redisbackend.WithoutScripts a lock takes two round trips, and eight locks are
// asked for at a time.
//
// The states are not of one moment: a lock may change hands between two of them. If a lock could not be read, InspectAll
// returns no states, and the error that Lock.Inspect would return for the first such lock. ctx bounds it. Without names it
// sends nothing. In a session that is closed or closing it returns [ErrClosed].
func (s *Session) InspectAll(ctx context.Context, names ...string) ([]State, error) {
	if len(names) == 0 {
		return nil, nil
	}
	const op = "inspect"
	locks, asked := make([]*Lock, len(names)), make([]backend.Inspection, len(names))
	for i, name := range names {
		l := s.NewLock(name)
		if l.invalid != nil {
			return nil, l.error(op, l.invalid)
		}
		locks[i], asked[i].Remote = l, l.remote
	}
	failed := locks[0]
	err := s.command(ctx, uint64(len(names)), func(ctx context.Context) error {
		s.inspectAll(ctx, asked)
		for i := range asked {
			err := asked[i].Err
			if err == nil {
				err = check.State(&asked[i].State)
			}
			if err != nil {
				failed = locks[i]
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, failed.error(op, err)
	}
	states := make([]State, len(asked))
	for i := range asked {
		states[i] = asked[i].State
	}
	return states, nil
}

// inspectAll has the backend read all locks.
func (s *session) inspectAll(ctx context.Context, asked []backend.Inspection) {
	if all, ok := s.conn.(backend.Inspector); ok {
		all.InspectAll(ctx, asked)
		return
	}
	var commands sync.WaitGroup
	for i := range asked {
		commands.Go(func() { asked[i].State, asked[i].Err = asked[i].Remote.Inspect(ctx) })
	}
	commands.Wait()
}

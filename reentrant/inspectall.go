package reentrant

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
)

// InspectAll asks Redis for the states of many locks, as [Lock.Inspect] does for one, and returns them in the order of the
// names. All are asked for together: that takes one round trip to each node, and no longer than one command may take. Each
// lock counts as a command in [Stats]. With redisbackend.WithoutScripts a lock takes two round trips, and eight locks are
// asked for at a time.
//
// A name that cannot be read does not keep the others from being read: one that is not valid, is in use as another kind of
// lock, or whose key has something else. Its State has nothing but Err, the error that Lock.Inspect would return, and the
// session logs a warning that lists such names, once for each until it can be read again. After any other error InspectAll
// returns no states, and the error of the first lock that has one.
//
// The states are not of one moment: a lock may change hands between two of them. ctx bounds the call. Without names InspectAll
// sends nothing. In a session that is closed or closing it returns [ErrClosed].
func (s *Session) InspectAll(ctx context.Context, names ...string) ([]State, error) {
	if len(names) == 0 {
		return nil, nil
	}
	const op = "inspect"
	states := make([]State, len(names))
	var asked []backend.Inspection
	var locks []*Lock // the locks with valid names
	var places []int  // where in names the name of each of these locks is
	for i, name := range names {
		l := s.NewLock(name)
		if l.invalid != nil {
			states[i].Err = l.error(op, l.invalid)
			continue
		}
		asked, locks, places = append(asked, backend.Inspection{Remote: l.handle.Remote}), append(locks, l), append(places, i)
	}
	failed := ""
	err := s.core.Command(ctx, uint64(len(asked)), func(ctx context.Context) error {
		s.inspectAll(ctx, asked)
		for i, a := range asked {
			if a.Err == nil {
				a.Err = check.State(&a.State)
			}
			switch l := locks[i]; {
			case a.Err == nil:
				states[places[i]] = a.State
			case unreadable(a.Err):
				states[places[i]].Err = l.error(op, a.Err)
			default:
				failed = l.handle.Name
				return a.Err
			}
		}
		return nil
	})
	if err != nil {
		return nil, &Error{Op: op, Lock: cmp.Or(failed, names[0]), Err: err}
	}
	s.logUnreadable(names, states)
	return states, nil
}

// unreadable reports whether the error of one lock says nothing about the others.
func unreadable(err error) bool {
	return errors.Is(err, ErrWrongKind) || errors.Is(err, check.ErrImpossible)
}

// unreadableNames are the names that InspectAll could not read the last time that it tried. The log has a line about each.
type unreadableNames struct {
	mu sync.Mutex // a leaf
	of map[string]struct{}
}

// mostUnreadable is how many unreadable names are remembered. A name that was forgotten is logged once more.
const mostUnreadable = 1024

// note records whether a name could be read. It reports whether there is news: the name could not be read, and that was not
// known.
func (u *unreadableNames) note(name string, readable bool) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.of[name]; known || readable {
		if readable {
			delete(u.of, name)
		}
		return false
	}
	if u.of == nil || len(u.of) >= mostUnreadable {
		u.of = make(map[string]struct{})
	}
	u.of[name] = struct{}{}
	return true
}

// logUnreadable logs the names that could not be read, and could before, in one line.
func (s *session) logUnreadable(names []string, states []State) {
	var skipped []string
	var first error
	for i, st := range states {
		if s.unreadable.note(names[i], st.Err == nil) {
			skipped, first = append(skipped, names[i]), cmp.Or(first, st.Err)
		}
	}
	if first != nil {
		s.core.Log(slog.LevelWarn, "some locks could not be read", slog.Any("locks", skipped), slog.Any("error", first))
	}
}

// inspectAll asks the backend for the state of each lock.
func (s *session) inspectAll(ctx context.Context, asked []backend.Inspection) {
	if all, ok := s.core.Conn.(backend.Inspector); ok {
		all.InspectAll(ctx, asked)
		return
	}
	var commands sync.WaitGroup
	for i := range asked {
		commands.Go(func() { asked[i].State, asked[i].Err = asked[i].Remote.Inspect(ctx) })
	}
	commands.Wait()
}

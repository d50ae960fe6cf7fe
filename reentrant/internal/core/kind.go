package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
)

// A KindError is ErrWrongKind with the kind of lock that the name is in use as. The server's words are in its chain,
// not in its text.
type KindError struct {
	Found, Wanted string
	Idle          bool // no session has the name or waits for it: it is kept for that kind for a while
	Err           error
}

func (e *KindError) Error() string {
	if e.Idle {
		return fmt.Sprintf("the name was in use as %s, and is not free for %s yet", e.Found, e.Wanted)
	}
	return fmt.Sprintf("the name is in use as %s, not as %s", e.Found, e.Wanted)
}

func (e *KindError) Unwrap() error { return e.Err }

// What a name can be in use as.
const (
	ALock     = "a lock"
	otherData = "a key with other data"
)

// Kinds are what the names of shared holds are in use as.
var Kinds = map[backend.ShareKind]string{backend.ReadWrite: "a read-write lock", backend.Permits: "a semaphore"}

// ExplainKind returns err; if it is ErrWrongKind, with what the name is in use as. It asks the server for that, with two
// commands at most, and only then. ctx bounds them.
func (s *Session) ExplainKind(ctx context.Context, remote backend.Remote, wanted string, err error) error {
	if !errors.Is(err, backend.ErrWrongKind) {
		return err
	}
	if _, explained := errors.AsType[*KindError](err); explained {
		return err
	}
	if found, idle := s.kindOf(ctx, remote); found != "" && found != wanted {
		return &KindError{found, wanted, idle, err}
	}
	return err
}

// kindOf asks the server what a name is in use as, and whether any session has it or waits for it. found is "" if the server
// does not say, or the name is not in use any more.
func (s *Session) kindOf(ctx context.Context, remote backend.Remote) (found string, idle bool) {
	if sharer, ok := remote.(backend.Sharer); ok {
		var st backend.SharedState
		err := s.Command(ctx, 1, func(ctx context.Context) (err error) {
			st, err = sharer.InspectShared(ctx)
			return err
		})
		if !errors.Is(err, backend.ErrWrongKind) {
			return Kinds[st.Kind], len(st.Holders)+len(st.Waiting) == 0
		}
	}
	var st backend.State
	err := s.Command(ctx, 1, func(ctx context.Context) (err error) {
		st, err = remote.Inspect(ctx)
		return err
	})
	switch {
	case err == nil:
		return ALock, !st.Locked && len(st.Waiting) == 0
	case errors.Is(err, backend.ErrWrongKind):
		return otherData, false
	}
	return "", false
}

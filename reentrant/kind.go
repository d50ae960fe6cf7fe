package reentrant

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
)

// A kindError is ErrWrongKind with the kind of lock that the name is in use as. The server's words are in its chain,
// not in its text.
type kindError struct {
	found, wanted string
	idle          bool // no session has the name or waits for it: it is kept for that kind for a while
	err           error
}

func (e *kindError) Error() string {
	if e.idle {
		return fmt.Sprintf("the name was in use as %s, and is not free for %s yet", e.found, e.wanted)
	}
	return fmt.Sprintf("the name is in use as %s, not as %s", e.found, e.wanted)
}

func (e *kindError) Unwrap() error { return e.err }

// What a name can be in use as.
const (
	aLock     = "a lock"
	otherData = "a key with other data"
)

var sharedKinds = map[backend.ShareKind]string{backend.ReadWrite: "a read-write lock", backend.Permits: "a semaphore"}

// explainKind returns err; if it is ErrWrongKind, with what the name is in use as. It asks the server for that, with two
// commands at most, and only then. ctx bounds them.
func (s *session) explainKind(ctx context.Context, remote backend.Remote, wanted string, err error) error {
	if !errors.Is(err, ErrWrongKind) {
		return err
	}
	if _, explained := errors.AsType[*kindError](err); explained {
		return err
	}
	if found, idle := s.kindOf(ctx, remote); found != "" && found != wanted {
		return &kindError{found, wanted, idle, err}
	}
	return err
}

// kindOf asks the server what a name is in use as, and whether any session has it or waits for it. found is "" if the server
// does not say, or the name is not in use any more.
func (s *session) kindOf(ctx context.Context, remote backend.Remote) (found string, idle bool) {
	if sharer, ok := remote.(backend.Sharer); ok {
		var st SharedState
		err := s.core.Command(ctx, 1, func(ctx context.Context) (err error) {
			st, err = sharer.InspectShared(ctx)
			return err
		})
		if !errors.Is(err, ErrWrongKind) {
			return sharedKinds[st.Kind], len(st.Holders)+len(st.Waiting) == 0
		}
	}
	var st State
	err := s.core.Command(ctx, 1, func(ctx context.Context) (err error) {
		st, err = remote.Inspect(ctx)
		return err
	})
	switch {
	case err == nil:
		return aLock, !st.Locked && len(st.Waiting) == 0
	case errors.Is(err, ErrWrongKind):
		return otherData, false
	}
	return "", false
}

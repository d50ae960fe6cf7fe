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
	Key           string // the key that has other data, which Found describes; "" if the server does not say
	Idle          bool   // no session has the name or waits for it, but the server keeps it for that kind for a while
	Err           error
}

func (e *KindError) Error() string {
	switch {
	case e.Key != "":
		return fmt.Sprintf("the key %q holds %s, not %s", e.Key, e.Found, e.Wanted)
	case e.Idle:
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

// ExplainKind returns err. If it is ErrWrongKind, ExplainKind asks the server, with two commands at most, which ctx bounds, and
// the result says what the name is in use as, if that is known.
func (s *Session) ExplainKind(ctx context.Context, remote backend.Remote, wanted string, err error) error {
	if !errors.Is(err, backend.ErrWrongKind) {
		return err
	}
	if _, explained := errors.AsType[*KindError](err); explained {
		return err
	}
	e := s.kindOf(ctx, remote)
	if e.Found == "" || e.Found == wanted {
		return err
	}
	e.Wanted, e.Err = wanted, err
	return e
}

// kindOf asks the server what a name is in use as, and whether any session has it or waits for it. Found is "" if the server
// does not say, or the name is not in use any more.
func (s *Session) kindOf(ctx context.Context, remote backend.Remote) *KindError {
	if sharer, ok := remote.(backend.Sharer); ok {
		var st backend.SharedState
		err := s.Command(ctx, 1, func(ctx context.Context) (err error) {
			st, err = sharer.InspectShared(ctx)
			return err
		})
		if !errors.Is(err, backend.ErrWrongKind) {
			return &KindError{Found: Kinds[st.Kind], Idle: len(st.Holders)+len(st.Waiting) == 0}
		}
	}
	var st backend.State
	err := s.Command(ctx, 1, func(ctx context.Context) (err error) {
		st, err = remote.Inspect(ctx)
		return err
	})
	other, named := errors.AsType[*backend.OtherDataError](err)
	switch {
	case err == nil:
		return &KindError{Found: ALock, Idle: !st.Locked && len(st.Waiting) == 0}
	case named:
		return &KindError{Found: other.Data, Key: other.Key}
	case errors.Is(err, backend.ErrWrongKind):
		return &KindError{Found: otherData}
	}
	return &KindError{}
}

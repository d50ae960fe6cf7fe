package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var (
	_ backend.Noter      = (*remote)(nil)
	_ backend.ShareNoter = (*remote)(nil)
)

// Note implements backend.Noter.
func (r *remote) Note(ctx context.Context, req backend.NoteRequest) (bool, error) {
	return r.note(ctx, req, func(now protocol.Instant) bool { return r.lock().SetNote(now, r.c.session, req) })
}

// NoteShared implements backend.ShareNoter.
func (r *remote) NoteShared(ctx context.Context, req backend.NoteRequest) (bool, error) {
	return r.note(ctx, req, func(now protocol.Instant) bool {
		s, err := r.c.b.sharedLocked(r.name, now)
		return err == nil && s.SetNote(now, r.c.session, req)
	})
}

// note sends a command with a note. The server stores the note by calling set, which reports whether it did.
func (r *remote) note(ctx context.Context, req backend.NoteRequest, set func(protocol.Instant) bool) (bool, error) {
	if len(req.Text) > backend.MaxNote {
		return false, errors.New("memory: the note is too long")
	}
	op := r.op(Note, req.Epoch)
	kept, err := call(ctx, r.c, op, func(now protocol.Instant) (bool, line) {
		kept := set(now)
		return kept, func() string { return fmt.Sprintf("%s → %s", op, either(kept, "kept", "gone")) }
	})
	return kept, wrapped(op, err)
}

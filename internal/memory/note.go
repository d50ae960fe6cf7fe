package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var _ backend.Noter = (*remote)(nil)

// Note implements backend.Noter.
func (r *remote) Note(ctx context.Context, req backend.NoteRequest) (bool, error) {
	if len(req.Text) > backend.MaxNote {
		return false, errors.New("memory: the note is too long")
	}
	op := r.op(Note, req.Epoch)
	kept, err := call(ctx, r.c, op, func(now protocol.Instant) (bool, line) {
		kept := r.lock().SetNote(now, r.c.session, req)
		return kept, func() string { return fmt.Sprintf("%s → %s", op, either(kept, "kept", "gone")) }
	})
	return kept, wrapped(op, err)
}

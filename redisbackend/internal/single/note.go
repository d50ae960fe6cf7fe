package single

import (
	"context"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Noter = (*Remote)(nil)

const noteKept, noteGone = 1, 2

// Note implements backend.Noter.
func (r *Remote) Note(ctx context.Context, req backend.NoteRequest) (bool, error) {
	if err := wire.CheckNote(&req); err != nil {
		return false, err
	}
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(wire.KeepFor(0))
	n := d.Strings()
	keys := [...]string{r.Keys[0], r.Keys[1], r.Keys.Note(r.Conn.Deployment.Prefix)}
	args := [...]string{r.Conn.Session, n[0], req.Text, n[1]}
	a, err := r.Run(ctx, &r.Conn.Deployment.scripts.Note, keys[:], args[:], 0)
	switch {
	case err != nil:
		return false, err
	case a.Code == noteKept, a.Code == noteGone:
		return a.Code == noteKept, nil
	}
	return false, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

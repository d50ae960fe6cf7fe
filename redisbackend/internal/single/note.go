package single

import (
	"context"
	"fmt"
	"strconv"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var (
	_ backend.Noter      = (*Remote)(nil)
	_ backend.ShareNoter = (*Remote)(nil)
)

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
	return r.note(ctx, &r.Conn.Deployment.scripts.Note, keys[:], args[:])
}

// NoteShared implements backend.ShareNoter.
func (r *Remote) NoteShared(ctx context.Context, req backend.NoteRequest) (bool, error) {
	if err := wire.CheckNote(&req); err != nil {
		return false, err
	}
	args := [...]string{r.Conn.Session, strconv.FormatUint(req.Epoch, 10), req.Text}
	return r.note(ctx, &r.Conn.Deployment.scripts.ShareNote, r.Keys[1:2], args[:])
}

// note runs a script that writes a note, and reports whether Redis has kept it.
func (r *Remote) note(ctx context.Context, s *wire.Script, keys, args []string) (bool, error) {
	a, err := r.Run(ctx, s, keys, args, 0)
	switch {
	case err != nil:
		return false, err
	case a.Code == noteKept, a.Code == noteGone:
		return a.Code == noteKept, nil
	}
	return false, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

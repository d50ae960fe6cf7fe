package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var _ backend.Resumer = (*remote)(nil)

// Resume implements backend.Resumer.
func (r *remote) Resume(ctx context.Context, req backend.ResumeRequest) (backend.ResumeReply, error) {
	op := r.op(Resume, req.Epoch)
	type answer struct {
		reply backend.ResumeReply
		err   error
	}
	notAfter, doubt := r.c.instant(req.NotAfter), remaining(req.Until)
	got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, line) {
		var a answer
		l, err := r.exclusive(now)
		if a.err = err; err == nil {
			a.reply, a.err = l.Resume(now, r.c.session, req, notAfter, doubt)
		}
		return a, func() string {
			return fmt.Sprintf("%s owner=%s → %s", op, shown(req.Owner), outcome(a.err, resumes[a.reply.Status]))
		}
	})
	return got.reply, wrapped(op, cmp.Or(err, got.err))
}

var resumes = map[backend.ResumeStatus]string{
	backend.Resumed: "resumed", backend.NotThere: "nothing", backend.Overtaken: "stale",
}

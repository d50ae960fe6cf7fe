package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/reentrant"
)

var _ reentrant.Resumer = (*remote)(nil)

// Resume sends a copy of an attempt to take up a hold.
func (r *remote) Resume(ctx context.Context, req reentrant.ResumeRequest) (reentrant.ResumeReply, error) {
	op := r.op(Resume, req.Epoch)
	type answer struct {
		reply reentrant.ResumeReply
		late  bool
	}
	notAfter := r.c.instant(req.NotAfter)
	got, err := call(ctx, r.c, op, func(now protocol.Instant) (answer, string) {
		var a answer
		a.reply, a.late = r.lock().Resume(now, r.c.session, req, notAfter)
		return a, fmt.Sprintf("%s owner=%s → %s", op, shown(req.Owner), either(a.late, "late", resumes[a.reply.Status]))
	})
	if err == nil && got.late {
		err = errors.New("not executed: it is after NotAfter")
	}
	return got.reply, wrapped(op, err)
}

var resumes = map[reentrant.ResumeStatus]string{
	reentrant.Resumed: "resumed", reentrant.NotThere: "nothing", reentrant.Overtaken: "stale",
}

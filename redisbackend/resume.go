package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
)

var _ backend.Resumer = (*remote)(nil)

const resumeResumed, resumeGone, resumeStale, resumeLate = 1, 2, 3, 4

// Resume implements backend.Resumer. As in Acquire, a copy that Redis refuses as late too early is repeated once.
func (r *remote) Resume(ctx context.Context, req backend.ResumeRequest) (backend.ResumeReply, error) {
	if err := checkResume(&req); err != nil {
		return backend.ResumeReply{}, err
	}
	limit := instantOf(req.NotAfter)
	a, err := r.resume(ctx, &req, r.clock.notAfter(limit))
	if err == nil && a.code == resumeLate && a.sample.received < limit {
		a, err = r.resume(ctx, &req, mapping{}.with(a.sample).notAfter(limit))
	}
	if err != nil {
		return backend.ResumeReply{}, err
	}
	switch a.code {
	case resumeResumed:
		if err := a.checkTokens(a.rest[1], a.rest[1]); err != nil {
			return backend.ResumeReply{}, unexpected(err)
		}
		return backend.ResumeReply{Status: backend.Resumed, Holds: int(a.rest[0]), Token: backend.Token(a.rest[1]),
			TTL: time.Duration(a.rest[2]) * time.Millisecond}, nil
	case resumeGone:
		return backend.ResumeReply{Status: backend.NotThere}, nil
	case resumeStale:
		return backend.ResumeReply{Status: backend.Overtaken}, nil
	case resumeLate:
		return backend.ResumeReply{}, unavailable(errors.New("it reached Redis too late and was not carried out"))
	}
	return backend.ResumeReply{}, unexpected(fmt.Errorf("code %d", a.code))
}

// resume sends one copy.
func (r *remote) resume(ctx context.Context, req *backend.ResumeRequest, notAfter int64) (answer, error) {
	var d draft
	d.add(req.Epoch)
	d.add(millis(req.Lease))
	d.add(uint64(notAfter))
	d.add(uint64(req.Seen))
	d.add(keepFor(req.Lease))
	n := d.cut()
	fixed := ""
	if req.Fixed {
		fixed = "f"
	}
	args := [...]string{r.conn.session, n[0], req.Owner, n[1], n[2], n[3], r.conn.deployment.channels, n[4], fixed}
	if r.conn.deployment.replicas.n > 0 {
		return r.resumeReplicated(ctx, args[:], req.NotAfter)
	}
	return r.run(ctx, &r.conn.deployment.scripts.resume, r.keys[:], args[:], 3)
}

package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Resumer = (*Remote)(nil)

const resumeResumed, resumeGone, resumeStale, resumeLate = 1, 2, 3, 4

// Resume implements backend.Resumer. As Acquire does, it sends a second copy if Redis refuses the first as late although
// req.NotAfter has not come.
func (r *Remote) Resume(ctx context.Context, req backend.ResumeRequest) (backend.ResumeReply, error) {
	if err := wire.CheckResume(&req); err != nil {
		return backend.ResumeReply{}, err
	}
	limit := clock.InstantOf(req.NotAfter)
	a, err := r.resume(ctx, &req, r.Clock.NotAfter(limit))
	if err == nil && a.Code == resumeLate && a.sample.Received < limit {
		a, err = r.resume(ctx, &req, clock.Mapping{}.With(a.sample).NotAfter(limit))
	}
	if err != nil {
		return backend.ResumeReply{}, err
	}
	switch a.Code {
	case resumeResumed:
		if err := a.checkTokens(a.rest[1], a.rest[1]); err != nil {
			return backend.ResumeReply{}, wire.Unexpected(err)
		}
		return backend.ResumeReply{Status: backend.Resumed, Holds: int(a.rest[0]), Token: backend.Token(a.rest[1]),
			TTL: time.Duration(a.rest[2]) * time.Millisecond, Note: a.note}, nil
	case resumeGone:
		return backend.ResumeReply{Status: backend.NotThere}, nil
	case resumeStale:
		return backend.ResumeReply{Status: backend.Overtaken}, nil
	case resumeLate:
		return backend.ResumeReply{}, wire.Unavailable(errors.New("it reached Redis too late and was not carried out"))
	}
	return backend.ResumeReply{}, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

// resume sends one copy.
func (r *Remote) resume(ctx context.Context, req *backend.ResumeRequest, notAfter int64) (answer, error) {
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(wire.Millis(req.Lease))
	d.Add(uint64(notAfter))
	d.Add(uint64(req.Seen))
	doubt := wire.Remaining(req.Until) // a duration, as in Release
	d.Add(wire.KeepFor(max(req.Lease, doubt)))
	d.Add(wire.RoundUp(doubt, time.Microsecond))
	n := d.Strings()
	fixed := ""
	if req.Fixed {
		fixed = "f"
	}
	args := [...]string{r.Conn.Session, n[0], req.Owner, n[1], n[2], n[3], r.Conn.Deployment.Channels, n[4], fixed, n[5]}
	if r.awaitsReplicas() {
		return r.resumeReplicated(ctx, args[:], req.NotAfter)
	}
	return r.Run(ctx, &r.Conn.Deployment.scripts.Resume, r.Keys.WithNote(r.Conn.Deployment.Prefix), args[:], 3)
}

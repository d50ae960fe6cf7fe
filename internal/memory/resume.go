package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/reentrant"
)

var _ reentrant.Resumer = (*remote)(nil)

// resume makes the hold of an owner, whichever session has it, this session's.
func (l *lock) resume(now instant, session string, req reentrant.ResumeRequest, notAfter instant) (_ reentrant.ResumeReply, late bool) {
	if now > notAfter {
		return reentrant.ResumeReply{}, true
	}
	l.expire(now)
	switch {
	case l.record.entombed(session, req.Epoch, now), l.record.lastOf(session) > req.Epoch:
		return reentrant.ResumeReply{Status: reentrant.Overtaken}, false
	case !l.held() || l.hold.owner != req.Owner:
		return reentrant.ResumeReply{Status: reentrant.NotThere}, false
	}
	whose := l.hold.session
	l.hold.session = session
	if l.record.lastOf(session) < req.Epoch {
		last := l.record.lastOf(whose)
		l.record.session, l.record.epoch, l.record.op, l.record.pushed = session, req.Epoch, 0, false
		l.save(now)
		l.leave(session)
		if whose != session {
			l.publish(whose, pushed{grant: grant{name: l.name, epoch: last}, taken: true})
		}
	}
	if !req.Fixed {
		l.hold.expires = max(l.hold.expires, now+req.Lease)
	}
	return reentrant.ResumeReply{Status: reentrant.Resumed, Holds: l.hold.count, Token: l.record.last, TTL: l.hold.expires - now}, false
}

// Resume sends a copy of an attempt to take up a hold.
func (r *remote) Resume(ctx context.Context, req reentrant.ResumeRequest) (reentrant.ResumeReply, error) {
	op := r.op(Resume, req.Epoch)
	type answer struct {
		reply reentrant.ResumeReply
		late  bool
	}
	notAfter := r.c.instant(req.NotAfter)
	got, err := call(ctx, r.c, op, func(now instant) (answer, string) {
		var a answer
		a.reply, a.late = r.lock().resume(now, r.c.session, req, notAfter)
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

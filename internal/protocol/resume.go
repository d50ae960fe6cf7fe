package protocol

import (
	"time"

	"github.com/relock-go/relock/backend"
)

// Resume moves an owner's hold to this session from the session that has it. doubt is for how long from now a copy of an
// earlier attempt may still be under way. Resume returns ErrLate if now is after notAfter, or ErrFarToken.
func (l *Lock) Resume(now Instant, session string, req backend.ResumeRequest, notAfter Instant, doubt time.Duration) (backend.ResumeReply, error) {
	if now > notAfter {
		return backend.ResumeReply{}, ErrLate
	}
	l.expire(now)
	switch {
	case l.Record.entombed(session, req.Epoch, now):
		return backend.ResumeReply{Status: backend.Overtaken}, nil
	case !l.held() || l.Hold.Owner != req.Owner:
		l.refuseBelow(now, session, req, doubt)
		return backend.ResumeReply{Status: backend.NotThere}, nil
	case l.Record.lastOf(session) > req.Epoch:
		return backend.ResumeReply{Status: backend.Overtaken}, nil
	case l.Record.tooFar(now, 1, req.Seen):
		return backend.ResumeReply{}, ErrFarToken
	}
	l.refuseBelow(now, session, req, doubt)
	previous := l.Hold.Session
	l.Hold.Session = session
	if l.Record.lastOf(session) < req.Epoch {
		last := l.Record.lastOf(previous)
		if l.Record.Session != previous { // the record was lost without the hold (eviction): the token is new
			l.issue(now, session, req.Epoch, 1, req.Seen, 0)
		}
		l.Record.Session, l.Record.Epoch, l.Record.Op = session, req.Epoch, 0
		l.Record.Pushed, l.Record.Watched = false, false
		l.Record.Keep = max(l.Record.Keep, l.keepFor(req.Lease))
		l.save(now)
		l.leave(session)
		if previous != session {
			l.Publish(previous, Message{Kind: Taken, Name: l.Name, Epoch: last})
		}
	}
	if !req.Fixed {
		l.Hold.Expires = max(l.Hold.Expires, now+req.Lease)
	}
	return backend.ResumeReply{Status: backend.Resumed, Holds: l.Hold.Count, Token: l.Record.Last,
		TTL: l.Hold.Expires - now, Note: l.note(now)}, nil
}

// refuseBelow refuses the session's attempts before this one. Copies of them may still be under way for the time doubt.
func (l *Lock) refuseBelow(now Instant, session string, req backend.ResumeRequest, doubt time.Duration) {
	if doubt > 0 {
		l.Record.entomb(session, req.Epoch-1, now+doubt, now)
		l.Record.Keep = max(l.Record.Keep, l.keepFor(max(req.Lease, doubt)))
		l.save(now)
	}
}

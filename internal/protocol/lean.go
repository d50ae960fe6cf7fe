package protocol

import "github.com/relock-go/relock/backend"

// A session that remembers how its latest attempt left the record of a lock can pass the lock on, yield, take or free it by a
// comparison: if the record is still the same, nothing has happened since. No record comes a second time, so a late or
// doubled copy finds another record and does nothing. What the comparison does not cover is left to Acquire and Release.

// Lean reports whether a comparison of the record can decide an attempt.
func Lean(req *backend.AcquireRequest) bool {
	p := &req.Prior
	if req.Yield && (!req.Queue || req.KeepTTL || p.Freed) {
		return false
	}
	return 0 < p.Epoch && p.Epoch < req.Epoch && req.Tokens == 1 && !req.Fixed
}

// SetsLease reports whether a lean attempt begins a lease. Only an attempt that does is refused after its time limit.
func SetsLease(req *backend.AcquireRequest) bool { return req.Prior.Freed || !req.KeepTTL }

// NextToken returns the lowest token that a lean attempt can get. An attempt that begins no lease gets this token: without the
// server's clock tokens rise one by one, more slowly than the clock. An attempt that begins a lease gets a token from the
// clock, so tokens rise even if the server has forgotten those that it gave to other sessions meanwhile.
func NextToken(req *backend.AcquireRequest) backend.Token {
	return max(req.Prior.Token, req.Seen) + 1
}

// LeanRelease reports whether a comparison of the record can decide a release.
func LeanRelease(req *backend.ReleaseRequest) bool {
	p := &req.Prior
	return 0 < p.Epoch && p.Epoch == req.Epoch && !p.Freed && req.Until.IsZero() && req.StaysUntil.IsZero()
}

// Pass carries out a lean attempt: it takes over the session's hold, takes a lock that the session left free, or yields to
// the first waiter. It returns false, and changes nothing, if only Acquire can decide.
func (l *Lock) Pass(now Instant, session string, req backend.AcquireRequest, notAfter Instant) (backend.AcquireReply, bool) {
	l.expire(now)
	token, keep := NextToken(&req), l.briefly(now, req.Lease, notAfter)
	if req.Yield {
		keep = l.keepFor(req.Lease)
	}
	if !Lean(&req) || !l.leftBy(session, &req.Prior) || token > clockToken(notAfter) || !SetsLease(&req) && keep > l.Record.Keep {
		return backend.AcquireReply{}, false
	}
	if l.Record.entombed(session, req.Epoch, now) { // a tombstone changes the record
		return backend.AcquireReply{}, false
	}
	expires := l.Hold.Expires
	if SetsLease(&req) {
		if now > notAfter {
			return backend.AcquireReply{}, false
		}
		if _, waits := l.firstWaiter(now); req.Yield && waits {
			return l.takeOver(now, session, req, notAfter), true
		}
		expires = now + req.Lease
		token = max(token, clockToken(now))
	}
	l.Hold = Hold{Session: session, Owner: req.Owner, Count: req.Holds, Expires: expires}
	r := &l.Record
	r.First, r.Last, r.Epoch, r.Op, r.Pushed = token, token, req.Epoch, 0, false
	if SetsLease(&req) {
		r.Keep = max(r.Keep, keep)
		l.save(now)
	}
	reply := l.granted(now, req)
	reply.Prior = l.Prior(req)
	return reply, true
}

// Free carries out a lean release of a lock for which no session waits. It returns false, and changes nothing, if only Release
// can decide, as after a pushed grant that no reply has confirmed.
func (l *Lock) Free(now Instant, session string, req backend.ReleaseRequest) bool {
	l.expire(now)
	if !LeanRelease(&req) || req.Prior.Pushed || !l.leftBy(session, &req.Prior) || len(l.Queue) > 0 {
		return false
	}
	l.Hold = Hold{}
	return true
}

// leftBy reports whether the lock is as a session's attempt left it.
func (l *Lock) leftBy(session string, p *backend.Prior) bool {
	r := &l.Record
	if r.Session != session || r.Epoch != p.Epoch || r.First != p.Token || r.Last != p.Token || r.Op != p.Op || r.Pushed != p.Pushed || r.Watched {
		return false
	}
	if p.Freed {
		return !l.held() && len(l.Queue) == 0
	}
	return l.heldBy(session) && l.Hold.Owner == p.Owner
}

// Prior returns what the session of a granted attempt is to remember.
func (l *Lock) Prior(req backend.AcquireRequest) backend.Prior {
	if l.Record.First != l.Record.Last || l.Record.Watched {
		return backend.Prior{}
	}
	return backend.Prior{Epoch: req.Epoch, Owner: req.Owner, Token: l.Record.Last, Op: l.Record.Op, Note: "exact"}
}

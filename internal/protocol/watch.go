package protocol

import "github.com/relock-go/relock/backend"

// Watch requests a message to the holder's session for each other session that queues up, until another attempt gets the lock.
func (l *Lock) Watch(now Instant, session string, epoch uint64) backend.WatchReply {
	l.expire(now)
	if !l.heldBy(session) || l.Record.lastOf(session) != epoch {
		return backend.WatchReply{Gone: true}
	}
	if !l.Record.Watched {
		l.Record.Watched, l.Record.Pushed = true, false
		l.save(now)
	}
	next, ok := l.firstWaiter(now)
	return backend.WatchReply{Waiting: ok && next.Session != session}
}

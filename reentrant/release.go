package reentrant

import "context"

// Unlock gives up one hold of the caller's owner. Giving up the last one frees the lock for the next owner in the
// queue. Unlock works under a ctx that has ended: it has a time limit of its own, and ctx provides only the owner.
//
// It returns [ErrNotHeld] if the owner does not hold the lock, and changes nothing. It returns [ErrLost] if the owner
// held the lock and its lease could not be trusted to the end: another owner may have held the lock meanwhile. After
// any other error the hold has ended in this process, and Redis has not confirmed it. Redis refused ([Refused]), may
// have released the hold ([OutcomeUnknown]), could not be reached, or did not serve the lock (a failover, a slot that
// moves). If Redis did not refuse, Unlock has tried for the length of the lease, at most 6 seconds. If it was the last
// hold, the session goes on trying in the background, for a minute. The lock is free for others when Redis has replied,
// and when its lease ends at the latest. If it was an inner hold, the next call on the lock corrects the count in
// Redis.
func (l *Lock) Unlock(ctx context.Context) error {
	owner, err := l.session.core.Caller(ctx, l.invalid)
	if err != nil {
		return l.error("unlock", err)
	}
	return l.error("unlock", l.handle.UnlockAs(ctx, owner))
}

package reentrant

import (
	"context"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// Wanted returns a channel that is closed when another owner waits for the lock that the caller holds, in this process or
// another: for work that can stop, or make room, as soon as another needs the lock. It is closed at once if one waits
// already. An owner that only tries ([Lock.TryLock]) does not wait, one that waits for a time ([Lock.TryLockFor]) does.
// The channel says nothing more: the waiter may have left since, and the lock stays the caller's until Unlock.
//
// The call sends nothing itself and does not block. The session asks Redis in the background, once for a hold, to report
// waiting sessions; holds that no caller asked about cost no command and no message. Each heartbeat of a waiter repeats
// the report, so a report that is lost with its connection costs a heartbeat ([WithHeartbeat]).
//
// The channel belongs to the hold: it is never closed after the last Unlock. The hold after [Condition.Await] is
// another one. For a caller without a hold the channel is already closed, as that of [Lock.Lost] is; a loss does not
// close it. A backend that reports no waiters reports those of this process. With [WithLinger] an attempt of another
// process that does not wait may be reported too. ctx provides only the owner.
func (l *Lock) Wanted(ctx context.Context) <-chan struct{} {
	owner, err := l.asker(ctx)
	if err != nil {
		return core.AlreadyLost
	}
	return l.handle.WantedOf(owner)
}

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
// close it. If the backend does not report waiters, the channel is closed only for waiters of this process. With [WithLinger]
// an attempt of another process that does not wait may be reported too. ctx provides only the owner.
func (l *Lock) Wanted(ctx context.Context) <-chan struct{} {
	owner, err := l.asker(ctx)
	if err != nil {
		return core.AlreadyLost
	}
	return l.handle.WantedOf(owner)
}

// Wanted returns a channel that is closed when another owner waits for what the caller holds, in this process or
// another. A caller that has the read side learns of owners that wait to write, and a caller that has the write side of all
// owners that wait. The channel is closed at once if one waits already. An owner that only tries ([RWLock.TryLock],
// [RWLock.TryRLock]) does not wait, one that waits for a time does. The channel says nothing more: the waiter may have left
// since, and the caller keeps its side until it unlocks.
//
// The call sends nothing and does not block: Redis reports waiters to every session that has a side, in any case. Each
// heartbeat of the session that waits longest repeats the report, so a lost message costs a heartbeat ([WithHeartbeat]).
// While an owner that has called Wanted has a side, RLock and RUnlock of its session take a mutex that they otherwise do not
// need.
//
// The channel belongs to the hold: it is never closed after the owner's last Unlock or RUnlock, and a writer that goes on as
// a reader keeps its channel. The hold after [Condition.Await] is another one. For a caller without a hold the channel is
// already closed, as that of [RWLock.Lost] is; a loss does not close it. An attempt of another process that does not wait may
// be reported too, if it meets a command of this session under way. ctx provides only the owner.
func (l *RWLock) Wanted(ctx context.Context) <-chan struct{} {
	owner, err := l.asker(ctx)
	if err != nil {
		return core.AlreadyLost
	}
	return l.tier().Wanted(owner)
}

// Wanted returns a channel that is closed when another caller, in this process or another, waits for permits that it cannot
// get: all are in use, or fewer are free than it asks for. It is closed at once if one waits already. A caller that only
// tries ([Semaphore.TryAcquire]) does not wait, one that waits for a time does. The channel says nothing more: the waiter may
// have left since, and the permits stay in use until Release.
//
// The call sends nothing and does not block, and a lost message costs a heartbeat, as with [RWLock.Wanted]. Sessions that
// have no more than their share of the permits get the report some milliseconds later than the others, and a caller of a
// session that has its share may first wait up to a tenth of a second for permits of that session. A caller that must wait
// for a Release of its own session, since that session's callers use too many of the permits for it, is reported only in its
// own session.
//
// Permits have no owner, so the channel is about all permits that callers of this session have now. If they have none, it
// is closed already. It is never closed after they have given back the last permit, and a loss does not close it. Once it
// is closed, a later call returns another channel, unless a caller still waits. A caller of another process that has got
// permits from a third process still counts as a waiter for a heartbeat and a quarter: no message says that its wait is over.
// Attempts that do not wait may be reported as by [RWLock.Wanted].
func (s *Semaphore) Wanted() <-chan struct{} {
	if s.invalid != nil {
		return core.AlreadyLost
	}
	return s.tier().Wanted()
}

// Wanted returns a channel that is closed when another caller waits for a permit of the slot's semaphore, as
// [Semaphore.Wanted] does. It is never closed after Release. It is closed already if Wanted is called after Release or after a
// loss, and for the zero Slot.
func (s Slot) Wanted() <-chan struct{} {
	if s.hold == nil {
		return core.AlreadyLost
	}
	wanted := s.hold.permit.Wanted()
	if _, err := s.hold.token(); err != nil { // checked last: a Release that begins after this check forgets the channel
		s.hold.permit.Forget()
		return core.AlreadyLost
	}
	return wanted
}

package reentrant

import (
	"context"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
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
	wanted := (<-chan struct{})(core.AlreadyLost)
	l.withState(func(e *lockState) {
		if _, held := e.heldBy(owner); held {
			wanted = e.openWanted(owner)
		}
	})
	return wanted
}

// A wantedChannel belongs to a hold and serves the callers of Wanted. Guarded by lockState.mu.
type wantedChannel struct {
	channel chan struct{}
	closed  bool
}

// openWanted returns the channel of an owner's hold.
func (e *lockState) openWanted(owner Owner) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.hold
	switch {
	case !h.owned() || h.owner != owner:
		return core.AlreadyLost
	case h.wanted != nil:
		return h.wanted.channel
	}
	h.wanted = &wantedChannel{channel: make(chan struct{})}
	e.watched.Store(true) // before the look at the queue: an owner that joins later sees it
	if e.wantedEpoch >= h.epoch || e.othersWait(owner) {
		e.closeWantedLocked()
	} else {
		e.watchLocked()
	}
	return h.wanted.channel
}

// othersWait reports whether another owner waits in this process's queue.
func (e *lockState) othersWait(owner Owner) bool {
	return e.queue.Len() > 0 && slices.ContainsFunc(e.queue.Waiters(), func(o Owner) bool { return o != owner })
}

// noteWaiter notifies a holder that called Wanted that an owner has joined this process's queue. It is called if
// watched is set.
func (e *lockState) noteWaiter(owner Owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteWaiterLocked(owner)
}

// noteWaiterLocked is noteWaiter with e.mu held.
func (e *lockState) noteWaiterLocked(owner Owner) {
	e.watched.Store(e.hold.wanted != nil)
	if e.hold.owned() && e.hold.owner != owner {
		e.closeWantedLocked()
	}
}

// closeWantedLocked closes the channel of the hold, if a caller asked for one. e.mu is held.
func (e *lockState) closeWantedLocked() {
	if w := e.hold.wanted; w != nil && !w.closed {
		w.closed = true
		close(w.channel)
	}
}

// watchLocked asks Redis, in the background, to report waiters, if a caller of Wanted waits for that. e.mu is held.
func (e *lockState) watchLocked() {
	remote, ok := e.remote.(backend.Watcher)
	if w := e.hold.wanted; !ok || w == nil || w.closed {
		return
	}
	w := watch{s: e.s, remote: remote, name: e.name, epoch: e.hold.epoch}
	e.s.core.Checks.Do(w.send)
}

// rewatch asks Redis once more: reports may have been lost, and there may be another server now.
func (e *lockState) rewatch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchLocked()
}

// A watch asks Redis to report waiters for a hold, until Redis has answered or no caller waits for the report. It has no
// reference to the lock state while it waits for Redis, so that Close need not wait for it.
type watch struct {
	s      *session
	remote backend.Watcher
	name   string
	epoch  uint64
	tries  int
}

func (w watch) send() {
	needed := w.s.withHold(w.name, w.epoch, func(h *hold) bool { return h.wanted != nil && !h.wanted.closed })
	if !needed {
		return
	}
	now := time.Now()
	w.s.core.Counts.Commands.Add(1)
	reply, err := w.remote.Watch(w.s.core.Deadlines.Context(context.Background(), now, now.Add(w.s.core.Config.CommandTimeout)), w.epoch)
	switch {
	case err == nil && reply.Waiting:
		sink{w.s}.Wanted(w.name, w.epoch)
	case err != nil && !Refused(err):
		again := w
		again.tries++
		core.RepeatLater(&w.s.core.Checks, core.RetryPause(w.tries, w.s.core.Config.Heartbeat), again.send)
	}
}

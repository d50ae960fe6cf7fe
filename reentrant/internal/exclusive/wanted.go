package exclusive

import (
	"context"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// WantedOf returns the channel of Wanted for an owner.
func (l *Handle) WantedOf(owner core.Owner) <-chan struct{} {
	wanted := (<-chan struct{})(core.AlreadyLost)
	l.WithState(func(e *State) {
		if _, held := e.heldBy(owner); held {
			wanted = e.openWanted(owner)
		}
	})
	return wanted
}

// A wantedChannel belongs to a hold and serves the callers of Wanted. Guarded by State.mu.
type wantedChannel struct {
	channel chan struct{}
	closed  bool
}

// openWanted returns the channel of an owner's hold.
func (e *State) openWanted(owner core.Owner) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.m.Owned() || e.m.Owner() != owner:
		return core.AlreadyLost
	case e.info.wanted != nil:
		return e.info.wanted.channel
	}
	e.info.wanted = &wantedChannel{channel: make(chan struct{})}
	e.watched.Store(true) // before the look at the queue: an owner that joins later sees it
	if e.m.IsWanted() || e.othersWait(owner) {
		e.closeWantedLocked()
	} else {
		e.watchLocked()
	}
	return e.info.wanted.channel
}

// othersWait reports whether another owner waits in this process's queue.
func (e *State) othersWait(owner core.Owner) bool {
	return e.Queue.Len() > 0 && slices.ContainsFunc(e.Queue.Waiters(), func(o core.Owner) bool { return o != owner })
}

// noteWaiter notifies a holder that called Wanted that an owner has joined this process's queue. It is called if
// watched is set.
func (e *State) noteWaiter(owner core.Owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteWaiterLocked(owner)
}

// noteWaiterLocked is noteWaiter with e.mu held.
func (e *State) noteWaiterLocked(owner core.Owner) {
	e.watched.Store(e.info.wanted != nil)
	if e.m.Owned() && e.m.Owner() != owner {
		e.closeWantedLocked()
	}
}

// closeWantedLocked closes the channel of the hold, if a caller asked for one. e.mu is held.
func (e *State) closeWantedLocked() {
	if w := e.info.wanted; w != nil && !w.closed {
		w.closed = true
		close(w.channel)
	}
}

// watchLocked asks Redis, in the background, to report waiters, if a caller of Wanted waits for that. e.mu is held.
func (e *State) watchLocked() {
	remote, ok := e.remote.(backend.Watcher)
	if w := e.info.wanted; !ok || w == nil || w.closed {
		return
	}
	w := watch{s: e.s, remote: remote, name: e.name, epoch: e.m.Epoch()}
	e.s.core.Checks.Do(w.send)
}

// rewatch asks Redis once more: reports may have been lost, and there may be another server now.
func (e *State) rewatch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchLocked()
}

// A watch asks Redis to report waiters for a hold, until Redis has answered or no caller waits for the report. It has no
// reference to the lock state while it waits for Redis, so that Close need not wait for it.
type watch struct {
	s      *Room
	remote backend.Watcher
	name   string
	epoch  uint64
	tries  int
}

func (w watch) send() {
	needed := w.s.withHold(w.name, w.epoch, func(h *holdInfo) bool { return h.wanted != nil && !h.wanted.closed })
	if !needed {
		return
	}
	now := time.Now()
	w.s.core.Counts.Commands.Add(1)
	reply, err := w.remote.Watch(w.s.core.Deadlines.Context(context.Background(), now, now.Add(w.s.core.Config.CommandTimeout)), w.epoch)
	switch {
	case err == nil && reply.Waiting:
		w.s.Wanted(w.name, w.epoch)
	case err != nil && !backend.Refused(err):
		again := w
		again.tries++
		core.RepeatLater(&w.s.core.Checks, core.RetryPause(w.tries, w.s.core.Config.Heartbeat), again.send)
	}
}

package reentrant

import (
	"context"
	"time"
)

// A hold of a portable owner can be taken up by another session, which says so in a message. That ends it here. A hold
// that is renewed finds out by that too; one with a fixed lease would be believed to the end, and nobody here could have
// the lock. So the message must not be lost: neither with the channel, nor because it overtakes the answer by which the
// hold was got. In both cases Redis is asked.

// taken ends the hold with this epoch, or is remembered for when it begins.
func (e *entry) taken(epoch uint64) {
	if fault != faultHeedless {
		e.mu.Lock()
		e.moved = max(e.moved, epoch)
		e.mu.Unlock()
	}
	e.lose(epoch, "another session has resumed it")
	e.evict(epoch, false)
}

// overtakenLocked has Redis asked for a hold that begins, if another session was said to have taken it up. It may have been
// got anew since, by a copy of the same attempt. e.mu is held.
func (e *entry) overtakenLocked() {
	if e.moved >= e.hold.epoch {
		e.doubtLocked()
	}
}

// reconsider has Redis asked for a hold that may have been taken up while the channel was closed.
func (e *entry) reconsider() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := &e.hold; h.live && h.owner.portable && h.lease.fixed() && fault != faultHomesick {
		e.doubtLocked()
	}
}

func (e *entry) doubtLocked() {
	name, epoch := e.name, e.hold.epoch
	e.s.cleaner.do(func() { e.s.confirm(name, epoch) })
}

// confirm asks Redis whether a hold is still this session's, and loses one that is not. A hold for which Redis does not
// answer is believed to the end of its lease.
func (s *core) confirm(name string, epoch uint64) {
	e := s.find(name)
	if e == nil {
		return
	}
	defer s.leave(e, 1)
	ctx := context.Background()
	for try := range releaseTries {
		if try > 0 {
			pause(ctx, retryPause(try, s.config.heartbeat), nil)
		}
		now := time.Now()
		s.stats.commands.Add(1)
		st, err := e.remote.Inspect(s.bounded(ctx, now, now.Add(s.config.commandTimeout())))
		if err != nil {
			continue
		}
		if st.Session != s.id { // if it is, with another epoch, the next hold is about to begin
			e.lose(epoch, "another session has it, or nobody")
			e.evict(epoch, false)
		}
		return
	}
}

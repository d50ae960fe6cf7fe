package reentrant

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
)

// A hold of a portable owner can be taken up by another session, which says so in a message. That ends it here. A hold
// that is renewed finds out by that too; one with a fixed lease would be believed to the end, and nobody here could have
// the lock. So the message must not be lost: neither with the channel, nor because it overtakes the answer by which the
// hold was got. In both cases Redis is asked, and again a heartbeat later if it does not answer.

// markTaken ends the hold with this epoch, or is remembered for when it begins. Redis does not know the epoch if it had lost
// the record: 0.
func (e *lockState) markTaken(epoch uint64) {
	if epoch == 0 {
		e.recheck()
		return
	}
	e.mu.Lock()
	e.movedEpoch = max(e.movedEpoch, epoch)
	e.mu.Unlock()
	e.lose(epoch, "another session has resumed it")
	e.evict(epoch, false)
}

// recheck has Redis asked for a hold that may have been taken up while the channel was closed, also if the answer by
// which it is got is still under way. A hold with a fixed lease is asked for in any case: the lease may end sooner, by the
// clock of another server. One that is renewed is renewed (watchdog.refreshLocked).
func (e *lockState) recheck() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.movedEpoch = max(e.movedEpoch, e.sentEpoch)
	if e.hold.owned() && e.hold.lease.Fixed() {
		e.scheduleCheckLocked()
	}
}

// checkIfMovedLocked has Redis asked for a hold that begins, if it may have been taken up already. It may also have been got
// anew since then, by a copy of the same attempt. e.mu is held.
func (e *lockState) checkIfMovedLocked() {
	if e.movedEpoch >= e.hold.epoch {
		e.scheduleCheckLocked()
	}
}

// scheduleCheckLocked has Redis asked whether the hold is still this session's, and for how long: in the background, and by workers
// of their own, so that nothing that others wait for stands behind it. A hold that is renewed and cannot have been taken up
// needs no check. e.mu is held.
func (e *lockState) scheduleCheckLocked() {
	_, moves := e.remote.(backend.Resumer)
	moves = moves && e.hold.owner.portable
	if e.hold.checking || !moves && !e.hold.lease.Fixed() {
		return
	}
	e.hold.checking = true
	q := ownershipCheck{e.s, e.name, e.hold.epoch}
	e.s.checks.Do(q.run)
}

// An ownershipCheck finds out whether a hold is still its session's.
type ownershipCheck struct {
	s     *session
	name  string
	epoch uint64
}

// run has no reference to the lock state while it waits for Redis, so that Close need not wait for a hold that has ended.
func (q ownershipCheck) run() {
	e := q.s.findState(q.name)
	if e == nil {
		return
	}
	stands, remote := e.startCheck(q), e.remote
	q.s.putState(e, 1)
	if !stands {
		return
	}
	now := time.Now()
	q.s.stats.commands.Add(1)
	st, err := remote.Inspect(q.s.commandContext(context.Background(), now, now.Add(q.s.config.commandTimeout())))
	if e = q.s.findState(q.name); e != nil {
		// As in Verify: Redis had the hold with this epoch, so with another one it is over.
		ours := err == nil && st.Session == q.s.id && st.Epoch == q.epoch
		e.finishCheck(q, ours, err)
		if ours {
			e.shorten(q.epoch, now, st.TTL)
		}
		q.s.putState(e, 1)
	}
}

// startCheck reports whether the check is still needed. It begins now, so a doubt that arises later needs another one.
func (e *lockState) startCheck(q ownershipCheck) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hold.owned() || e.hold.epoch != q.epoch {
		return false
	}
	e.hold.checking = false
	return true
}

// shorten takes in how long the hold with this epoch lasts, as a command was told that was sent at some moment.
func (e *lockState) shorten(epoch uint64, sent time.Time, ttl time.Duration) {
	e.mu.Lock()
	h := &e.hold
	if h.owned() && h.epoch == epoch {
		e.trustLocked(h.lease.Left(sent, time.Now(), ttl))
	}
	wake := h.lease.Wake()
	e.mu.Unlock()
	e.s.watchdog.wakeBy(wake)
}

// finishCheck handles Redis's reply. While the owner is releasing the hold, or renewing it under another epoch, the reply
// proves nothing; another check is scheduled.
func (e *lockState) finishCheck(q ownershipCheck, ours bool, err error) {
	e.mu.Lock()
	h := &e.hold
	current := h.owned() && h.epoch == q.epoch
	nothing := err != nil || h.phase == phaseReleasing
	again := current && nothing && !h.checking // otherwise it is about to be asked again anyway
	if again {
		h.checking = true
	}
	e.mu.Unlock()
	switch {
	case again:
		time.AfterFunc(q.s.config.heartbeat, func() { q.s.checks.Do(q.run) })
	case current && !nothing && !ours:
		e.lose(q.epoch, "another session has it, or nobody")
		e.evict(q.epoch, false)
	}
}

package exclusive

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// The commands of this file run in the background. None has a reference to the lock state while it waits for Redis, so that
// Close need not wait for it.

// withHold calls f with what is known of the hold of a lock, if an owner has the hold and the hold's epoch is the given one,
// and returns f's result. If not, it returns false. f is called with the mutex of the lock state, and no reference is left
// afterwards.
func (s *Room) withHold(name string, epoch uint64, f func(*holdInfo) bool) (ok bool) {
	s.with(name, func(st *State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		ok = st.m.Owned() && st.m.Epoch() == epoch && f(&st.info)
	})
	return ok
}

// An ownershipCheck finds out whether a hold is still its session's.
type ownershipCheck struct {
	s      *Room
	remote backend.Remote
	name   string
	epoch  uint64
	first  backend.Token
}

func (c ownershipCheck) run() {
	needed := false
	c.s.with(c.name, func(st *State) {
		st.mu.Lock()
		defer st.mu.Unlock()
		needed = st.m.Checking(c.epoch)
	})
	if !needed {
		return
	}
	ctx, sent := c.s.core.Apart(c.s.core.Config.CommandTimeout)
	found, err := c.remote.Inspect(ctx)
	c.s.with(c.name, func(st *State) { st.checked(c, c.learns(&found, err, sent)) })
}

// learns returns what a reply shows about the hold. Redis had the hold with this epoch, so if Redis has another epoch now, the
// hold is over.
func (c ownershipCheck) learns(found *backend.State, err error, sent time.Time) machine.Checked {
	ours := err == nil && found.Session == c.s.core.ID && found.Epoch == c.epoch
	again := ours && !check.Same(c.first, found.First)
	return machine.Checked{Epoch: c.epoch, Ours: ours && !again, Again: again, Failed: err != nil, Sent: sent, TTL: found.TTL}
}

// checked handles Redis's reply to an ownership check.
func (st *State) checked(q ownershipCheck, c machine.Checked) {
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	s := st.m.Checked(&at, c)
	if !s.Wake.IsZero() {
		st.trustLocked()
	}
	st.carryOutLoss(s)
	switch {
	case s.Do == machine.CheckLater:
		core.RepeatLater(&q.s.core.Checks, q.s.core.Config.Heartbeat, q.run)
	case s.Do == machine.Lose:
		st.evict(q.epoch, c.Again)
	case !s.Wake.IsZero():
		st.s.keeper.WakeBy(s.Wake)
	}
}

// checkOfHoldLocked returns a check of the present hold. st.mu is held.
func (st *State) checkOfHoldLocked() ownershipCheck {
	return ownershipCheck{st.s, st.remote, st.name, st.m.Epoch(), st.m.Hold().First}
}

// ask asks Redis who has the lock, and returns the reply. If the reply shows that this session's hold is over, the hold ends
// in this process too.
func (st *State) ask(ctx context.Context, now time.Time) (backend.State, error) {
	st.mu.Lock()
	c := st.checkOfHoldLocked()
	st.mu.Unlock()
	found, err := c.remote.Inspect(ctx)
	if err == nil {
		st.checked(c, c.learns(&found, nil, now))
	}
	return found, err
}

// checkLocked asks Redis whether the hold is still this session's, and for how long: in the background, and by separate
// workers, so that an ownership check never blocks other waiters. st.mu is held.
func (st *State) checkLocked() {
	st.s.core.Checks.Do(st.checkOfHoldLocked().run)
}

// A watch is a request that Redis report waiters for a hold. It is sent until Redis has answered, or no caller waits for the
// report any more.
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
	ctx, _ := w.s.core.Apart(w.s.core.Config.CommandTimeout)
	reply, err := w.remote.Watch(ctx, w.epoch)
	switch {
	case err == nil && reply.Waiting:
		w.s.Wanted(w.name, w.epoch)
	case err != nil && !backend.Refused(err):
		again := w
		again.tries++
		core.RepeatLater(&w.s.core.Checks, core.RetryPause(w.tries, w.s.core.Config.Heartbeat), again.send)
	}
}

// noteAge is the age from which a renewal writes a note in Redis again. A note lasts at least for five minutes, or for twice
// the lease if that is longer. A renewal comes at a third of the lease.
const noteAge = 2 * time.Minute

// A note is the text that an owner has attached to its hold. State.mu guards it.
type note struct {
	text string
	sent time.Duration // the session's age when it last sent the note to Redis; 0: Redis may not have the note
}

// String returns the text of the note, "" if there is none.
func (n *note) String() string {
	if n == nil {
		return ""
	}
	return n.text
}

// noteLocked sends the hold's note in the background. st.mu is held.
func (st *State) noteLocked() {
	if remote, ok := st.remote.(backend.Noter); ok {
		n := noteWrite{s: st.s, remote: remote, name: st.name, req: backend.NoteRequest{Epoch: st.m.Epoch(), Text: st.info.note.text}}
		st.s.core.Checks.Do(n.send)
	}
}

// renewNoteLocked writes the note again if Redis would forget it, or may not have it. st.mu is held.
func (st *State) renewNoteLocked(now time.Time) {
	if n := st.info.note; n != nil && (n.sent == 0 || now.Sub(st.s.core.Opened)-n.sent > noteAge) {
		st.noteLocked()
	}
}

// A noteWrite is the command that writes a note. If it fails, the next renewal writes the note.
type noteWrite struct {
	s      *Room
	remote backend.Noter
	name   string
	req    backend.NoteRequest
}

func (w noteWrite) send() {
	if !w.s.withHold(w.name, w.req.Epoch, func(*holdInfo) bool { return true }) {
		return
	}
	ctx, sent := w.s.core.Apart(w.s.core.Config.CommandTimeout)
	kept, err := w.remote.Note(ctx, w.req)
	if err == nil && kept {
		w.s.withHold(w.name, w.req.Epoch, func(h *holdInfo) bool {
			h.note.sent = sent.Sub(w.s.core.Opened)
			return true
		})
	}
}

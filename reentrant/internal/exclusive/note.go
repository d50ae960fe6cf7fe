package exclusive

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
)

// noteAge is the age from which a renewal writes a note in Redis again. A note lasts for at least five minutes and
// twice the lease; renewals come at a third of the lease.
const noteAge = 2 * time.Minute

// A note is the note of a hold. Guarded by State.mu.
type note struct {
	text string
	sent time.Duration // the session's age when it last sent the note; 0: Redis may not have it
}

// newNote returns the note with a text; nil without one.
func newNote(text string) *note {
	if text == "" {
		return nil
	}
	return &note{text: text}
}

// String returns the text of the note, "" if there is none.
func (n *note) String() string {
	if n == nil {
		return ""
	}
	return n.text
}

// noteLocked sends the hold's note in the background. e.mu is held.
func (e *State) noteLocked() {
	if remote, ok := e.remote.(backend.Noter); ok {
		n := noteWrite{s: e.s, remote: remote, name: e.name, req: backend.NoteRequest{Epoch: e.m.Epoch(), Text: e.info.note.text}}
		e.s.core.Checks.Do(n.send)
	}
}

// renewNoteLocked writes the note again if Redis would forget it, or may not have it. e.mu is held.
func (e *State) renewNoteLocked(now time.Time) {
	if n := e.info.note; n != nil && (n.sent == 0 || now.Sub(e.s.core.Opened)-n.sent > noteAge) {
		e.noteLocked()
	}
}

// rewriteNote makes the next renewal write the note: there may be another server now, without it.
func (e *State) rewriteNote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.info.note; n != nil {
		n.sent = 0
	}
}

// A noteWrite is the command that writes a note. One that fails is left to the next renewal. Like a watch it has no reference
// to the lock state while it waits for Redis.
type noteWrite struct {
	s      *Room
	remote backend.Noter
	name   string
	req    backend.NoteRequest
}

func (n noteWrite) send() {
	if !n.s.withHold(n.name, n.req.Epoch, func(*holdInfo) bool { return true }) {
		return
	}
	now := time.Now()
	n.s.core.Counts.Commands.Add(1)
	kept, err := n.remote.Note(n.s.core.Deadlines.Context(context.Background(), now, now.Add(n.s.core.Config.CommandTimeout)), n.req)
	if err == nil && kept {
		n.s.withHold(n.name, n.req.Epoch, func(h *holdInfo) bool {
			h.note.sent = now.Sub(n.s.core.Opened)
			return true
		})
	}
}

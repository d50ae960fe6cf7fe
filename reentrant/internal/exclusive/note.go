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

// rewriteNote makes the next renewal write the note: there may be another server now, without it.
func (st *State) rewriteNote() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if n := st.info.note; n != nil {
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

func (w noteWrite) send() {
	if !w.s.withHold(w.name, w.req.Epoch, func(*holdInfo) bool { return true }) {
		return
	}
	now := time.Now()
	w.s.core.Counts.Commands.Add(1)
	kept, err := w.remote.Note(w.s.core.Deadlines.Context(context.Background(), now, now.Add(w.s.core.Config.CommandTimeout)), w.req)
	if err == nil && kept {
		w.s.withHold(w.name, w.req.Epoch, func(h *holdInfo) bool {
			h.note.sent = now.Sub(w.s.core.Opened)
			return true
		})
	}
}

package reentrant

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/relock-go/relock/backend"
)

type noteKey struct{}

// WithNote returns a context under which every lock that is taken carries a note, such as "migration 42 by deploy-7".
// It is for people: [Lock.Inspect] returns it in every process for as long as the hold lasts, and the relock command
// shows it. It has no effect on the lock, which never fails because of it.
//
// The note is that of the outermost acquire: re-entry with another one changes nothing. It stays with the hold when
// [Lock.Resume] moves that, unless the context of Resume carries another, and comes back with the hold after [Condition.Await].
// The session sends it in the background when it has the lock, which costs one command, and again every few minutes of a
// hold that is renewed. So Inspect returns it a moment after Lock has returned, and if the backend does not answer then, perhaps
// never for a [WithFixedLease] hold. A hold without a note costs nothing.
//
// A note has at most 256 bytes. A longer one is cut, and ends with "…"; bytes that are not UTF-8 are replaced by U+FFFD. An
// empty note is none. Notes are kept for a [Lock]: not for read-write locks and semaphores, not for holds of a session
// [WithCohort], whose owners Redis does not know, and not by a quorum of masters.
func WithNote(ctx context.Context, note string) context.Context {
	return context.WithValue(ctx, noteKey{}, fitNote(note))
}

// fitNote makes a valid note of a text.
func fitNote(text string) string {
	const ending = "…"
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= backend.MaxNote {
		return text
	}
	end := backend.MaxNote - len(ending)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ending
}

// noteOf returns the note that a context carries, "" if none.
func noteOf(ctx context.Context) string {
	note, _ := ctx.Value(noteKey{}).(string)
	return note
}

// noteAge is the age from which a renewal writes a note in Redis again. A note lasts for at least five minutes and
// twice the lease; renewals come at a third of the lease.
const noteAge = 2 * time.Minute

// A note is the note of a hold. Guarded by lockState.mu.
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
func (e *lockState) noteLocked() {
	h := &e.hold
	if remote, ok := e.remote.(backend.Noter); ok {
		n := noteWrite{s: e.s, remote: remote, name: e.name, req: backend.NoteRequest{Epoch: h.epoch, Text: h.note.text}}
		e.s.core.Checks.Do(n.send)
	}
}

// renewNoteLocked writes the note again if Redis would forget it, or may not have it. e.mu is held.
func (e *lockState) renewNoteLocked(now time.Time) {
	if n := e.hold.note; n != nil && (n.sent == 0 || now.Sub(e.s.core.Opened)-n.sent > noteAge) {
		e.noteLocked()
	}
}

// rewriteNote makes the next renewal write the note: there may be another server now, without it.
func (e *lockState) rewriteNote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.hold.note; n != nil {
		n.sent = 0
	}
}

// A noteWrite is the command that writes a note. One that fails is left to the next renewal. Like a watch it has no reference
// to the lock state while it waits for Redis.
type noteWrite struct {
	s      *session
	remote backend.Noter
	name   string
	req    backend.NoteRequest
}

func (n noteWrite) send() {
	if !n.s.withHold(n.name, n.req.Epoch, func(*hold) bool { return true }) {
		return
	}
	now := time.Now()
	n.s.core.Counts.Commands.Add(1)
	kept, err := n.remote.Note(n.s.core.Deadlines.Context(context.Background(), now, now.Add(n.s.core.Config.CommandTimeout)), n.req)
	if err == nil && kept {
		n.s.withHold(n.name, n.req.Epoch, func(h *hold) bool {
			h.note.sent = now.Sub(n.s.core.Opened)
			return true
		})
	}
}

package protocol

import "github.com/relock-go/relock/backend"

// SetNote keeps a text with the hold of an attempt, if the attempt has the lock. It reports whether it does.
func (l *Lock) SetNote(now Instant, session string, req backend.NoteRequest) bool {
	l.expire(now)
	if !l.heldBy(session) || l.Record.lastOf(session) != req.Epoch {
		return false
	}
	l.Note = Note{Token: l.Record.Last, Text: req.Text, Expires: max(l.retention(now), now+l.Keep)}
	return true
}

// note returns the note of the present hold. The record's session has the lock.
func (l *Lock) note(now Instant) string {
	if l.Note.Token != l.Record.Last || now > l.Note.Expires {
		return ""
	}
	return l.Note.Text
}

// SetNote keeps a text with the units that the session has under an epoch. It reports whether the session has any. An empty
// text removes the note.
func (s *Shared) SetNote(now Instant, session string, req backend.NoteRequest) bool {
	i := s.find(session)
	if i < 0 || !s.InUse(now) {
		return false
	}
	e := &s.Entries[i]
	if e.Epoch != req.Epoch || e.Units == 0 || now > e.Until {
		return false
	}
	e.Note = req.Text
	return true
}

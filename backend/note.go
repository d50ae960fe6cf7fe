package backend

import "context"

// MaxNote is the maximal number of bytes in a note.
const MaxNote = 256

// A Noter is an optional interface of a [Remote] that keeps a note with a hold, which Inspect returns.
type Noter interface {
	// Note stores a text with the hold that epoch has, in place of an earlier note. It reports whether the epoch has the
	// lock; if not, nothing is changed. [Remote].Inspect returns the note with this hold, also after another session has
	// taken up the hold ([Resumer]), and never with another hold. The note lasts for five minutes at least, and for twice
	// the lease of the hold, and must be repeated within that time. Epochs of blocks of tokens (reentrant.WithCohort) have
	// no notes. After an unknown outcome sending it again is right.
	Note(ctx context.Context, req NoteRequest) (bool, error)
}

// A ShareNoter is an optional interface of a [Sharer] that keeps a note with a session's units, which InspectShared returns.
type ShareNoter interface {
	// NoteShared stores a text with the units that epoch has, in place of an earlier note; an empty text removes the note.
	// It reports whether epoch is the session's last one and has units; if not, nothing is changed. InspectShared returns
	// the note for as long as the session has units and is granted no more; after a grant the note must be stored again.
	// After an unknown outcome sending it again is right.
	NoteShared(ctx context.Context, req NoteRequest) (bool, error)
}

// A NoteRequest is a text for a hold, or for a session's units.
type NoteRequest struct {
	Epoch uint64
	Text  string // any bytes, at most MaxNote
	_     struct{}
}

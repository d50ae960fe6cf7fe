package backend

import "context"

// MaxNote is how many bytes a note has at most.
const MaxNote = 256

// A Noter is what a [Remote] can be besides: one that keeps a note with a hold, for those who inspect the lock.
type Noter interface {
	// Note keeps a text with the hold that epoch has, in place of an earlier one. It reports whether the epoch has the
	// lock; if not, nothing is changed. [Remote].Inspect returns the note with the hold, and so it does after another
	// session has taken up the hold ([Resumer]); never with another hold. The note lasts for as long as what the server
	// remembers of the lock, five minutes at least and twice the lease of the hold, and must be repeated within that time.
	// Epochs of blocks of tokens (reentrant.WithCohort) have no notes. After an unknown outcome sending it again is right.
	Note(ctx context.Context, req NoteRequest) (bool, error)
}

// A NoteRequest is a text for a hold.
type NoteRequest struct {
	Epoch uint64
	Text  string // up to MaxNote bytes, any
	_     struct{}
}

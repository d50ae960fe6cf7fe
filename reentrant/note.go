package reentrant

import (
	"context"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// WithNote returns a context under which every lock that is taken carries a note, such as "migration 42 by deploy-7".
// The note is for people: [Lock.Inspect] returns it in every process for as long as the hold lasts, and the relock command
// shows it. It has no effect on the lock: no call fails because of a note.
//
// The note is that of the outermost acquire: re-entry with another one changes nothing. It stays with the hold when
// [Lock.Resume] moves the hold, unless the context of Resume carries another note, and comes back with the hold after
// [Condition.Await]. The session sends it in the background when it has the lock, which costs one command, and again every
// few minutes of a hold that is renewed. So Inspect returns it a moment after Lock has returned, and if the backend does not
// answer then, perhaps never for a [WithFixedLease] hold. A hold without a note costs nothing.
//
// Of an [RWLock] and a [Semaphore] the server knows sessions, not their users. [RWLock.Inspect] and [Semaphore.Inspect]
// return with each session the note of the latest user that has one and is still inside. The session sends it in the background
// when it changes, and again when the session is granted more. Any goroutine may release permits, so a note ends when its owner
// releases as many as it took, and at the latest when no caller of the session has any.
//
// A note has at most 256 bytes. A longer one is cut, and ends with "…"; bytes that are not UTF-8 are replaced by U+FFFD. An
// empty note is none. Locks of a session [WithCohort] have no notes, since Redis does not know their owners, and a quorum of
// masters keeps no notes.
func WithNote(ctx context.Context, note string) context.Context {
	return core.WithNote(ctx, note)
}

package reentrant

import (
	"context"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// An Owner holds locks: it is a goroutine of this session, or a name that a context carries. Owners are comparable. The same
// name in two sessions is two owners; only a portable owner ([WithPortableOwner]) is one owner in all sessions.
//
// Its String returns the owner as Redis has it after the session's id: a goroutine's decimal id, "~name", or "@id" for a
// portable owner.
type Owner = core.Owner

// WithOwner makes name the owner of every lock that is taken and released under the returned context, in place of
// the calling goroutine. So a task can keep a lock while it moves from goroutine to goroutine.
//
// Goroutines that share an owner share its locks: while one holds a lock, Lock by another is re-entry and succeeds at
// once. The lock does not exclude them from each other. After a loss they also share the Unlocks that the owner still owes
// for the lost holds: if one goroutine has a new hold by then, another goroutine's Unlock for a lost hold gives up the new
// hold.
//
// The name has 1 to 4096 bytes. With any other name, every call that takes or gives up a lock, waits, signals or asks about a
// hold returns an error, and changes nothing. A method without an error result answers as if the owner held nothing.
func WithOwner(ctx context.Context, name string) context.Context {
	return core.WithOwner(ctx, core.NamedOwner(name))
}

// WithPortableOwner is [WithOwner] with an owner that is known by its id in the whole deployment: what it holds can be
// resumed by another session, or after a restart ([Lock.Resume]). Only holds of a [Lock] can be resumed: the sides of an [RWLock]
// and the permits of a [Semaphore] are the session's. Any caller that knows the id is the owner, so the id should be one that
// cannot be guessed, and be used by one session at a time. The id has 1 to 4096 bytes, like the name of WithOwner.
func WithPortableOwner(ctx context.Context, id string) context.Context {
	return core.WithOwner(ctx, core.PortableOwner(id))
}

// CurrentOwner returns the owner for which a call with ctx acts: that of the innermost [WithOwner] or
// [WithPortableOwner], else the calling goroutine.
func CurrentOwner(ctx context.Context) Owner { return core.CurrentOwner(ctx) }

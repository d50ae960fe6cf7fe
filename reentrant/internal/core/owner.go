package core

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/petermattis/goid"

	"github.com/relock-go/relock/backend"
)

// An Owner is reentrant.Owner.
type Owner struct {
	name      string
	goroutine int64 // 0 for a named owner
	portable  bool  // known by its name in the whole deployment
	slot      bool  // it holds the number of a Slot
}

// String returns the owner as Redis has it after the session's id: a goroutine's decimal id, "~name", or "@id" for a
// portable owner.
func (o Owner) String() string {
	switch {
	case o.goroutine != 0:
		return strconv.FormatInt(o.goroutine, 10)
	case o.portable:
		return "@" + o.name
	}
	return "~" + o.name
}

// What follows are functions, and not methods, because Owner is a type of the public package.

// IsShared reports whether several goroutines can act as the owner at the same time.
func IsShared(o Owner) bool { return o.goroutine == 0 }

// IsPortable reports whether the owner is known by its name in the whole deployment.
func IsPortable(o Owner) bool { return o.portable }

// GoroutineOf returns the id of the goroutine that is the owner, 0 for a named owner.
func GoroutineOf(o Owner) int64 { return o.goroutine }

// NewSlotOwner returns a new owner for the number of a Slot.
func NewSlotOwner() Owner { return Owner{name: NewID(), slot: true} }

// MaxName bounds the names of owners and conditions, in bytes. They are part of commands and messages.
const MaxName = 4096

// CheckOwner returns an error if the owner that a context carries has an empty name, or one that is too long.
func CheckOwner(o Owner) error {
	switch {
	case o.goroutine != 0:
		return nil
	case o.name == "":
		return errors.New("the owner that the context carries has an empty name")
	case len(o.name) > MaxName:
		return fmt.Errorf("the name of the owner that the context carries is %d bytes long, at most %d are allowed", len(o.name), MaxName)
	}
	return nil
}

type ownerKey struct{}

// WithOwner returns a context that carries an owner.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// NamedOwner returns the owner with a name.
func NamedOwner(name string) Owner { return Owner{name: name} }

// PortableOwner returns the portable owner with an id.
func PortableOwner(id string) Owner { return Owner{name: id, portable: true} }

// CurrentOwner returns the owner for which a call with ctx acts: that of the innermost [WithOwner] or
// [WithPortableOwner], else the calling goroutine.
func CurrentOwner(ctx context.Context) Owner {
	if ctx != nil {
		if o, ok := ctx.Value(ownerKey{}).(Owner); ok {
			return o
		}
	}
	return Owner{goroutine: goid.Get()}
}

var hashSeed = maphash.MakeSeed()

// HashOwner returns what a queue needs to find an owner: a hash and, for a goroutine, its id.
func HashOwner(o Owner) (hash, number uint64) {
	if o.goroutine != 0 {
		number = uint64(o.goroutine)
		return number * 0x9E3779B97F4A7C15 >> 32, number
	}
	return maphash.String(hashSeed, o.name), 0
}

// NumberedOwner returns the goroutine owner with a number that HashOwner returned.
func NumberedOwner(number uint64) Owner { return Owner{goroutine: int64(number)} }

// Admit returns the calling owner, or the error of a call that must not take the lock: an invalid one, or one whose ctx
// has ended. invalid is the handle's error, nil if the handle is valid.
func (s *Session) Admit(ctx context.Context, invalid error) (Owner, error) {
	owner, err := s.Caller(ctx, invalid)
	if err == nil && ctx.Err() != nil {
		err = InterruptedBy(ctx, "before the call", nil)
	}
	return owner, err
}

// Caller returns the calling owner, or the error of an invalid call. invalid is the handle's error, nil if the handle is valid.
func (s *Session) Caller(ctx context.Context, invalid error) (Owner, error) {
	if ctx == nil {
		return Owner{}, errors.New("nil context")
	}
	if invalid != nil {
		return Owner{}, invalid
	}
	owner := CurrentOwner(ctx)
	switch {
	case owner.goroutine == 0:
		return owner, CheckOwner(owner)
	case s.Config.Explicit:
		return Owner{}, ErrNoOwner
	}
	return owner, nil
}

type noteKey struct{}

// WithNote returns a context under which locks that are taken carry a note.
func WithNote(ctx context.Context, note string) context.Context {
	return context.WithValue(ctx, noteKey{}, fitNote(note))
}

// fitNote returns the text as a valid note: in UTF-8, and cut if it is too long.
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

// NoteOf returns the note that a context carries, "" if it carries none.
func NoteOf(ctx context.Context) string {
	note, _ := ctx.Value(noteKey{}).(string)
	return note
}

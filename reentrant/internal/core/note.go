package core

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/relock-go/relock/backend"
)

type noteKey struct{}

// WithNote returns a context under which locks that are taken carry a note.
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

// NoteOf returns the note that a context carries, "" if none.
func NoteOf(ctx context.Context) string {
	note, _ := ctx.Value(noteKey{}).(string)
	return note
}

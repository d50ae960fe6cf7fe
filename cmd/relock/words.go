package main

import (
	"errors"
	"strings"

	"github.com/relock-go/relock/reentrant"
)

// words are the text of an error for people at a shell: without the packages that it comes from, and with the lock in place
// of the method that was called.
func words(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*reentrant.Error](err); ok {
		text = strings.Replace(text, e.Error(), shown(e.Lock)+": "+e.Err.Error(), 1)
	}
	return plain.Replace(text)
}

var plain = strings.NewReplacer(
	reentrant.ErrUnavailable.Error(), "Redis is not available",
	"redisbackend: ", "", "reentrant: ", "", "Open: ", "")

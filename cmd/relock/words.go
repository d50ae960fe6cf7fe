package main

import (
	"errors"
	"strings"

	"github.com/relock-go/relock/reentrant"
)

// words returns the text of an error for a user at a shell: without package names, and with the lock's name instead of
// the method's.
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

package main

import (
	"fmt"
	"io"
)

// An outage is a silence of Redis. Relock says when it begins and when it ends, and nothing in between.
type outage struct {
	stderr io.Writer
	err    error // how it began; nil while Redis answers
}

// heard takes in whether Redis has answered. What follows from a silence is said with it.
func (o *outage) heard(err error, what func() string) {
	switch {
	case err != nil && o.err == nil:
		o.err = err
		o.say(fmt.Sprintf("Redis does not answer; %s: %s", what(), words(err)))
	case err == nil && o.err != nil:
		o.err = nil
		o.say("Redis answers again")
	}
}

// say does not wait: a reader that does not read must not hold up the end of a command.
func (o *outage) say(text string) { go fmt.Fprintln(o.stderr, "relock:", text) }

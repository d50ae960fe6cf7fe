package main

import (
	"fmt"
	"io"
)

// An outage is a time during which Redis does not reply. Relock prints a message when it begins and when it ends.
type outage struct {
	stderr io.Writer
	err    error // the first error; nil while Redis replies
}

// update handles the result of a request. what describes the consequence of an outage, for the message.
func (o *outage) update(err error, what func() string) {
	switch {
	case err != nil && o.err == nil:
		o.err = err
		o.say(fmt.Sprintf("Redis does not answer; %s: %s", what(), words(err)))
	case err == nil && o.err != nil:
		o.err = nil
		o.say("Redis answers again")
	}
}

// say prints in the background: a blocked stderr must not delay the end of a command.
func (o *outage) say(text string) { go fmt.Fprintln(o.stderr, "relock:", text) }

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/relock-go/relock/reentrant"
)

// words returns the text of an error for a user at a shell: without package names, and with the lock's name instead of
// the method's.
func words(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*reentrant.Error](err); ok {
		text = strings.Replace(text, fmt.Sprintf("reentrant: %s %q: ", e.Op, e.Lock), shown(e.Lock)+": ", 1)
	}
	return login.ReplaceAllString(plain.Replace(text), "://…@")
}

// ownWords returns the text of an error of the parser, in the words of the manual.
func ownWords(err error) string {
	text := loginWithSpaces.ReplaceAllString(words(err), "://…@")
	for _, w := range parserWords {
		text = w.said.ReplaceAllString(text, w.say)
	}
	return text
}

var parserWords = []struct {
	said *regexp.Regexp
	say  string
}{
	{regexp.MustCompile(`: expected .* but got "EOL" \(<EOL>\)$`), ": the value is missing"},
	{regexp.MustCompile(`: expected .* but got .*; perhaps try (.*)\?$`), ": the value is missing; one that begins with a hyphen is written $1"},
	{regexp.MustCompile(`^(unknown flag -\w), did you mean .*`), "$1"}, // all flags of one letter are alike
	{regexp.MustCompile(`, did you mean (.*)\?$`), " (did you mean $1?)"},
	{regexp.MustCompile(`expected a valid 64 bit int but got (".*")`), "$1 is no whole number"},
	{regexp.MustCompile(`bool value must be true, .* but got (".*")`), "$1 is neither true nor false"},
	{regexp.MustCompile(`^expected "<shell>"$`), "the SHELL is missing: bash, zsh or fish"},
	{regexp.MustCompile(`^<shell> must be one of .* but got (".*")`), "the SHELL is bash, zsh or fish, not $1"},
}

// login matches what a URL has between its scheme and its host, where there may be a password with any signs.
var login = regexp.MustCompile(`://\S*@`)

// loginWithSpaces is login, also with spaces, for a text in which nothing but one argument follows the scheme.
var loginWithSpaces = regexp.MustCompile(`://.*@`)

var plain = strings.NewReplacer(
	reentrant.ErrUnavailable.Error(), "Redis is not available",
	"no reply within the client's ConnWriteTimeout", "no reply in time",
	"redisbackend: ", "", "reentrant: ", "", "Open: ", "", "ParseURL: ", "")

//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestANoteIsShownBesideTheHolder(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	holder := start(t, url, "hold", "--note", "release \x1b[31m4.2", "deploy")
	heldToken(holder)
	s := session(t, url)
	eventually(t, func() bool { return state(t, s, "deploy").Note != "" }, "the note is not there")
	const note = `"release \x1b[31m4.2"`
	assert.Contains(t, look(t, 0, "inspect", "deploy", "--redis", url), "\nnote  "+note+"\n")
	assert.Contains(t, look(t, 0, "inspect", "deploy", "--json", "--redis", url), `"note":"release \u001b[31m4.2"`)
	assert.Regexp(t, `^NAME .* WAITING  NOTE\ndeploy .*  0  "release `, look(t, 0, "list", "--redis", url))
	assert.Contains(t, look(t, exitNotAcquired, "run", "-n", "deploy", "--redis", url, "--", "true"), ": "+note)

	r := newRun(t, url, "run", "deploy", "--", "echo", "ready")
	startOnTerminal(t, r)
	r.matches(`relock: waiting for deploy, held by .* for \d+ (s|min): "release `)
	logged := start(t, url, "run", "deploy", "--", "true")
	record := regexp.MustCompile(`(?m)^time=\S+ level=INFO msg="waiting for a lock" .* holder_note="release `)
	eventually(t, func() bool { return record.MatchString(logged.stderr.String()) }, "the log has no note")
}

func TestTheNoteOfAPartIsShownBesideItsSession(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	for name, flag := range map[string]string{"reading": "-s", "writing": "-x", "permits": "--permits=2"} {
		start(t, url, "hold", flag, "--note", "release \x1b[31m4.2", name)
		s := session(t, url)
		eventually(t, func() bool {
			st, err := statusOf(t.Context(), s, name)
			return err == nil && st.note() != ""
		}, "the note is not there")
		const note = `"release \x1b[31m4.2"`
		assert.Regexp(t, `\nsession  .*, note `+regexp.QuoteMeta(note)+`\n`, look(t, 0, "inspect", name, "--redis", url))
		assert.Contains(t, look(t, 0, "inspect", name, "--json", "--redis", url), `"note":"release \u001b[31m4.2"`)
		assert.Regexp(t, `^NAME .* WAITING  NOTE\n`+name+` .*  0  "release `, look(t, 0, "list", name, "--redis", url))
	}
	assert.Contains(t, look(t, exitNotAcquired, "run", "-n", "-x", "reading", "--redis", url, "--", "true"), `(note: "release \x1b[31m4.2")`)
	assert.Contains(t, look(t, exitNotAcquired, "run", "-n", "--permits=1", "permits", "--redis", url, "--", "true"), `(permits: 1, note: "release`)
	logged := start(t, url, "run", "-x", "reading", "--", "true")
	record := regexp.MustCompile(`(?m)^time=\S+ level=INFO msg="waiting for a lock" .* holder_note="release `)
	eventually(t, func() bool { return record.MatchString(logged.stderr.String()) }, "the log has no note")
}

func TestWatchPrintsANoteThatComes(t *testing.T) {
	t.Parallel()
	s := status{Name: "lock", Locked: true, Owner: "~a", Session: "5bdd", Holds: 1, Token: 7}
	noted := s
	noted.Note = "text"
	assert.False(t, s.same(noted))
	assert.True(t, strings.HasSuffix(noted.line(), ", 0 waiting: text"))

	of := func(note string) status {
		return status{Locked: true, shared: &shared{Kind: kindRWLock, Holders: []sharedHolder{{Session: "5bdd", Mode: "read", Note: note}}}}
	}
	assert.False(t, of("").same(of("text")))
	assert.Contains(t, of("text").line(), "session 5bdd (note: text)")
}

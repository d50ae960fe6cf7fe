//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

func TestErrorsAreInTheWordsOfTheCommand(t *testing.T) {
	unavailable := fmt.Errorf("redisbackend: %w: %w", backend.ErrUnavailable, errors.New("dial tcp: connection refused"))
	for want, err := range map[string]error{
		"Redis is not available: dial tcp: connection refused":         unavailable,
		"deploy: Redis is not available: dial tcp: connection refused": &reentrant.Error{Op: "try lock", Lock: "deploy", Err: unavailable},
		`"a b": lost while it was held; and more`:                      fmt.Errorf("%w; and more", &reentrant.Error{Op: "rlock", Lock: "a b", Err: reentrant.ErrLost}),
		"NOPERM this user has no permissions":                          errors.New("redisbackend: Open: NOPERM this user has no permissions"),
		"lock deploy was lost":                                         failf(exitLost, "lock deploy was lost"),
	} {
		assert.Equal(t, want, words(err))
	}
}

func TestARedisThatCannotBeReachedIsNamed(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run", "lock", "--", "true"}, {"hold", "lock"}, {"inspect", "lock"}, {"list"}, {"watch", "lock"}, {"unlock", "lock"}} {
		r := start(t, "redis://127.0.0.1:1", args...)
		r.exits(exitRedis)
		assert.Equal(t, "relock: Redis is not available: dial tcp 127.0.0.1:1: connect: connection refused\n", r.stderr.String(), "%q", args)
	}
}

// All flags that are durations accept the same forms.
func TestAllDurationsCanBeSeconds(t *testing.T) {
	for _, flag := range []string{"--wait", "--lease", "--grace"} {
		assert.Equal(t, "relock: "+flag+`: "soon" is no duration: give seconds, as 30 or 0.5, or a duration, as 500ms, 5m or 1h30m`+"\n",
			look(t, exitUsage, "run", flag, "soon", "lock", "--", "true"))
	}
	assert.Contains(t, look(t, exitUsage, "run", "--lease", "0.5", "lock", "--", "true"), "--lease 500ms: at least <ttl>")
	assert.Contains(t, look(t, exitUsage, "hold", "--lease", "NaN", "lock"), "is no duration")
	assert.Contains(t, look(t, exitUsage, "run", "--lease=9", "--grace=3.5", "lock", "--", "true"), "--grace <ttl> does not fit into --lease <ttl>")
	assert.Contains(t, look(t, exitUsage, "watch", "--interval=0", "lock"), "--interval <ttl>: must be positive")
}

func TestCountsHaveTheRightPlural(t *testing.T) {
	assert.Equal(t, "1 permit", counted(1, "permit"))
	assert.Equal(t, "2 permits", counted(2, "permit"))
	assert.Equal(t, "0 holds", counted(0, "hold"))
	one := newSharedStatus("jobs", reentrant.SharedState{Kind: backend.Permits, Holders: []backend.SharedHolder{{Session: "a", Units: 1, Limit: 1}}})
	assert.Equal(t, "1 of 1 permit held", one.use())
}

// What others wrote in Redis cannot change the terminal of one who looks.
func TestAStateFromElsewhereIsQuoted(t *testing.T) {
	t.Parallel()
	const escape = "\x1b[2J"
	var out bytes.Buffer
	st := newStatus("x", reentrant.State{Locked: true, Owner: "~" + escape, Session: escape, Note: escape, Waiting: []string{escape, "b"}})
	require.NoError(t, st.print(&out))
	for _, text := range []string{out.String(), st.line(), st.reason()} {
		assert.NotContains(t, text, "\x1b")
		assert.Contains(t, text, `\x1b[2J`)
	}
}

// Nor can texts from elsewhere change the terminal as JSON, although the encoder escapes only some control characters. What
// a reader of the JSON decodes is the same.
func TestJSONFromElsewhereCannotChangeTheTerminal(t *testing.T) {
	t.Parallel()
	const odd = "\u009b2J\u202e\U000e0001\x7f\x1bé\u3000\"\\\n"
	var out bytes.Buffer
	require.NoError(t, printJSON(&out, newStatus("x", reentrant.State{Locked: true, Owner: odd, Waiting: []string{odd}})))
	for _, r := range strings.TrimSuffix(out.String(), "\n") {
		assert.True(t, unicode.IsGraphic(r), "%q in %q", r, &out)
	}
	assert.Equal(t, 1, strings.Count(out.String(), "\n"))
	var st status
	require.NoError(t, json.Unmarshal(out.Bytes(), &st))
	assert.Equal(t, odd, st.Owner)
	assert.Equal(t, []string{odd}, st.Waiting)
}

// A mistake in the command line is named in plain words, and without a password.
func TestMistakesInTheCommandLineAreNamedPlainly(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"run --lease":                            "--lease: the value is missing",
		"run --permits":                          "--permits: the value is missing",
		"inspect x --redis":                      "--redis: the value is missing",
		"run --permits x a":                      `--permits: "x" is no whole number`,
		"unlock --force=so x":                    `--force: "so" is neither true nor false`,
		"completion":                             "the SHELL is missing: bash, zsh or fish",
		"completion ksh":                         `the SHELL is bash, zsh or fish, not "ksh"`,
		"inspect x redis://me:se#cr@et@host:1/2": "unexpected argument redis://…@host:1/2\nusage: relock inspect [OPTION…] NAME (relock help inspect)",
		"inspect x --redis redis://:12#cret@127.0.0.1":             "the URL has a # or an @ where neither can be (special characters in a password must be percent-encoded)",
		"inspect x --redis redis://:12?cret@127.0.0.1":             "the URL has a # or an @ where neither can be (special characters in a password must be percent-encoded)",
		"inspect x --redis redis://127.0.0.1:1/a?secret@127.0.0.1": "the URL has a # or an @ where neither can be (special characters in a password must be percent-encoded)",
	} {
		var stderr bytes.Buffer
		assert.NotZero(t, execute(strings.Split(line, " "), io.Discard, &stderr), line)
		assert.Equal(t, "relock: "+want+"\n", stderr.String(), line)
	}
}

// A URL in the place of a name is no name to print.
func TestAPasswordInAStrayURLIsNotPrinted(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	for _, args := range [][]string{
		{"inspect", "x", "redis://me:se xq@et@host:1/2"}, {"redis://me:se xq@et@host"}, {"help", "redis://me:se xq@et@host"},
		{"list", "redis://me:se xq@et@host"}, {"run", "-w", "redis://me:se xq@et@host", "x", "true"}, {"completion", "redis://me:se xq@et@host"},
	} {
		var stderr bytes.Buffer
		execute(append(args, "--redis", url), io.Discard, &stderr)
		assert.Contains(t, stderr.String(), "redis://…@host", args)
		assert.NotContains(t, stderr.String(), "xq", args)
	}
}

// An error of another package may quote the URL.
func TestWordsOfAnErrorShowNoPassword(t *testing.T) {
	assert.Equal(t, "connect to redis://…@host:1/2: refused", words(errors.New("connect to redis://me:se#cr@et@host:1/2: refused")))
}

// A script whose variable is not set must not lock on another server than the environment names.
func TestAnEmptyRedisFlagIsThatOfTheEnvironment(t *testing.T) {
	t.Setenv("REDIS_URL", "of the environment")
	var stderr bytes.Buffer
	assert.Equal(t, 64, execute([]string{"list", "--redis", ""}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "is no URL")
}

//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheFlagsOfFlock(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	release := holdLock(t, session(t, url), "lock", "alice")
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"run", "lock", "-n", "--", "true"}, exitNotAcquired},
		{[]string{"run", "-n", "lock", "--", "true"}, exitNotAcquired},
		{[]string{"run", "--nb", "lock", "true"}, exitNotAcquired},
		{[]string{"run", "--nonblocking", "-E", "3", "lock", "-c", "true"}, 3},
		{[]string{"run", "-w", "0", "-E0", "lock", "--", "false"}, 0},
		{[]string{"run", "-w0.3", "--conflict-exit-code=4", "lock", "--", "false"}, 4},
		{[]string{"hold", "-n", "lock"}, exitNotAcquired},
		{[]string{"hold", "-w", "300ms", "-E", "5", "lock"}, 5},
	} {
		r := answered(t, url, test.args...)
		r.exits(test.want)
		assert.Contains(t, r.stderr.String(), "lock lock was not acquired", "%q", test.args)
	}
	release()
	// The command's own exit status is never replaced.
	answered(t, url, "run", "-n", "-E", "3", "lock", "--", "sh", "-c", "exit "+strconv.Itoa(exitNotAcquired)).exits(exitNotAcquired)
}

func TestSecondsAreReadAsNumbersAndAsDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "7": 7 * time.Second, "0.25": 250 * time.Millisecond, "2m": 2 * time.Minute} {
		var s seconds
		require.NoError(t, s.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, time.Duration(s), text)
	}
	for _, text := range []string{"", "x", "inf", "NaN", "1e40", "5 s"} {
		assert.Error(t, new(seconds).UnmarshalText([]byte(text)), text)
	}
}

func TestTheShellRunsATextGivenByC(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	shell := filepath.Join(t.TempDir(), "my-shell")
	require.NoError(t, os.WriteFile(shell, []byte("#!/bin/sh\necho \"mine: $1 $2\"\n"), 0o700))
	for variable, want := range map[string]string{"/bin/sh": "two words\n", "": "two words\n", shell: "mine: -c false; echo \"$RELOCK_NAME\"\n"} {
		r := newRun(t, url, "run", "two words", "-c", `false; echo "$RELOCK_NAME"`)
		r.cmd.Env = append(r.cmd.Env, "SHELL="+variable)
		r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
		r.begin()
		r.exits(0)
		assert.Equal(t, want, r.stdout.String())
	}
}

func TestThePrefixCanBeGivenInTheEnvironment(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	r := newRun(t, url, "hold", "lock")
	r.cmd.Env = append(r.cmd.Env, "RELOCK_PREFIX=app:")
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	r.says("\n")
	assert.Contains(t, look(t, 0, "inspect", "lock", "--prefix", "app:", "--redis", url), "held")
	assert.Contains(t, look(t, 0, "inspect", "lock", "--redis", url), "free")
}

func TestTheVersionIsPrinted(t *testing.T) {
	t.Parallel()
	r := start(t, "", "--version")
	r.exits(0)
	assert.Regexp(t, `^relock \S+, go1\.\S+, \w+/\w+\n$`, r.stdout.String())
}

func TestHelpIsTheSameAsACommandAndAsAFlag(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "hold", "list", "unlock"} {
		flag := start(t, "", command, "--help")
		flag.exits(0)
		assert.Equal(t, even(flag.stdout.String()), look(t, 0, "help", command))
	}
	assert.Contains(t, look(t, 0, "help"), "relock run deploy -- ./deploy.sh")
	assert.Contains(t, look(t, 0, "help", "run"), "Examples:")
}

func TestTheResultIsPrintedBeforeWhatIsLeftTaken(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	err := conclude(failf(exitLost, "lock x was lost"), errors.New("the lock stays taken"), &said)
	assert.Equal(t, "relock: lock x was lost\nrelock: the lock stays taken\n", said.String())
	assert.Equal(t, exitLost, report(err, &said))
	assert.Equal(t, 2, bytes.Count(said.Bytes(), []byte("\n")), "the message is printed twice")

	assert.Equal(t, 0, report(conclude(nil, errors.New("the lock stays taken"), &said), &said))
	assert.Equal(t, 7, report(conclude(fail(7, nil), errors.New("the lock stays taken"), &said), &said))
}

//go:build unix

package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// heldToken waits until relock hold has printed its token, and returns it.
func heldToken(r *run) uint64 {
	r.t.Helper()
	r.says("\n")
	token, err := strconv.ParseUint(strings.TrimSpace(r.stdout.String()), 10, 64)
	require.NoError(r.t, err)
	return token
}

// outages matches what relock prints when Redis does not reply for a while, as on a machine that stands still.
var outages = regexp.MustCompile(`(?m)^relock: Redis (does not answer; .*|answers again)\n`)

func TestAHoldEndsWithItsInput(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	r := newRun(t, url, "hold", "lock")
	input, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	assert.EqualValues(t, heldToken(r), state(t, s, "lock").Token)
	_, err = input.Write([]byte("this is read, and means nothing\n"))
	require.NoError(t, err)
	assert.True(t, state(t, s, "lock").Locked)
	require.NoError(t, input.Close())
	r.exits(0)
	assert.False(t, state(t, s, "lock").Locked, "the lock was not released")
	assert.Empty(t, outages.ReplaceAllString(r.stderr.String(), ""))
}

// A background job has /dev/null as its input. It keeps its lock all the same.
func TestAHoldWithoutInputEndsWithASignal(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		r := start(t, url, "hold", "lock") // the input is /dev/null
		heldToken(r)
		select {
		case <-r.ended:
		default:
			assert.True(t, state(t, s, "lock").Locked)
		}
		r.signal(syscall.SIGTSTP) // a suspended holder would lose its lock
		r.signal(sig)
		r.exits(0)
		assert.False(t, state(t, s, "lock").Locked, "the lock was not released")
	}
}

func TestDevNullHasNoEnd(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	assert.True(t, isNull(null))
	file, err := os.Open("keep_test.go")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	assert.False(t, isNull(file))
	<-endOf(file)
	assert.Nil(t, endOf(null), "a background job would release its lock at once")
}

func TestAHoldEndsWhenTheLockIsTaken(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	r := start(t, url, "hold", "lock", "--lease", "15s")
	heldToken(r)
	takeAway(t, url, "lock")
	r.exits(exitLost)
	assert.Contains(t, r.stderr.String(), "relock: lock lock was lost (")
}

func TestAHoldEndsWithItsLease(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	r := start(t, slowly(server.URL()), "hold", "lock", "--lease", "15s")
	heldToken(r)
	server.Stop()
	r.exits(exitLost)
	assert.Contains(t, r.stderr.String(), "relock: lock lock was lost (")
}

func TestAHoldReportsThatRedisDoesNotReply(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	r := start(t, slowly(server.URL()), "hold", "lock")
	heldToken(r)
	server.Stop()
	says := func() bool {
		return strings.Contains(r.stderr.String(), "relock: Redis does not answer; the lock is lost when its lease ends: ")
	}
	eventually(t, says, "the outage is not reported")
}

func TestAHoldOnATerminalEndsWithControlD(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"Ctrl-D": "\x04", "Ctrl-C": ctrlC} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, embedded(t), "hold", "lock")
			tty := startOnTerminal(t, r)
			r.says("relock: lock is held; Ctrl-D or Ctrl-C gives it back")
			enter(t, tty, key)
			r.exits(0)
		})
	}
}

// A shell with job control suspends background jobs that read its terminal. A suspended holder would lose its lock.
func TestAHoldInTheBackgroundOfATerminalIsNotStopped(t *testing.T) {
	t.Parallel()
	r := newRun(t, embedded(t))
	relock := r.cmd.Path
	// where there is no /proc the test hangs if the job is suspended
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c", `set -m; "$0" hold --lease 1m lock & p=$!; read line; kill -TERM $p
		(while grep -q "^State:.[^TZ]" /proc/$p/status; do sleep 0.01; done; kill -KILL $p) 2>/dev/null &
		wait $p; echo "status $?, at the end"`, relock}
	tty := startOnTerminal(t, r)
	r.says("relock: lock is held")
	enter(t, tty, "line\n")
	r.says(", at the end")
	r.exits(0)
	assert.Contains(t, r.stdout.String(), "status 0,", "the job was suspended, and so killed")
}

//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
)

// The command and a process that it started ignore TERM, and Redis stops replying. Both processes must be dead before
// Redis can give the lock to another session.
//
// The end of the lease is known exactly: a single step makes Redis reply to no client any more, and reads what is left
// of the lease. No renewal comes after that.
//
// A twentieth of the lease is left for the KILL. If relock itself stands still for as long it cannot send it, which
// proves nothing: then the test tries again.
func TestTheCommandIsDeadBeforeTheLeaseEnds(t *testing.T) {
	testsize.FullOnly(t) // a lease of half a minute, by the real clock
	t.Parallel()
	for name, stop := range map[string]func(*redisserver.Server){
		"killed": (*redisserver.Server).Stop,
		"frozen": (*redisserver.Server).Freeze,
		"mute":   func(*redisserver.Server) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end, last, stood := outlive(t, stop)
			for range 2 {
				if last >= end && stood {
					end, last, stood = outlive(t, stop)
				}
			}
			assert.Less(t, last, end, "a process was alive %v after the end of the lease", time.Duration(last-end))
		})
	}
}

// outlive stops the Redis of a command's lock. It returns when the lease ended, when one of the command's processes was
// last alive, and whether relock stood still during the last second of the lease.
func outlive(t *testing.T, stop func(*redisserver.Server)) (end, last int64, stood bool) {
	server := redisserver.Start(t)
	h, pulse := newHeart(t), newHeart(t)
	r := newRun(t, promptly(server.URL()), "run", "lock", "--lease", "30s", "--grace", "1s", "--", "sh", "-c",
		"trap '' TERM; "+h.command()+" & "+h.command()+" & while :; do wait; done")
	r.cmd.Env = append(r.cmd.Env, pulseVariable+"="+pulse.path)
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	h.await(2)

	end = silence(t, client(t, server.Addr()), "lock")
	stop(server)
	r.exits(exitLost)
	ended := clock()
	assert.Contains(t, r.stderr.String(), "the command is ended in")
	assert.Contains(t, r.stderr.String(), "lock lock was lost")

	eventually(t, func() bool { return clock() > end }, "time stands still")
	time.Sleep(100 * time.Millisecond) // enough for many beats of a process that is alive
	_, last = h.read()
	assert.Less(t, last, ended, "a process was alive after relock had ended")
	return end, last, !pulse.beatIn(end-int64(time.Second), end)
}

// silence makes Redis reply to no client for a long time, and returns when a lock's lease ends, by the clock.
func silence(t *testing.T, c rueidis.Client, lock string) int64 {
	t.Helper()
	const long = "100000" // ms
	one, done := c.Dedicate()
	defer done()
	answers := one.DoMulti(t.Context(),
		one.B().Multi().Build(),
		one.B().Arbitrary("CLIENT", "PAUSE", long, "ALL").Build(),
		one.B().Pttl().Key(lock).Build(),
		one.B().Exec().Build())
	received := clock()
	results, err := answers[3].ToArray()
	require.NoError(t, err)
	left, err := results[1].AsInt64()
	require.NoError(t, err)
	require.Positive(t, left)
	return received + left*int64(time.Millisecond)
}

// The command survives an outage that is shorter than the lease allows. Its beginning and its end are reported.
func TestAShortOutageIsSurvived(t *testing.T) {
	testsize.FullOnly(t) // a third of a long lease, by the real clock
	t.Parallel()
	server := redisserver.Start(t)
	r := newRun(t, promptly(server.URL()), "run", "lock", "--", "sh", "-c", "echo ready; read line; echo done")
	input, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	r.says("ready")
	says := func(text string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(r.stderr.String(), text) }, "no "+text)
	}
	server.Freeze()
	says("relock: Redis does not answer; the command is ended in ")
	server.Thaw()
	says("relock: Redis answers again\n")
	_, err = input.Write([]byte("\n"))
	require.NoError(t, err)
	r.exits(0)
	assert.Equal(t, "ready\ndone\n", r.stdout.String())
}

// While Redis is silent, relock does not report to a waiter that another process has the lock.
func TestAWaitThatEndsInAnOutageSaysSo(t *testing.T) {
	testsize.FullOnly(t) // a wait of fifteen seconds
	t.Parallel()
	server := redisserver.Start(t)
	s := session(t, promptly(server.URL()))
	release := holdLock(t, s, "lock", "alice")
	r := start(t, promptly(server.URL()), "run", "lock", "--wait", "15s", "--", "echo", "never")
	eventually(t, func() bool { return len(state(t, s, "lock").Waiting) == 1 }, "relock does not wait")
	server.Freeze()
	r.exits(exitRedis)
	server.Thaw()
	assert.Empty(t, r.stdout.String())
	release()
}

// Relock ends the command in time, even if no process reads what relock prints.
func TestAReaderThatDoesNotReadDelaysNothing(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	h := newHeart(t)
	r := newRun(t, slowly(server.URL()), "run", "lock", "--lease", "15s", "--grace", "100ms", "--", "sh", "-c",
		h.command()+" & while :; do wait; done")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	r.cmd.Stderr = writer
	r.begin()
	require.NoError(t, writer.Close())
	h.await(1)
	server.Stop()
	r.exits(exitLost)
}

//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

func TestATerminalShowsTheHolder(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	holder := start(t, url, "hold", "deploy")
	heldToken(holder)
	r := newRun(t, url, "run", "deploy", "--", "echo", "ready")
	startOnTerminal(t, r)
	owner := regexp.QuoteMeta("~" + ownerName(hostname(), holder.cmd.Process.Pid))
	r.matches(`relock: waiting for deploy, held by owner ` + owner + ` of session .* for \d+ (s|min)\r?\n`)

	// The next holder is reported, too.
	s := session(t, url)
	eventually(t, func() bool { return len(state(t, s, "deploy").Waiting) == 1 }, "relock does not wait")
	force(t, s, "deploy")
	holder.exits(exitLost)
	r.exits(0)
	r.says("ready")
}

func TestATerminalShowsTheNextHolder(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	first, second := session(t, url), session(t, url)
	release := holdLock(t, first, "lock", "one")
	next := make(chan func(), 1)
	go func() { next <- holdLock(t, second, "lock", "two words") }()
	eventually(t, func() bool { return len(state(t, first, "lock").Waiting) == 1 }, "the session does not wait")
	r := newRun(t, url, "run", "lock", "--", "true")
	startOnTerminal(t, r)
	r.says("relock: waiting for lock, held by owner ~one of session " + first.ID() + " for ")
	release()
	r.says(`relock: waiting for lock, held by owner "~two words" of session ` + second.ID())
	(<-next)()
	r.exits(0)
}

func TestALogHasARecordOfTheHolder(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	release := holdLock(t, s, "lock", "alice")
	r := start(t, url, "run", "lock", "--", "true")
	record := regexp.MustCompile(`(?m)^time=\S+ level=INFO msg="waiting for a lock" lock=lock waited=\S+s holder=~alice holder_session=` + s.ID() + ` held_for=\S+s$`)
	eventually(t, func() bool { return record.MatchString(r.stderr.String()) }, "the log has no record")
	release()
	r.exits(0)
}

func TestAnOutageIsReportedDuringAWait(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	s := session(t, promptly(server.URL()))
	holdLock(t, s, "lock", "alice")
	r := newRun(t, promptly(server.URL()), "run", "lock", "--", "true")
	startOnTerminal(t, r)
	r.says("relock: waiting for lock, held by owner ~alice of session ")
	server.Freeze()
	r.says("relock: waiting for lock, but Redis does not answer: ")
	server.Thaw()
}

// Nothing is printed about a lock that is free, and so acquired without a wait.
func TestNothingIsPrintedAboutAFreeLock(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	said := func() string {
		r := start(t, url, "run", "lock", "--", "sleep", "0.4")
		r.exits(0)
		return r.stderr.String()
	}
	text := said()
	for tries := 0; strings.Contains(text, "does not answer") && tries < 5; tries++ { // a reply came late
		text = said()
	}
	assert.Empty(t, text)
}

func TestDurationsInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 s", 14*time.Second + 900*time.Millisecond: "14 s", 119 * time.Second: "119 s",
		2 * time.Minute: "2 min", 3 * time.Hour: "3 h", 50 * time.Hour: "2 days",
	} {
		assert.Equal(t, want, inWords(d), fmt.Sprint(d))
	}
}

func TestOnlyATerminalIsATerminal(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	defer func() { _ = writer.Close() }()
	assert.False(t, isTerminal(writer))
	assert.False(t, isTerminal(new(output)))
}

// With -q a wait that ends well prints nothing, and one that does not prints its error alone.
func TestAQuietWaitPrintsOnlyErrors(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	holdLock(t, s, "deploy", "alice")
	r := answered(t, url, "run", "-q", "-w", "3", "deploy", "--", "echo") // a report would come after 200 ms, or a little later
	r.exits(exitNotAcquired)
	assert.Regexp(t, `^relock: lock deploy was not acquired: .*\n$`, r.stderr.String())
	loud := start(t, url, "run", "deploy", "--", "echo")
	eventually(t, func() bool { return strings.Contains(loud.stderr.String(), `msg="waiting for a lock"`) }, "the wait is not reported")
}

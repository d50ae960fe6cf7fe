//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// grant gives a user of the server the rights of the first line of docs/rights.md after a phrase.
func grant(t *testing.T, c rueidis.Client, phrase string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/rights.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), phrase)
	require.True(t, found, phrase)
	_, line, _ := strings.Cut(rest, "\n    ACL SETUSER ")
	line, _, _ = strings.Cut(line, "\n")
	require.NoError(t, c.Do(t.Context(), c.B().Arbitrary("ACL", "SETUSER").Args(strings.Fields(line)...).Build()).Error())
}

// The rights on the page are enough for every command, and relock list needs one more.
func TestTheDocumentedRightsAreEnoughForEveryCommand(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	admin := client(t, server.Addr())
	grant(t, admin, "A user with these rights")
	url := slowly(strings.Replace(server.URL(), "//", "//locks:password@", 1))
	relock := func(status int, args ...string) {
		t.Helper()
		r := start(t, url, append(args, "--prefix", "app:")...)
		r.exits(status)
	}
	run := func(args ...string) {
		t.Helper()
		r := start(t, url, append([]string{"run", "--prefix", "app:"}, args...)...)
		r.exits(0)
	}
	run("--note", "why", "--at-least", "1ms", "plain", "--", "true")
	run("-s", "rw", "--", "true")
	run("-x", "rw", "--", "true")
	run("--permits", "2", "sem", "--", "true")
	hold := newRun(t, url, "hold", "--note", "why", "--prefix", "app:", "held")
	hold.cmd.Stdin = strings.NewReader("")
	hold.begin()
	hold.exits(0)
	for _, name := range []string{"plain", "rw", "sem"} {
		relock(0, "inspect", name)
		relock(exitFree, "unlock", "--force", name)
	}
	watch := newRun(t, url, "watch", "plain", "--prefix", "app:")
	watch.cmd.Stdout = watch.stdout
	watch.begin()
	watch.says("free")
	watch.signal(syscall.SIGINT)
	watch.exits(0)

	relock(exitRedis, "list", "--all")
	grant(t, admin, "`relock list` goes through the keys")
	require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary("ACL", "LOG", "RESET").Build()).Error())
	relock(0, "list", "--all")

	log, err := admin.Do(t.Context(), admin.B().Arbitrary("ACL", "LOG").Build()).ToArray()
	require.NoError(t, err)
	for _, entry := range log {
		refused, err := entry.AsStrMap()
		require.NoError(t, err)
		assert.Regexp(t, `^(cluster|client)\b`, refused["object"], "%v", refused)
	}
}

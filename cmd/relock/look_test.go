//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// look runs a command that starts no other, in this process, and returns its output, in which everything that differs
// between runs is replaced. If Redis does not reply in time the command runs again, unless it changes something.
func look(t *testing.T, status int, args ...string) string {
	t.Helper()
	stdout, stderr := looks(t, status, args...)
	return even(stdout.String() + stderr.String())
}

// looks is look, but returns both outputs, with nothing replaced.
func looks(t *testing.T, status int, args ...string) (stdout, stderr *bytes.Buffer) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
		got := execute(args, stdout, stderr)
		if late(got, stderr.String()) && !slices.Contains(args, "--force") && time.Now().Before(end) {
			continue
		}
		require.Equal(t, status, got, "%s%s", stdout, stderr)
		return stdout, stderr
	}
}

func even(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`[\w.-]+-[0-9]+\.[a-z2-7]{16}\b`, "<session>"},
		{`\b[0-9]+ (s|min)\b`, "<age>"},
		{`\b[0-9]{16}\b`, "<token>"},
		{`"ttl_ms":[1-9][0-9]*`, `"ttl_ms":<ttl>`},
		{`\b[0-9.]+s\b`, "<ttl>"},
		{`\d{4}-\d\d-\d\dT[0-9:.]+Z`, "<time>"},
		{` {2,}`, "  "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}

// wait makes a session wait for a lock until the test ends.
func wait(t *testing.T, s *reentrant.Session, name string) {
	t.Helper()
	go func() { _ = s.NewLock(name).Lock(t.Context()) }() // ended at the end of the test
	eventually(t, func() bool { return len(state(t, s, name).Waiting) > 0 }, "the session does not wait")
}

func TestInspectShowsTheHoldAndTheWaiters(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s, other := session(t, url), session(t, url)
	release := holdLock(t, s, "deploy", "build-7:4711")
	wait(t, other, "deploy")

	assert.Equal(t, `name  deploy
state  held
owner  ~build-7:4711
session  <session>
holds  1
lease  <ttl>
token  <token>
since  <time> (<age>)
waiting  1 <session>
`, look(t, 0, "inspect", "deploy", "--redis", url))
	assert.Equal(t, `{"name":"deploy","locked":true,"owner":"~build-7:4711","session":"<session>","holds":1,"ttl_ms":<ttl>,`+
		`"token":<token>,"waiting":["<session>"],"since":"<time>"}`+"\n", look(t, 0, "inspect", "deploy", "--json", "--redis", url))

	var st status
	stdout, _ := looks(t, 0, "inspect", "deploy", "--json", "--redis", url)
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &st))
	assert.Equal(t, s.ID(), st.Session)
	assert.Equal(t, []string{other.ID()}, st.Waiting)
	release()
}

func TestInspectOfAFreeLock(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	assert.Equal(t, "name  \"a lock\\n\"\nstate  free\nlast token  0\nwaiting  0\n", look(t, 0, "inspect", "a lock\n", "--redis", url))
	assert.Equal(t, `{"name":"free","locked":false,"owner":"","session":"","holds":0,"ttl_ms":0,"token":0,"waiting":[]}`+"\n",
		look(t, 0, "inspect", "free", "--json", "--redis", url))
}

func TestInspectWithAPrefix(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	r := start(t, url, "run", "lock", "--prefix", "app:", "--", "sh", "-c", "echo ready; read line; sleep 100")
	r.says("ready")
	assert.Contains(t, look(t, 0, "inspect", "lock", "--prefix", "app:", "--redis", url), "held")
	assert.Contains(t, look(t, 0, "inspect", "lock", "--redis", url), "free")
	r.signal(syscall.SIGTERM)
	r.exits(128 + 15)
}

func TestListShowsLocksAndNothingElse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := slowly("redis://" + server.Addr())
	c := server.Client()
	do := func(words ...string) {
		require.NoError(t, c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error())
	}
	// Keys that are not locks: hashes of any form, Redisson's too, and keys that resemble a record.
	do("HSET", "user:7", "name", "bob")
	do("HSET", "redisson", "5bdd4a2d-c5fe-474a-b765-ce2a753733c0:7", "1")
	do("SET", "relock:{a}:t:b", "a")
	do("SET", "relock:{a}:t:", "a")
	do("SET", "relock:{a", "a")
	do("SET", "xrelock:{a}:t:a", "a")
	s := session(t, url)
	names := []string{"plain", "with:colon:t:x", "{tag}of", "a{tag}b", "two words", "relock", "app:sub", "é\x00\n"}
	for _, name := range names {
		holdLock(t, s, name, "me")
	}
	holdLock(t, s, "given back", "me")()
	holdLock(t, s, "overwritten", "me")()
	do("SET", "overwritten", "with something else")

	stdout, stderr := looks(t, 0, "list", "--json", "--redis", url)
	assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr)
	assert.Contains(t, stderr.String(), "relock: left out: overwritten: ")
	var got []string
	for line := range strings.Lines(even(stdout.String())) {
		var st struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(strings.NewReplacer("<ttl>", "1", "<token>", "1").Replace(line)), &st))
		got = append(got, st.Name)
	}
	assert.ElementsMatch(t, names, got)
	all := look(t, 0, "list", "--all", "--redis", url)
	assert.Contains(t, all, `"given back"  -  -  -  0  -  <token>  0`)
	assert.Contains(t, all, "plain  ~me  <session>  <age>  1  <ttl>  <token>  0")
	assert.NotContains(t, all, "overwritten  ")
}

// A key that cannot be read is named, and does not prevent other locks from being listed.
func TestListLeavesOutWhatItCannotRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := slowly("redis://" + server.Addr())
	c := server.Client()
	do := func(words ...string) {
		require.NoError(t, c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error())
	}
	s := session(t, url)
	holdLock(t, s, "fine", "me")
	shared := s.NewRWLock("shared")
	require.NoError(t, shared.RLock(t.Context()))
	for _, name := range []string{"garbage", "foreign", "counted"} {
		holdLock(t, s, name, "me")
	}
	do("SET", "relock:{garbage}:t:garbage", "garbage")
	do("DEL", "foreign")
	do("HSET", "foreign", "name", "bob")
	do("DEL", "counted")
	do("HSET", "counted", s.ID()+":~me", "many")
	do("PEXPIRE", "counted", "100000")
	long := strings.Repeat("x", 5000)
	do("SET", "relock:{"+long+"}:t:"+long, "1 1 - 0 0 h 300")
	do("HSET", "relock:{entries}:t:entries", "=", "p 2", "alice", "x")

	stdout, stderr := looks(t, 0, "list", "--redis", url)
	assert.Contains(t, stdout.String(), "fine ")
	assert.Contains(t, stdout.String(), "shared ")
	assert.Equal(t, 3, strings.Count(stdout.String(), "\n"), stdout)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	require.Len(t, lines, 5, stderr)
	for _, name := range []string{"garbage", "foreign", "counted", "entries", "xxx"} {
		assert.True(t, slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "relock: left out: "+name) && len(line) < 500 && !strings.Contains(line, "user_script")
		}), "%s: %s", name, stderr)
	}
	require.NoError(t, shared.RUnlock(t.Context()))
}

func TestListWithAPrefix(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	var runs []*run
	for _, prefix := range []string{"", "app:", "a*p:"} {
		r := start(t, url, "run", "lock of "+prefix, "--prefix", prefix, "--", "sh", "-c", "echo ready; sleep 100")
		r.says("ready")
		runs = append(runs, r)
	}
	for _, prefix := range []string{"", "app:", "a*p:"} {
		lines := strings.Split(strings.TrimSpace(look(t, 0, "list", "--json", "--prefix", prefix, "--redis", url)), "\n")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], `"name":"lock of `+prefix+`"`)
	}
	for _, r := range runs {
		r.signal(syscall.SIGTERM)
		r.wait()
	}
}

// In a Cluster every node has some of the locks.
func TestListInACluster(t *testing.T) {
	t.Parallel()
	url := slowly(redisserver.StartCluster(t, 2, 0).Masters[0].URL())
	s := session(t, url)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		holdLock(t, s, name, "me")
	}
	lines := strings.Split(strings.TrimSpace(look(t, 0, "list", "--json", "--redis", url)), "\n")
	assert.Len(t, lines, 6)
}

func TestListTakesAPattern(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	for _, name := range []string{"deploy-a", "deploy-b/c", "nightly", "*"} {
		holdLock(t, s, name, "me")
	}
	for pattern, want := range map[string][]string{
		"deploy-*": {"deploy-a", "deploy-b/c"},
		"*ly":      {"nightly"},
		"[d]*-?":   {"deploy-a"},
		`\*`:       {"*"},
		"nightly":  {"nightly"},
	} {
		lines := strings.Split(strings.TrimSpace(look(t, 0, "list", pattern, "--redis", url)), "\n")
		require.Len(t, lines, 1+len(want), pattern)
		for i, name := range want {
			assert.True(t, strings.HasPrefix(lines[1+i], name+" "), lines[1+i])
		}
	}
}

func TestAnEmptyListNamesThePrefix(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	const header = "NAME  OWNER  SESSION  HELD  HOLDS  LEASE  TOKEN  WAITING\n"
	assert.Equal(t, header+"relock: no lock is held or waited for with the prefix \"app:\" (--prefix or RELOCK_PREFIX)\n",
		look(t, 0, "list", "--prefix", "app:", "--redis", url))
	assert.Equal(t, header+"relock: no lock named like \"x*\" was used lately with the prefix \"\" (--prefix or RELOCK_PREFIX)\n",
		look(t, 0, "list", "x*", "--all", "--redis", url))
	holdLock(t, session(t, url), "lock", "me")
	assert.NotContains(t, look(t, 0, "list", "--redis", url), "relock:")
}

func TestUnlockNeedsForceForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	holdLock(t, s, "lock", "alice")
	assert.Equal(t, "relock: lock lock is held by owner ~alice of session <session> for <age>, 1 hold, token <token>, 0 waiting. "+
		"Taking it away lets two run at once: --force if that is what you want\n", look(t, exitUsage, "unlock", "lock", "--redis", url))
	assert.True(t, state(t, s, "lock").Locked, "the lock was taken without --force")

	assert.Equal(t, "lock unlocked; it was held by owner ~alice of session <session> for <age>, 1 hold, token <token>, 0 waiting\n",
		look(t, 0, "unlock", "lock", "--force", "--redis", url))
	assert.False(t, state(t, s, "lock").Locked)
	assert.Equal(t, "lock was free\n", look(t, exitFree, "unlock", "lock", "--force", "--redis", url))
	assert.Equal(t, `{"unlocked":false,"name":"lock","locked":false,"owner":"","session":"","holds":0,"ttl_ms":0,"token":<token>,"waiting":[]}`+"\n",
		look(t, exitFree, "unlock", "lock", "--force", "--json", "--redis", url))

	holdLock(t, session(t, url), "lock", "another")
	assert.Equal(t, `{"unlocked":true,"name":"lock","locked":true,"owner":"~another","session":"<session>","holds":1,"ttl_ms":<ttl>,"token":<token>,"waiting":[],"since":"<time>"}`+"\n",
		look(t, 0, "unlock", "lock", "--force", "--json", "--redis", url))
}

func TestWatchPrintsEachChange(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s, other := session(t, url), session(t, url)
	text := start(t, url, "watch", "lock", "--interval", "5ms")
	objects := start(t, url, "watch", "lock", "--interval", "5ms", "--json")
	step := func(n int) {
		t.Helper()
		eventually(t, func() bool {
			return strings.Count(text.stdout.String(), "\n") >= n && strings.Count(objects.stdout.String(), "\n") >= n
		}, "the change is not printed")
	}
	step(1)
	release := holdLock(t, s, "lock", "one")
	step(2)
	wait(t, other, "lock")
	step(3)
	release()
	step(4)
	for _, r := range []*run{text, objects} {
		r.signal(syscall.SIGINT)
		r.exits(0)
	}
	got := regexp.MustCompile(`~?[0-9]+ of session`).ReplaceAllString(even(text.stdout.String()), "<goroutine> of session")
	assert.Equal(t, `<time>  free, last token 0, 0 waiting
<time>  held by owner ~one of session <session> for <age>, 1 hold, token <token>, 0 waiting
<time>  held by owner ~one of session <session> for <age>, 1 hold, token <token>, 1 waiting
<time>  held by owner <goroutine> of session <session> for <age>, 1 hold, token <token>, 0 waiting
`, got)
	got = regexp.MustCompile(`"owner":"[0-9]+"`).ReplaceAllString(even(objects.stdout.String()), `"owner":"<goroutine>"`)
	assert.Equal(t, `{"time":"<time>","name":"lock","locked":false,"owner":"","session":"","holds":0,"ttl_ms":0,"token":0,"waiting":[]}
{"time":"<time>","name":"lock","locked":true,"owner":"~one","session":"<session>","holds":1,"ttl_ms":<ttl>,"token":<token>,"waiting":[],"since":"<time>"}
{"time":"<time>","name":"lock","locked":true,"owner":"~one","session":"<session>","holds":1,"ttl_ms":<ttl>,"token":<token>,"waiting":["<session>"],"since":"<time>"}
{"time":"<time>","name":"lock","locked":true,"owner":"<goroutine>","session":"<session>","holds":1,"ttl_ms":<ttl>,"token":<token>,"waiting":[],"since":"<time>"}
`, got)
}

func TestAWatchGoesOnOverAnOutage(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	r := start(t, slowly(server.URL()), "watch", "lock", "--interval", "5ms")
	r.says("free")
	server.Stop()
	eventually(t, func() bool { return r.stderr.String() != "" }, "the outage is not reported")
	server.Restart(t)
	holdLock(t, session(t, slowly(server.URL())), "lock", "me")
	r.says("held by owner ~me")
	eventually(t, func() bool { return strings.HasSuffix(r.stderr.String(), "relock: Redis answers again\n") }, "the end of the outage is not reported")
	// A slow machine has more outages than this one.
	begun, ended := strings.Count(r.stderr.String(), "relock: Redis does not answer"), strings.Count(r.stderr.String(), "relock: Redis answers again\n")
	assert.Equal(t, begun, ended, r.stderr)
	assert.Equal(t, begun+ended, strings.Count(r.stderr.String(), "\n"), "each is reported once: %s", r.stderr)
	r.signal(syscall.SIGTERM)
	r.exits(0)
}

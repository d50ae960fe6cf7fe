package redisbackend

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzNamesNeverMeet: the keys of a lock and of each of its conditions are in one slot and begin with the prefix; no two
// pairs of a lock and a condition share a key, but for the lock's own; and what a session has on record is nobody's.
func FuzzNamesNeverMeet(f *testing.F) {
	for _, seed := range [][6]string{
		{"", "orders", "ready", "orders", "read", "s"}, {"app:", "a", "b:c", "a:b", "c", "s"}, {"", "1:a", "1:", "a", "1:1:", "s"},
		{"p", "x", "1:y:x", "1:y:x", "x", "waits:x"}, {"", "{a}b", "c", "{a}", "bc", "s"}, {"", "a", "", "", "a", "s"},
		{"", "waits:s", "c", "{waits}s", "c", "s"}, {"", "x", "a:1", "1:x", "a", "s"}, {"", "10:a", "1", "a", "110:", "s"},
		{"", "relock:{a}:t:a", "c", "a", "c", "s"}, {"", "\x00", "\x00", "\x00\x00", "", "s"}, {"", "a", "a", "aa", "", "s"},
		{"", "1:a", "b", "a", "b:1", "s"}, {"", "{x}a", "b", "{x}b", "a", "s"}, {"", "{x}:b", "a", "{x}b", "a:", "s"},
		{"", "{x}a", "b:c", "c:{x}a", "b", "s"}, {"", "{x}a", "", ":{x}a", "", "s"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	f.Fuzz(func(t *testing.T, prefix, lockA, conditionA, lockB, conditionB, session string) {
		b := new(Backend)
		if WithPrefix(prefix)(b) != nil {
			t.Skip()
		}
		a, err := keysOf(prefix, lockA)
		if err != nil {
			t.Skip()
		}
		all := a.condition(prefix, conditionA)
		for i, key := range all {
			assert.Equal(t, slot(a.hold()), slot(key), "%q", key)
			assert.True(t, strings.HasPrefix(key, prefix), "%q", key)
			assert.NotContains(t, all[:i], key)
		}
		c := &conn{backend: b}
		if checkSession(session) == nil {
			assert.NotContains(t, all[:], c.registered(session))
		}
		other, err := keysOf(prefix, lockB)
		if err != nil || lockA == lockB && conditionA == conditionB {
			return
		}
		for i, key := range other.condition(prefix, conditionB) {
			if i < len(a) && lockA == lockB {
				assert.Equal(t, a[i], key)
				continue
			}
			assert.NotContains(t, all[:], key, "%q and %q, %q and %q", lockA, conditionA, lockB, conditionB)
		}
	})
}

// FuzzURLsAreNotQuoted: what is wrong with a URL is said without its password, wherever in the URL it ends up.
func FuzzURLsAreNotQuoted(f *testing.F) {
	const secret = "hunter2"
	forms := []string{"redis://:%@127.0.0.1:1", "redis://user:%@127.0.0.1:1/0", "rediss://%@127.0.0.1:1", "redis://u:%@127.0.0.1:port",
		"redis://u:p@127.0.0.1:1/%", "redis://u:p@127.0.0.1:1/0?db=%", "unix://u:%@/nowhere", "http://u:%@x", "%", "redis:%", "redis://u:%@[::1",
		"redis://127.0.0.1:1?password=%&db=x", "redis://127.0.0.1:1?addr=u:%@127.0.0.1:1", "redis://u:p@127.0.0.1:1?write_timeout=%",
		"redis://u:p@127.0.0.1:1?dial_timeout=%", "rediss://u:p@127.0.0.1:1?skip_verify=%", "redis://u:p@127.0.0.1:1?master_set=%"}
	for i := range forms {
		for _, around := range []string{"", "/", "#", "?", "%zz", "@", ":", "\n", "\x00", " ", "%2F", "[", "&db=", "é"} {
			f.Add(uint8(i), around, around)
		}
	}
	ended, cancel := context.WithCancel(context.Background()) // nothing is dialled
	cancel()
	f.Fuzz(func(t *testing.T, form uint8, before, after string) {
		for _, password := range []string{before + secret + after, url.QueryEscape(before + secret + after)} {
			address := strings.Replace(forms[int(form)%len(forms)], "%", password, 1)
			_, err := Open(ended, address)
			if err == nil {
				t.Fatal("opened")
			}
			assert.NotContains(t, err.Error(), secret, "%q", address)
		}
	})
}

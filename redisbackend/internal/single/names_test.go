package single

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// FuzzNamesNeverMeet checks that the keys of a lock, of its note and of each of its conditions are in one slot and begin with
// the prefix; that two pairs of a lock and a condition have at most the lock's own keys in common; and that a session's record
// has a key of its own.
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
		if wire.CheckPrefix(prefix) != nil {
			t.Skip()
		}
		a, err := wire.KeysOf(prefix, lockA)
		if err != nil {
			t.Skip()
		}
		all := keysOf(&a, prefix, conditionA)
		for i, key := range all {
			assert.Equal(t, wire.Slot(a.Hold()), wire.Slot(key), "%q", key)
			assert.True(t, strings.HasPrefix(key, prefix), "%q", key)
			assert.NotContains(t, all[:i], key)
		}
		c := &Conn{Deployment: &Deployment{Prefix: prefix}}
		if CheckSession(session) == nil {
			assert.NotContains(t, all, c.registered(session))
		}
		other, err := wire.KeysOf(prefix, lockB)
		if err != nil || lockA == lockB && conditionA == conditionB {
			return
		}
		for i, key := range keysOf(&other, prefix, conditionB) {
			if i < len(a)+1 && lockA == lockB {
				assert.Equal(t, all[i], key)
				continue
			}
			assert.NotContains(t, all, key, "%q and %q, %q and %q", lockA, conditionA, lockB, conditionB)
		}
	})
}

// keysOf returns all keys of a lock with one condition. The keys that all conditions of the lock share come first.
func keysOf(k *wire.Keys, prefix, condition string) []string {
	own := k.Condition(prefix, condition)
	return append(k.WithNote(prefix), own[len(k):]...)
}

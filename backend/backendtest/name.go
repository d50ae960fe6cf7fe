package backendtest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about names of locks.
var nameCases = []testCase{
	{"Name/IsAnyBytes", nameIsAnyBytes},
	{"Name/IsOneLockEach", nameIsOneLock},
}

const longestName = 4096

// names returns names of locks that a faulty Backend confuses with other texts, or with each other. All have a prefix
// that no other test uses.
func names(prefix string) []string {
	list := []string{prefix}
	for _, tail := range []string{
		" ", "  ", "\n", "\r\n", "\x00", "\x00a", "\t", ":", "::", "|", "*", "?", "[a]", "%s", "%d", "$", "'", `"`, `\`,
		"/", "-", "é", "日本", "\xff", "\xff\xfe\x80", " 1 2 3", ":1", " g 1 1 1 1 1 x",
		"{", "}", "{}", "}{", "{a}", "{a}b", "{a}{b}", "a{b}c{d}", "{{a}}", "{a", "a}",
	} {
		list = append(list, prefix+tail)
	}
	fill := strings.Repeat("x", longestName-len(prefix)-1)
	return append(list, prefix+fill+"1", prefix+fill+"2")
}

// bindable returns the names that a session can bind. A Backend may refuse a name only if the name has braces.
func (s *session) bindable(t *test) []*remote {
	t.Helper()
	var bound []*remote
	for _, name := range names(t.name) {
		raw, err := s.conn.Bind(name)
		if err != nil && strings.ContainsAny(name, "{}") {
			continue
		}
		require.NoError(t, err, "Bind(%q)", name)
		require.Equal(t, name, raw.Name())
		bound = append(bound, &remote{t: t, raw: raw, name: name})
	}
	return bound
}

func nameIsAnyBytes(t *test) {
	a, b, _ := t.connect3()
	for i, r := range a.bindable(t) {
		t.name = r.name
		a.remote, b.remote = r, b.bind(t, r.name)
		a.epoch, b.epoch = uint64(10*i), uint64(10*i)
		p := t.handOver(a, b)
		require.Equal(t, r.name, p.Name)
		require.Equal(t, 2, b.reenter(backend.ReenterRequest{Epoch: b.epoch, Op: 1, Holds: 2}).Holds)
		require.True(t, b.renew(b.epoch, long))
	}
}

// All locks are held at the same time, each with an epoch of its own, and are then released one after the other.
func nameIsOneLock(t *test) {
	a := t.connect()
	all := a.bindable(t)
	for i, r := range all {
		r.take(uint64(i + 1))
	}
	for i, r := range all {
		require.Equal(t, uint64(i+1), r.inspect().Epoch, "%q", r.name)
	}
	for i, r := range all {
		r.release(uint64(i + 1))
		r.free()
		for j, other := range all[i+1:] {
			if j < 3 || j == len(all)-i-2 {
				require.True(t, other.inspect().Locked, "%q was released with %q", other.name, r.name)
			}
		}
	}
}

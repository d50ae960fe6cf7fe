package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlotIsTheOneThatRedisComputes(t *testing.T) {
	for key, want := range map[string]uint16{ // these are the replies of CLUSTER KEYSLOT in Redis 7.0.15
		"":                 0,
		"a":                15495,
		"123456789":        12739,
		"orders":           105,
		"{orders}:1":       105,
		"x{orders}y{z}":    105,
		"{}{orders}":       12660,
		"foo{{bar}}zap":    4015,
		"foo{bar":          15278,
		"\x00\xff{\x00}\n": 0,
	} {
		assert.Equal(t, want, Slot(key), "%q", key)
	}
}

func TestNamesThatGiveNoKeysAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"":                            "empty",
		"relock:":                     "reserved",
		"relock:{a}:t:a":              "reserved",
		"a}":                          "braces",
		"}":                           "braces",
		"{}":                          "braces",
		"{}a":                         "braces",
		"a{}{b}":                      "braces",
		"}{":                          "braces",
		strings.Repeat("x", 4097):     "4097 bytes",
		"relock:" + string([]byte{0}): "reserved",
	} {
		_, err := KeysOf("", name)
		require.ErrorContains(t, err, want, "%q", name)
		assert.Less(t, len(err.Error()), 250, "a long name is not repeated in full")
	}
}

func TestKeysOfALock(t *testing.T) {
	for _, c := range []struct {
		prefix, name string
		want         Keys
	}{
		{"", "orders", Keys{"orders", "relock:{orders}:t:orders", "relock:{orders}:q:orders", "relock:{orders}:w:orders"}},
		{"app:", "orders", Keys{"app:orders", "app:relock:{app:orders}:t:orders",
			"app:relock:{app:orders}:q:orders", "app:relock:{app:orders}:w:orders"}},
		{"", "user:{7}:cart", Keys{"user:{7}:cart", "relock:{7}:t:user:{7}:cart",
			"relock:{7}:q:user:{7}:cart", "relock:{7}:w:user:{7}:cart"}},
		{"app:", "relock:conditions:{7}x", Keys{"app:relock:conditions:{7}x", "app:relock:{7}:t:relock:conditions:{7}x",
			"app:relock:{7}:q:relock:conditions:{7}x", "app:relock:{7}:w:relock:conditions:{7}x"}},
		{"", "a{b", Keys{"a{b", "relock:{a{b}:t:a{b", "relock:{a{b}:q:a{b", "relock:{a{b}:w:a{b"}},
	} {
		got, err := KeysOf(c.prefix, c.name)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		assert.Equal(t, strings.Replace(got[1], ":t:", ":n:", 1), got.Note(c.prefix))
	}
}

// FuzzKeys checks that the keys of a lock are in one slot, and that no name reaches another lock's keys.
func FuzzKeys(f *testing.F) {
	for _, seed := range [][3]string{
		{"", "orders", "orders2"}, {"app:", "{a}b", "{a}bc"}, {"", "a{b", "a{b}"}, {"", "x", "x:t:x"},
		{"p:", "{relock:{x}:t:x", "x"}, {"", "{{x}", "{x}"}, {"", "\x00", "\x00\x00"}, {"", "a relock:", "relock"},
		{"", ":{x}:t:x", "x"}, {"", "relock:conditions:x", "x"}, {"p:", "relock:conditions:a{b}", "a{b}"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, prefix, one, two string) {
		if CheckPrefix(prefix) != nil {
			t.Skip()
		}
		a, err := KeysOf(prefix, one)
		if err != nil {
			t.Skip()
		}
		keys := a.WithNote(prefix)
		for _, key := range keys {
			assert.Equal(t, Slot(a.Hold()), Slot(key), "%q", key)
			assert.True(t, strings.HasPrefix(key, prefix))
		}
		c, err := KeysOf(prefix, two)
		if err != nil || one == two {
			t.Skip()
		}
		for _, key := range keys {
			assert.NotContains(t, c.WithNote(prefix), key)
		}
	})
}

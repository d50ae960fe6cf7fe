package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesThatNoLockCanHave(t *testing.T) {
	for name, want := range map[string]string{
		"":                           "empty",
		"relock:":                    "reserved",
		"relock:conditions:":         "empty",
		"relock:conditions:relock:a": "reserved",
		"relock:conditions:a}":       "braces",
		"a}":                         "braces",
		"}":                          "braces",
		"{}":                         "braces",
		"{}a":                        "braces",
		"a{}{b}":                     "braces",
		"}{":                         "braces",
		"}{a":                        "braces",
		strings.Repeat("x", 4097):    "4097 bytes",
	} {
		err := CheckName(name)
		require.ErrorContains(t, err, want, "%q", name)
		assert.Less(t, len(err.Error()), 250, "a long name is not repeated in full")
	}
	for _, name := range []string{
		"a", "\x00", "{", "{{", "a{", "{a}", "}{a}", "{a}}", "{a}{}", "{{}", "a{b}c}", "relock", "relock:conditions:a", strings.Repeat("x", 4096),
		"relock:conditions:" + strings.Repeat("x", 4096),
	} {
		require.NoError(t, CheckName(name), "%q", name)
	}
}

package backend_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
)

func TestNamesOfSessionsArePlain(t *testing.T) {
	for text, want := range map[string]string{
		"web-3.example.com_A": "web-3.example.com_A",
		"a b:c\n\x1b[31m{ü}":  "a-b-c---31m---",
		"":                    "",
	} {
		assert.Equal(t, want, backend.PlainName(text))
	}
	assert.Len(t, backend.PlainName(strings.Repeat("é", 100)), backend.MaxSessionName)
}

func TestAProcessIsKnownByItsHostAndId(t *testing.T) {
	host, err := os.Hostname()
	assert.NoError(t, err)
	name := backend.ProcessName()
	assert.True(t, strings.HasSuffix(name, "-"+strconv.Itoa(os.Getpid())), "the process id is never cut: %s", name)
	assert.True(t, strings.HasPrefix(name, backend.PlainName(host)[:min(len(host), 20)]), name)
	assert.LessOrEqual(t, len(name), backend.MaxSessionName)
}

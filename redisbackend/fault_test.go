package redisbackend

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every seeded fault has a line in MUTANTS.
func TestEveryFaultIsListed(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	faults := regexp.MustCompile(`(?m)^\tfault\w+ += "([\w-]+)"`).FindAllStringSubmatch(read("fault.go"), -1)
	require.NotEmpty(t, faults)
	for _, name := range faults {
		assert.Regexp(t, `(?m)^redisclient/`+name[1]+` +\./redisbackend (Test|Fuzz)\w+$`, read("MUTANTS"))
	}
}

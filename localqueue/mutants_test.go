package localqueue

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// MUTANTS covers every fault, and the tests exist.
func TestEveryFaultIsListedWithTestsThatExist(t *testing.T) {
	faults := find(read(t, "fault.go"), `= +"([\w-]+)"`)
	require.NotEmpty(t, faults)
	var tests []string
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		tests = append(tests, find(read(t, file), `(?m)^func (Test\w+)\(`)...)
	}

	listed := map[string]bool{}
	for line := range strings.Lines(read(t, "MUTANTS")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		require.Len(t, f, 3, line)
		name, ok := strings.CutPrefix(f[0], "localqueue/")
		require.True(t, ok, line)
		require.Contains(t, faults, name)
		require.Equal(t, "./localqueue", f[1])
		require.Contains(t, tests, f[2])
		listed[name] = true
	}
	require.Len(t, listed, len(faults), "faults without a test: only %v have one", listed)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// find lists what the pattern's group matches.
func find(text, pattern string) (matches []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		matches = append(matches, m[1])
	}
	return matches
}

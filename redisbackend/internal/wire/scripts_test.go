package wire

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testsOf maps each script to the tests that run it. A name stands for all tests whose names begin with it.
var testsOf = map[string]string{
	"acquire": "TestAcquire", "reenter": "TestReenter", "release": "TestRelease", "renew": "TestRenew",
	"inspect": "TestInspect", "force": "TestForce", "resume": "TestResume", "offer": "TestRedisson", "watch": "TestConformance",
	"note":  "TestConformance",
	"await": "TestConditions", "signal": "TestConditions", "withdraw": "TestConditions", "beat": "TestConditions",
	"share": "TestShare", "share_renew": "TestShare", "share_note": "TestConformance", "share_inspect": "TestShare", "share_force": "TestConformance",
	"pass": "TestPass", "take": "TestTake", "free": "TestFree", "yield": "TestYield",
	"quorum_token": "TestQuorum", "quorum_restore": "TestQuorum", "quorum_force": "TestQuorum", "quorum_want": "TestQuorum", "quorum_call": "TestQuorum",
}

// libraries are scripts that do not run alone: they are put before other scripts.
var libraries = []string{"common", "vacant", "behind", "conditions", "shared", "sharing", "redisson"}

func TestEveryScriptHasItsContractAndItsTests(t *testing.T) {
	files, err := fs.Glob(scriptFiles, "scripts/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	tests := readAll(t, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		text := scriptText(name)
		header, _, _ := strings.Cut(text, "\n\n")
		if slices.Contains(libraries, name) {
			assert.True(t, strings.HasPrefix(header, "-- "+name+".lua: "))
			continue
		}
		parts := regexp.MustCompile(`(?m)^-- (`+name+`:|KEYS  |ARGV  |Returns  |Keeps    |Twice    |Late     )`).FindAllStringSubmatch(header, -1)
		var order []string
		for _, part := range parts {
			order = append(order, strings.TrimSpace(part[1]))
		}
		assert.Equal(t, []string{name + ":", "KEYS", "ARGV", "Returns", "Keeps", "Twice", "Late"}, order, "the header of %s", file)
		prefix, ok := testsOf[name]
		assert.True(t, ok, "%s has no tests", file)
		assert.Contains(t, tests, "func "+prefix)
		for i, line := range strings.Split(text, "\n") {
			assert.LessOrEqual(t, len(line), 120, "%s:%d", file, i+1)
		}
	}
	assert.Len(t, files, len(testsOf)+len(libraries))
}

// All Lua is in .lua files, each of which states its contract.
func TestNoLuaInGo(t *testing.T) {
	code := readAll(t, func(file string) bool { return !strings.HasSuffix(file, "_test.go") })
	assert.Contains(t, code, "package redisbackend")
	assert.NotContains(t, code, "redis."+"call")
}

// readAll returns those Go files of redisbackend and its internal packages for which wanted returns true.
func readAll(t *testing.T, wanted func(file string) bool) string {
	var text strings.Builder
	for _, pattern := range []string{"../../*.go", "../*/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if wanted(file) {
				text.Write(must(os.ReadFile(file)))
			}
		}
	}
	return text.String()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

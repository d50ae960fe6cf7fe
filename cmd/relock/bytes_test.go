//go:build unix

package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// Two names that differ in bytes that are not UTF-8 are two locks, and --json shows which bytes.
func TestANameIsTakenAsGiven(t *testing.T) {
	t.Parallel()
	const name, other, prefix = "a\xff\xfeb", "a\xfd\xfeb", "p\xff:"
	url := slowly(redisserver.Start(t).URL()) // the embedded one cannot scan for such names
	r := start(t, url, "run", "--prefix", prefix, name, "--", "sh", "-c", `printf '%s.' "$RELOCK_NAME"; read line; sleep 100`)
	r.says(name + ".")
	with := []string{"--prefix", prefix, "--redis", url}
	assert.Contains(t, look(t, 0, append(with, "inspect", name)...), "name  \"a\\xff\\xfeb\"\nstate  held")
	assert.Contains(t, look(t, 0, append(with, "inspect", other)...), "free")
	assert.Contains(t, look(t, 0, append(with, "list", "a\xff*")...), `"a\xff\xfeb"  ~relock`)
	assert.NotContains(t, look(t, 0, append(with, "list", "a\xfd*")...), "~relock")
	for _, command := range [][]string{{"inspect", name}, {"list"}} {
		encoded := `"name_base64":"` + base64.StdEncoding.EncodeToString([]byte(name)) + `"`
		assert.Contains(t, look(t, 0, append(append(with, command...), "--json")...), encoded)
	}
	assert.NotContains(t, look(t, 0, append(with, "inspect", "é", "--json")...), "name_base64")
	r.signal(syscall.SIGINT)
	r.exits(128 + 2)
}

// The command gets its words, and is the file, that the command line names.
func TestACommandsWordsAreGivenOnAsTheyAre(t *testing.T) {
	t.Parallel()
	const odd = "a\xff\xfeb"
	url := embedded(t)
	for name, args := range map[string][]string{
		"argument":        {"--", "printf", "%s", odd},
		"shell":           {"-c", "printf %s '" + odd + "'"},
		"shell, together": {"-cprintf %s '" + odd + "'"},
		"shell, long":     {"--command=printf %s '" + odd + "'"},
	} {
		r := start(t, url, append([]string{"run", name}, args...)...)
		r.exits(0)
		assert.Equal(t, odd, r.stdout.String(), name)
	}
	if runtime.GOOS == "darwin" {
		return // its file systems have no such names
	}
	folder := t.TempDir()
	for file, says := range map[string]string{odd: "right", strings.ToValidUTF8(odd, "\uFFFD\uFFFD"): "wrong"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte("#!/bin/sh\necho "+says+"\n"), 0o700))
	}
	r := start(t, url, "run", "lock", "--", filepath.Join(folder, odd))
	r.exits(0)
	assert.Equal(t, "right\n", r.stdout.String())
}

//go:build unix

package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommandsAndFlagsAreCompleted(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                       "run hold inspect list watch unlock help completion man",
		"u":                      "unlock",
		"--prefix app: l":        "list",
		"--prefix ":              "",
		"--ver":                  "--version",
		"run --w":                "--wait",
		"run --non":              "--nonblock",
		"run -w ":                "",
		"run -s --per":           "--permits",
		"hold --permits ":        "",
		"hold --sh":              "--shared",
		"run -n lock --le":       "--lease",
		"run lock -- ./deploy -": "",
		"list --a":               "--all",
		"inspect ":               "",
		"help h":                 "hold help",
		"completion ":            "bash zsh fish",
		"completion z":           "zsh",
		"completion bash ":       "",
		"help run ":              "",
		"__":                     "",
		"nothing ":               "run hold inspect list watch unlock help completion man",
	} {
		got := look(t, 0, append([]string{"__complete", "--"}, strings.Split(line, " ")...)...)
		assert.Equal(t, want, strings.Join(strings.Fields(got), " "), "relock %s", line)
	}
	assert.Empty(t, look(t, 0, "__complete"))
}

func TestBashAsksForCompletions(t *testing.T) {
	t.Parallel()
	part := look(t, 0, "completion", "bash")
	// relock stands for a program that prints its arguments
	script := `relock() { printf '<%s>' "$@"; }` + "\n" + part +
		`COMP_WORDS=(relock run "two words" ""); COMP_CWORD=3; _relock; printf '%s\n' "${COMPREPLY[@]}"`
	said, err := exec.Command("bash", "-c", script).CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Equal(t, "<__complete><--><run><two words><>\n", string(said))
}

func TestEveryShellHasItsPart(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		assert.Contains(t, look(t, 0, "completion", shell), "__complete -- ")
	}
	assert.Equal(t, exitUsage, execute([]string{"completion", "tcsh"}, io.Discard, io.Discard))
}

func TestTheManualPageHasAllThatTheHelpHas(t *testing.T) {
	t.Parallel()
	page := look(t, 0, "man")
	assert.True(t, strings.HasPrefix(page, ".TH RELOCK 1\n.SH NAME\nrelock \\- A distributed lock for commands, on Redis\n"), page)
	for _, text := range []string{
		".SS relock run ", ".SS relock hold ", ".SS relock list ", ".SS relock man", `\-\-conflict\-exit\-code`, `\-\-version`, `\-s, \-\-shared`, `\-\-permits=N`,
		"RELOCK_PREFIX", "REDIS_URL", "RELOCK_TOKEN", "Examples:", `relock run \-n nightly \-\- ./backup.sh`,
		"79 the lock was lost",
	} {
		assert.Contains(t, strings.ReplaceAll(page, "  ", " "), text)
	}
	assert.NotContains(t, page, "__complete")
	for line := range strings.Lines(page) {
		assert.NotRegexp(t, `^[.'](\.|/)`, line, "troff would take this line for a request")
	}
}

//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// said runs a command in this process that is expected to fail with a status, and returns what it prints as errors.
func said(t *testing.T, status int, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	require.Equal(t, status, execute(args, io.Discard, &stderr), "%q: %s", args, &stderr)
	return stderr.String()
}

// The message about a mistake in the command line says what is wrong, and how the command is written.
func TestAMistakeSaysHowTheCommandIsWritten(t *testing.T) {
	t.Parallel()
	const run, hold, inspect, watch = "run [OPTION…] NAME -- COMMAND [ARGUMENT…]", "hold [OPTION…] NAME", "inspect [OPTION…] NAME", "watch [OPTION…] NAME"
	for line, want := range map[string][2]string{
		"inspect":                 {"NAME is missing, or empty", inspect},
		"inspect a b":             {"unexpected argument b", inspect},
		"inspect a --jsn":         {`unknown flag --jsn (did you mean "--json"?)`, inspect},
		"run":                     {"NAME is missing, or empty", run},
		"run -z a":                {"unknown flag -z", run},
		"hold":                    {"NAME is missing, or empty", hold},
		"hold a -- true":          {"unexpected argument true", hold},
		"watch":                   {"NAME is missing, or empty", watch},
		"watch a b":               {"unexpected argument b", watch},
		"unlock --force":          {"NAME is missing, or empty", "unlock [OPTION…] NAME"},
		"unlock a b --force":      {"unexpected argument b", "unlock [OPTION…] NAME"},
		"list a b":                {"unexpected argument b", "list [OPTION…] [PATTERN]"},
		"list --force":            {"unknown flag --force", "list [OPTION…] [PATTERN]"},
		"man a":                   {"unexpected argument a", "man [OPTION…]"},
		"completion bash a":       {"unexpected argument a", "completion [OPTION…] SHELL"},
		"help inspect a b":        {"unexpected argument b", inspect},
		"inspect a --json=maybe":  {`--json: "maybe" is neither true nor false`, ""},
		"run a":                   {"the command is missing: relock run [OPTION…] NAME -- COMMAND [ARGUMENT…]", ""},
		"run --permits 0 a true":  {"--permits 0: must be from 1 to 2147483647", ""},
		"run --permits -1 a true": {`--permits: the value is missing; one that begins with a hyphen is written --permits="-1"`, ""},
		"run -n -w 3 a true":      {"--wait and --nonblock can't be used together", ""},
		"run -s -x a true":        {"--shared and --exclusive can't be used together", ""},
	} {
		usage := ""
		if want[1] != "" {
			name, _, _ := strings.Cut(want[1], " ")
			usage = "usage: relock " + want[1] + " (relock help " + name + ")\n"
		}
		assert.Equal(t, "relock: "+want[0]+"\n"+usage, said(t, exitUsage, strings.Split(line, " ")...), line)
	}
}

// A user who does not know the commands is shown them.
func TestAWordThatIsNoCommandIsAnsweredWithTheCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"force x":                     "there is no command force; there are\n",
		"inspct x":                    "there is no command inspct (did you mean \"inspect\"?); there are\n",
		"help force":                  "there is no command force; there are\n",
		"--redis redis://127.0.0.1:1": "the command is missing; there are\n",
	} {
		text := said(t, exitUsage, strings.Split(line, " ")...)
		assert.True(t, strings.HasPrefix(text, "relock: "+want), text)
		assert.Contains(t, text, "\n  unlock      Take a lock from its holder: unlock --force NAME.\n")
		assert.NotContains(t, text, "__complete")
	}
	assert.Equal(t, "relock: unknown flag --json\nusage: relock COMMAND [OPTION…] (a command's own options come after it; relock help COMMAND lists them)\n",
		said(t, exitUsage, "--json", "inspect", "x"))
}

// Commands that ask Redis. Those that hold a lock run in a process of their own: they take its signals.
var (
	lookCommands = []string{"inspect lock", "list", "watch lock", "unlock lock", "unlock --force lock"}
	holdCommands = []string{"run lock -- true", "run -n lock -- true", "hold lock"}
)

// What cannot be read as a URL is a mistake of the user: no command is started, and no server asked.
func TestAURLThatCannotBeReadIsAMistakeForEveryCommand(t *testing.T) {
	t.Parallel()
	const unknown = "redis://localhost?read_timeout=3s"
	for url, want := range map[string]string{
		"localhost:6379":                     "--redis or REDIS_URL is no URL: it starts with redis:// or rediss://",
		"http://localhost":                   "the URL does not start with redis:// or rediss://",
		"redis://localhost:port":             "the URL is not well formed",
		"redis://localhost:99999":            "the URL's host, port, database or parameters are not valid",
		"redis://localhost/x":                "the URL's host, port, database or parameters are not valid",
		unknown:                              `the URL's parameter "read_timeout" is not known; known are addr, `,
		"redis://localhost?write_timeout=so": "the URL's host, port, database or parameters are not valid",
	} {
		for _, command := range lookCommands {
			args := append(strings.Split(command, " "), "--redis", url)
			assert.Contains(t, said(t, exitUsage, args...), "relock: "+want, args)
		}
	}
	for _, command := range holdCommands {
		r := start(t, unknown, strings.Split(command, " ")...)
		r.exits(exitUsage)
		assert.Contains(t, r.stderr.String(), `relock: the URL's parameter "read_timeout" is not known`, command)
	}
}

// Not to reach a server, or to be refused by it, gives the same exit status with every command.
func TestAServerThatIsNotAvailableHasOneStatusForEveryCommand(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1:1", slowly(redisserver.Start(t).URL() + "/99")} {
		for _, command := range lookCommands {
			assert.NotEmpty(t, said(t, exitRedis, append(strings.Split(command, " "), "--redis", url)...), command)
		}
		for _, command := range holdCommands {
			start(t, url, strings.Split(command, " ")...).exits(exitRedis)
		}
	}
}

// Help needs no server.
func TestAWrongURLKeepsNoHelpFromTheUser(t *testing.T) {
	t.Setenv("REDIS_URL", "localhost:6379")
	for _, command := range []string{"help", "help run", "man", "completion bash"} {
		look(t, 0, strings.Split(command, " ")...)
	}
}

// The documents and the help say where a command looks for Redis if it is given no URL.
func TestTheDefaultRedisIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "else `REDIS_URL`, else `"+defaultRedis+"`")
	for _, text := range []string{look(t, 0, "help"), look(t, 0, "help", "inspect"), look(t, 0, "man")} {
		assert.Regexp(t, `(?s)Default:\s+that\s+of\s+the\s+variable\s+REDIS_URL,\s+else\s+`+defaultRedis, text)
	}
}

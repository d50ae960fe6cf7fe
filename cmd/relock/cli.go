package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// grammar is the command line.
type grammar struct {
	Run     runCommand     `cmd:"" help:"Run a command while holding a lock."`
	Hold    holdCommand    `cmd:"" help:"Hold a lock until a signal, or the end of the input."`
	Inspect inspectCommand `cmd:"" help:"Show who holds a lock and who waits for it."`
	List    listCommand    `cmd:"" help:"Show every lock that is held or waited for."`
	Watch   watchCommand   `cmd:"" help:"Print a line whenever the state of a lock changes, until interrupted."`
	Unlock  unlockCommand  `cmd:"" help:"Take a lock from its holder: unlock --force NAME."`
	Help    helpCommand    `cmd:"" help:"Show the help of a command."`

	Completion completionCommand `cmd:"" help:"Print the script with which a shell completes commands and flags."`
	Complete   completeCommand   `cmd:"" hidden:"" name:"__complete"`
	Man        manCommand        `cmd:"" help:"Print the manual page."`

	server
	Version kong.VersionFlag `help:"Print the version."`
}

const defaultRedis = "redis://localhost:6379"

// server says where the locks are.
type server struct {
	Redis  string `env:"REDIS_URL" default:"${redis}" placeholder:"URL" help:"Redis, as redis://[user:password@]host[:port][/db], or rediss:// for TLS. Default: that of the variable REDIS_URL, else ${redis}. Other users of this machine can read command lines: give a password in the environment instead."`
	Prefix string `env:"RELOCK_PREFIX" help:"The prefix of the keys of all locks."`
}

const description = `A distributed lock for commands, on Redis.

Examples:
  relock run deploy -- ./deploy.sh production     one at a time in the whole deployment
  relock inspect deploy                           who holds it, who waits
  relock list 'deploy-*'
  relock help run

Exit statuses: 64 usage, or a URL that cannot be read; 74 the output could not be written; 69 Redis cannot be reached or refuses; and see "relock help run".`

// execute runs the command that the arguments name, and returns the exit status.
func execute(args []string, stdout, stderr io.Writer) int {
	var g grammar
	out := &printer{Writer: stdout}
	parser, err := kong.New(&g, kong.Name("relock"), kong.Description(description), kong.Writers(out, stderr),
		kong.Vars{"version": version(), "redis": defaultRedis}, kong.KindMapper(reflect.String, kong.MapperFunc(asGiven)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		panic("relock: bug: " + err.Error())
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(stderr, "relock:", mistakeOf(err))
		return exitUsage
	}
	return report(out.status(ctx.Run(&g.server, &streams{out, stderr})), stderr)
}

// asGiven reads an argument as it is. The parser's own reader passes arguments through JSON, which replaces bytes that are not
// UTF-8: the result would be the name of another lock or file.
func asGiven(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(token.String())
	}
	return err
}

// A printer is the output of a command. It remembers the first error of a write.
type printer struct {
	io.Writer
	err error
}

func (p *printer) Write(text []byte) (int, error) {
	n, err := p.Writer.Write(text)
	p.err = cmp.Or(p.err, err)
	return n, err
}

// status returns the error of a command's output, if there is one and err, the command's error, is nil, has no message, or
// comes from the output. Otherwise it returns err.
func (p *printer) status(err error) error {
	f, failed := errors.AsType[*failure](err)
	if silent := failed && f.err == nil; p.err != nil && (err == nil || silent || errors.Is(err, p.err)) {
		return failf(exitOutput, "the output could not be written: %w", p.err)
	}
	return err
}

// streams are the outputs of a command.
type streams struct{ out, err io.Writer }

// Validate is called by the parser. An empty flag or variable counts as not set: a script may pass on a variable that it does
// not have. The URL is read when it is used: a wrong REDIS_URL must not keep the help from a user.
func (s *server) Validate() error {
	s.Redis = cmp.Or(s.Redis, os.Getenv("REDIS_URL"), defaultRedis)
	return nil
}

// lockName is an argument that names a lock.
type lockName struct {
	Name string `arg:"" help:"Name of the lock."`
}

// Validate is called by the parser.
func (n lockName) Validate() error {
	if n.Name == "" {
		return errors.New("NAME is missing, or empty")
	}
	return nil
}

// hostname returns this machine's name, for display.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// version returns the release that the program was built from, and the platform that it was built for.
func version() string {
	release := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		release = cmp.Or(info.Main.Version, release)
	}
	return fmt.Sprintf("relock %s, %s, %s/%s", release, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

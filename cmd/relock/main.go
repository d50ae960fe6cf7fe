// Relock runs commands under a distributed lock, and shows and breaks the locks of a Redis.
//
//	relock run deploy -- ./deploy.sh production      one at a time in the whole deployment
//	relock run -s catalogue -- ./report.sh           many readers at a time, and none beside a writer (-x)
//	relock run --permits 3 encode -- ./encode.sh     at most three at a time
//	relock hold deploy                               hold it until a signal or the end of the input
//	relock inspect deploy                            who holds it, since which token, who waits
//	relock list                                      every lock that is held or waited for
//	relock watch deploy                              a line whenever that changes
//	relock unlock --force deploy                     take it from its holder
//
// If the lock is lost, `relock run` ends the command before Redis can give the lock to another process: see [deadline].
// docs/cli.md and --help list the guarantees and the exit statuses.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/relock-go/relock/reentrant"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses. Relock returns the command's own status unchanged, so its own statuses are ones that programs rarely
// use: those of sysexits(3), like flock(1), and those of the shell.
const (
	exitFree        = 1   // unlock --force: the lock was free
	exitUsage       = 64  // EX_USAGE
	exitRedis       = 69  // EX_UNAVAILABLE: Redis cannot be reached, or refuses
	exitOutput      = 74  // EX_IOERR: the output could not be written
	exitNotAcquired = 75  // EX_TEMPFAIL: another process had the lock until the end of --wait
	exitLost        = 79  // the lock was lost, or could not be kept for sure, and the command was ended
	exitNoExec      = 126 // the command cannot be executed
	exitNotFound    = 127 // there is no such command
	exitSignal      = 128 // plus the signal that ended the command
)

// A failure is an error with an exit status. err is nil if there is no message to print.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code int, err error) error { return &failure{code, err} }

// failf returns a failure with a formatted message.
func failf(code int, format string, args ...any) error {
	return fail(code, fmt.Errorf(format, args...))
}

// report prints an error, and returns its exit status. An error without a status gets exitLost if it is an ErrLost, and
// otherwise exitRedis.
func report(err error, stderr io.Writer) int {
	f := &failure{exitRedis, err}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
	case errors.Is(err, reentrant.ErrLost):
		f.code = exitLost
	}
	if f.err != nil {
		fmt.Fprintln(stderr, "relock:", words(f.err))
	}
	return f.code
}

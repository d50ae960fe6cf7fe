package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
)

// Fail returns the error of an operation, marked for backend.OutcomeUnknown, backend.Refused and
// backend.ErrUnavailable:
//
//	Redis replied with an error that it will repeat      refused
//	Redis replied with an error that may pass            unavailable: nothing happened, try again
//	one of these two, raised inside a script             outcome unknown as well: what the script did before stays
//	the connection could not be opened                   unavailable
//	anything else: no reply, and it may have arrived     unavailable, outcome unknown
//
// Redis's own words are kept. They never contain a password. The error does not name the verb, since one call of a lock may
// send several verbs, and reentrant.Error names the call.
func Fail(ctx context.Context, err error) error {
	if words := WordsOf(err); words != "" {
		return Judged(err, words)
	}
	if errors.Is(err, rueidis.ErrNoCache) { // its text says what to change in the client
		return backend.WithRefused(fmt.Errorf("redisbackend: %w", err))
	}
	unsent := NeverSent(err)
	if err = Blame(ctx, err); ContextErr(ctx, time.Now()) != nil { // the caller has left
		if err == context.DeadlineExceeded { //nolint:errorlint // the bare error would look like the end of the caller's own context
			err = fmt.Errorf("no reply in time: %w", err)
		}
		err = fmt.Errorf("redisbackend: %w", err)
	} else {
		err = Unavailable(err)
	}
	if unsent {
		return err
	}
	return backend.WithOutcomeUnknown(err)
}

// Judged marks an error of Redis as unavailable or refused, by its text. If a script may have stopped half-way, it also marks
// the outcome as unknown.
func Judged(err error, words string) error {
	switch {
	case transient(words):
		err = Unavailable(err)
	case strings.Contains(words, "WRONGTYPE"): // in the middle of the words, if a script met a key of another type
		err = backend.WithRefused(fmt.Errorf("redisbackend: %w: %w", backend.ErrWrongKind, err))
	default:
		err = backend.WithRefused(fmt.Errorf("redisbackend: %w", err))
	}
	if stopped(words) {
		return backend.WithOutcomeUnknown(err)
	}
	return err
}

// stopped reports whether the error may have ended a script after one of its writes. A script that returns an error has
// written nothing. The words of an error that was raised inside a script say so. Some of these a server can raise only at
// the first write of a script, so nothing was written before: beforeWrites has their codes.
func stopped(words string) bool {
	return raised.MatchString(words) && !beforeWrites[codeOf(words)]
}

// raised matches errors that a command or Lua raised inside a script:
//
//	WRONGTYPE Operation against a key holding the wrong kind of value script: 3a82…, on @user_script:1.
//	WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:1.   (Valkey 9)
//	ERR Error running script (call to f_3a82…): @user_script:1: WRONGTYPE Operation against…       (Redis 6)
//	ERR Error compiling script (new function): :1: WRONGTYPE Operation against… stack traceback: … (miniredis)
var raised = regexp.MustCompile(`^(?:ERR )?Error running script| on @user_script:\d+\.| stack traceback:`)

var beforeWrites = map[string]bool{"OOM": true, "READONLY": true, "NOREPLICAS": true, "MISCONF": true}

// Unavailable marks the error of a server that was not reached, or can do nothing at present.
func Unavailable(err error) error {
	return fmt.Errorf("redisbackend: %w: %w", backend.ErrUnavailable, err)
}

// Lasting reports whether err is an error of Redis that Redis would return again.
func Lasting(err error) bool {
	words := WordsOf(err)
	return words != "" && !transient(words)
}

// transient reports whether the server may execute the command, to which it replied with this error, when that is sent
// again. All of a server's errors are classified here.
func transient(words string) bool {
	return transientCodes[codeOf(words)] || strings.Contains(words, tooManyClients) || strings.Contains(words, notLocal)
}

// transientCodes has the error codes of a server that did nothing, and may execute the command if the command is sent again.
// All other errors are refusals: a wrong password, a missing right, a key of another type, a script that fails.
var transientCodes = map[string]bool{
	"LOADING":     true, // the server reads its data after a start
	"BUSY":        true, // the server runs a client's long script
	"MASTERDOWN":  true, // a replica that has lost its master
	"READONLY":    true, // a replica, after a failover
	"UNBLOCKED":   true, // a master that became a replica while a client waited for replicas
	"NOREPLICAS":  true, // fewer replicas than min-replicas-to-write
	"MISCONF":     true, // the server cannot write its data to disk
	"OOM":         true, // maxmemory is reached, and nothing may be evicted
	"CLUSTERDOWN": true, // the Cluster lacks a node
	"TRYAGAIN":    true, // a slot is half moved
	"MOVED":       true, // a slot has moved, and the client stopped following
	"ASK":         true, // a slot is moving, and the client stopped following
}

// tooManyClients is sent to a new connection before it sends a command.
const tooManyClients = "max number of clients reached"

// notLocal is in the error of a script in a slot that moves, if a key is missing that may be at another node.
const notLocal = "access a non local key in a cluster node"

// WordsOf returns the words of an error of Redis; "" if err is none.
func WordsOf(err error) string {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) || answer.IsNil() {
		return ""
	}
	return answer.Error()
}

// ErrorCode returns the code of an error of Redis; "" if err is none.
func ErrorCode(err error) string { return codeOf(WordsOf(err)) }

// codeOf returns the code in Redis's words. That is the first word, or the code of the error that stopped a transaction or, in
// Redis 6, a script. It also reads the words of Redis 6 that a script has caught with pcall:
//
//	READONLY You can't write against a read only replica.
//	EXECABORT Transaction discarded because of: READONLY You can't write against a read only replica.
//	Error running script (call to f_6b1b…): @user_script:22: @user_script: 22: -READONLY You can't write…
//	@user_script: 22: -READONLY You can't write…
func codeOf(words string) string {
	if inner := innerCode.FindStringSubmatch(words); inner != nil {
		return inner[1]
	}
	code, _, _ := strings.Cut(words, " ")
	return code
}

var innerCode = regexp.MustCompile(`^(?:EXECABORT .*because of: |(?:Error running script|@user_script).*: -)([A-Z]+) `)

// NeverSent reports whether err came before anything could be sent.
func NeverSent(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}

// Blame returns err, changed so that errors.Is(err, ctx.Err()) is true if ctx has ended. If ctx has not ended, Blame hides the
// error of any other context: a connection that the client was opening for another call fails when that call's context ends.
func Blame(ctx context.Context, err error) error {
	ended := ContextErr(ctx, time.Now())
	switch {
	case ended != nil && !errors.Is(err, ended):
		return fmt.Errorf("%w: %w", ended, err)
	case ended != nil:
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no reply within the client's ConnWriteTimeout: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no connection within the client's Dialer.Timeout: " + err.Error())
	case errors.Is(err, context.Canceled):
		return errors.New(err.Error())
	}
	return err
}

// EndedByAnother reports whether a command failed because another call's context ended: the client was opening a connection for
// that call, and this command waited for it. EndedByAnother also returns true if the client's own time limit for opening a
// connection was over.
func EndedByAnother(ctx context.Context, err error) bool {
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	return ended && ContextErr(ctx, time.Now()) == nil
}

// ContextErr returns why a command can no longer be sent with ctx, nil if it can. A context need not have noticed yet
// that its deadline has passed.
func ContextErr(ctx context.Context, now time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !now.Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Invalid returns the error of a request that is refused and not sent.
func Invalid(what string) error {
	return backend.WithRefused(fmt.Errorf("redisbackend: %s", what))
}

// Unexpected returns the error of a reply that the scripts do not give.
func Unexpected(err error) error {
	return backend.WithOutcomeUnknown(fmt.Errorf("redisbackend: unexpected reply: %w", err))
}

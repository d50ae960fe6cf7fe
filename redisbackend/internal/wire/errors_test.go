package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// redisError returns the error that rueidis makes of an error message of Redis.
func redisError(t *testing.T, words string) error {
	// rueidis has no constructor for a RedisError, so a client that talks to a pipe receives one.
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		in := bufio.NewReader(server)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if bytes.HasPrefix([]byte(line), []byte("*")) {
				fmt.Fprintf(server, "-%s\r\n", words)
			}
		}
	}()
	_, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"pipe"}, ForceSingleClient: true,
		DisableCache: true, ClientSetInfo: rueidis.DisableClientSetInfo,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return client, nil }})
	var answer *rueidis.RedisError
	require.ErrorAs(t, err, &answer)
	return err
}

// unmarked removes the words that a sentinel adds to Redis's words.
var unmarked = strings.NewReplacer(backend.ErrUnavailable.Error()+": ", "", backend.ErrWrongKind.Error()+": ", "")

func TestErrorsOfRedisBecomeSentinels(t *testing.T) {
	for words, refused := range map[string]bool{
		"WRONGPASS invalid username-password pair":      true,
		"NOAUTH Authentication required.":               true,
		"NOPERM this user has no permissions":           true,
		"WRONGTYPE Operation against a key":             true,
		"OOM command not allowed":                       false,
		"NOREPLICAS Not enough good replicas to write.": false,
		"MISCONF Redis is configured to save":           false,
		"ERR unknown command 'EVALSHA'":                 true,
		"ERR user_script:1: bad argument":               true,
		"DENIED Redis is running in protected mode":     true,
		"LOADING Redis is loading the dataset":          false,
		"BUSY Redis is busy running a script":           false,
		"MASTERDOWN Link with MASTER is down":           false,
		"READONLY You can't write against a read only":  false,
		"UNBLOCKED force unblock from blocking":         false,
		"CLUSTERDOWN The cluster is down":               false,
		"TRYAGAIN Multiple keys request during":         false,
		"MOVED 1 127.0.0.1:1":                           false,
		"ASK 1 127.0.0.1:1":                             false,
		"ERR max number of clients reached":             false,

		// Errors that discarded a transaction.
		"EXECABORT Transaction discarded because of previous errors.":                          true,
		"EXECABORT Transaction discarded because of: OOM command not allowed":                  false,
		"EXECABORT Transaction discarded because of: READONLY You can't write against a read":  false,
		"EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas here": false,

		// Errors inside a script, by Redis 6.
		"ERR Error running script (call to f_6b1b): @user_script:22: @user_script: 22: -READONLY You can't write": false,
		"ERR Error running script (call to f_6b1b): @user_script:22: @user_script: 22: -OOM command not":          false,
		"@user_script: 22: -READONLY You can't write":                                                             false,
		"@user_script: 22: -WRONGTYPE Operation against":                                                          true,

		// Errors at a script's first write, by Redis 7 and Valkey 9.
		"OOM command not allowed when used memory > 'maxmemory'. script: 50142d1548e23223a2ffd158022e90f843339e5f, on @user_script:1.": false,
		"OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:1.":                                           false,
	} {
		err := redisError(t, words)
		assert.Equal(t, refused, Lasting(err), words)
		err = Fail(t.Context(), err)
		assert.Equal(t, refused, backend.Refused(err), words)
		assert.False(t, backend.OutcomeUnknown(err), "%s: the server has read the command, and not run it", words)
		assert.Equal(t, !refused, errors.Is(err, backend.ErrUnavailable), words)
		assert.Equal(t, strings.Contains(words, "WRONGTYPE"), errors.Is(err, backend.ErrWrongKind), words)
		assert.Equal(t, "redisbackend: "+strings.TrimPrefix(words, "ERR "), unmarked.Replace(err.Error()), "rueidis removes the word ERR")
		var answer *rueidis.RedisError
		assert.ErrorAs(t, err, &answer)
	}
}

// A script may have written something before it raises an error, and what it wrote stays.
func TestScriptsThatStopHalfWay(t *testing.T) {
	for words, refused := range map[string]bool{
		"ERR Script attempted to access a non local key in a cluster node script: 02db9723e7a82dcdeb02b684b6c7b6219175b5d4, on @user_script:194.":        false,
		"ERR Attempted to access a non local key in a cluster node script: on @user_script:194.":                                                         false,
		"ERR Error running script (call to f_6b1b): @user_script:22: @user_script: 22: Lua script attempted to access a non local key in a cluster node": false,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 3a82edaed1ed9a6fc0d6d40123e9e8ed4f96b34f, on @user_script:1.":         true,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:1.":                                                   true,
		"ERR Error running script (call to f_3a82edaed1ed9a6fc0d6d40123e9e8ed4f96b34f): @user_script:1: WRONGTYPE Operation against a key":               true,
		"ERR Error running script (call to f_6b1b): @user_script:9: attempt to compare nil with number":                                                  true,
		"ERR The user executing the script can't run this command or subcommand script: 3a82edaed1ed9a6fc0d6d40123e9e8ed4f96b34f, on @user_script:3.":    true,
		"NOPERM this user has no permissions to run the 'lpop' command script: on @user_script:3.":                                                       true,
	} {
		err := redisError(t, words)
		assert.Equal(t, refused, Lasting(err), words)
		err = Fail(t.Context(), err)
		assert.True(t, backend.OutcomeUnknown(err), words)
		assert.Equal(t, refused, backend.Refused(err), words)
		assert.Equal(t, !refused, errors.Is(err, backend.ErrUnavailable), words)
		assert.Equal(t, strings.Contains(words, "WRONGTYPE"), errors.Is(err, backend.ErrWrongKind), words)
	}
}

func TestErrorsOfTheConnection(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	read := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err              error
		unknown, refused bool
	}{
		{dial, false, false},
		{rueidis.ErrNoSlot, false, false},
		{fmt.Errorf("%s\n%w", "ERR unknown subcommand 'TRACKING'", rueidis.ErrNoCache), false, true},
		{io.EOF, true, false},
		{read, true, false},
		{net.ErrClosed, true, false},
		{rueidis.ErrClosing, true, false},
		{context.DeadlineExceeded, true, false},
	} {
		err := Fail(t.Context(), c.err)
		assert.Equal(t, c.unknown, backend.OutcomeUnknown(err), "%v", c.err)
		assert.Equal(t, c.refused, backend.Refused(err), "%v", c.err)
	}
	assert.ErrorContains(t, Fail(t.Context(), read), "ConnWriteTimeout")
}

func TestContextErrorsAreThoseOfTheCallersContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := Fail(ended, io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, context.Canceled, "the connection was closed because the context had ended")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	err = Fail(ended, context.Canceled)
	assert.EqualError(t, err, "redisbackend: context canceled", "the reason is said once")

	err = Fail(t.Context(), fmt.Errorf("dialing: %w", context.Canceled))
	assert.NotErrorIs(t, err, context.Canceled, "another caller's context ended while the connection was opened")
	assert.ErrorContains(t, err, "context canceled")
	timeout := &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	err = Fail(t.Context(), timeout)
	assert.NotErrorIs(t, err, context.DeadlineExceeded, "the dialer's own timeout")
	assert.False(t, backend.OutcomeUnknown(err))
}

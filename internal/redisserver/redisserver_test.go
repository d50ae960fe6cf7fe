package redisserver_test

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

const (
	// soon is how long a test waits for a reply that does not come. It is long enough for a reply that comes.
	soon   = 100 * time.Millisecond
	enough = time.Minute
)

// ask sends an inline command, and returns the first line of the reply if the reply comes in time.
func ask(t *testing.T, addr, command string, patience time.Duration) (string, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	reply := make([]byte, 100)
	n, err := conn.Read(reply)
	line, _, _ := strings.Cut(string(reply[:n]), "\r\n")
	return line, err
}

func TestServer(t *testing.T) {
	t.Parallel()
	s := redisserver.Start(t, "--databases", "3")
	assert.Equal(t, "redis://"+s.Addr(), s.URL())
	line, err := ask(t, s.Addr(), "SET key value", enough)
	require.NoError(t, err)
	assert.Equal(t, "+OK", line)
	line, err = ask(t, s.Addr(), "SELECT 3", enough)
	require.NoError(t, err)
	assert.Contains(t, line, "out of range", "options arrive")

	s.Freeze()
	_, err = ask(t, s.Addr(), "PING", soon)
	require.ErrorContains(t, err, "timeout")
	s.Thaw()
	_, err = ask(t, s.Addr(), "PING", enough)
	require.NoError(t, err)

	s.Stop()
	s.Stop()
	_, err = ask(t, s.Addr(), "PING", enough)
	require.Error(t, err)
	s.Restart(t)
	line, err = ask(t, s.Addr(), "GET key", enough)
	require.NoError(t, err)
	assert.Equal(t, "$-1", line, "the server comes back empty")
}

func TestRestartWaitsForItsPort(t *testing.T) {
	t.Parallel()
	s := redisserver.Start(t)
	s.Stop()
	other, err := net.Listen("tcp", s.Addr())
	require.NoError(t, err)
	time.AfterFunc(soon, func() { _ = other.Close() })
	s.Restart(t)
	line, err := ask(t, s.Addr(), "PING", enough)
	require.NoError(t, err)
	assert.Equal(t, "+PONG", line)
}

func TestFreePortInAnOptionBecomesAPortThatPortReturns(t *testing.T) {
	const option = "--cluster-announce-port"
	s := redisserver.Start(t, "--cluster-enabled", "no", option, redisserver.FreePort)
	port, err := s.Command("CONFIG", "GET", "cluster-announce-port")
	require.NoError(t, err)
	assert.Contains(t, port, s.Port(option))
	assert.NotContains(t, s.Addr(), s.Port(option))
}

func TestURLOfTheEnvironment(t *testing.T) {
	t.Setenv("REENTRANT_REDIS", "redis://example:1")
	assert.Equal(t, "redis://example:1", redisserver.URL(t))
}

func TestTheProgramOfTheEnvironment(t *testing.T) {
	t.Setenv("RELOCK_REDIS_SERVER", "another-server")
	t.Setenv("REENTRANT_REDIS_REQUIRED", "")
	t.Run("skipped", func(t *testing.T) {
		t.Cleanup(func() { assert.True(t, t.Skipped()) })
		redisserver.Start(t)
	})
}

func TestWithoutAServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RELOCK_REDIS_SERVER", "")
	t.Setenv("REENTRANT_REDIS_REQUIRED", "")
	t.Run("skipped", func(t *testing.T) {
		t.Cleanup(func() { assert.True(t, t.Skipped()) })
		redisserver.Start(t)
	})
	t.Setenv("REENTRANT_REDIS_REQUIRED", "1")
	failed := new(failing)
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed.TB = t
		redisserver.Start(failed)
	}()
	<-done
	assert.Contains(t, failed.message, "REENTRANT_REDIS_REQUIRED")
}

// failing is a testing.TB that records a failure instead of failing.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = format + strings.Repeat(" %v", len(args))
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			f.message += text
		}
	}
	runtime.Goexit()
}

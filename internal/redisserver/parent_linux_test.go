package redisserver_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

const orphanVariable = "RELOCK_TEST_ORPHAN"

// This process kills another one, as go test kills a process whose time is over. The servers of that process must end, too.
func TestNoServerOutlivesItsProcess(t *testing.T) {
	redisserver.Start(t) // without a server to start, this ends the test
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerOfAProcessThatIsKilled$", "-test.timeout=5m")
	child.Env = append(os.Environ(), orphanVariable+"=1")
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	addr := strings.TrimSpace(line)
	conn, err := net.Dial("tcp", addr) // quickly, before another process can have the port
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(enough)))
	reply := bufio.NewReader(conn)
	line, err = reply.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "+PONG\r\n", line)
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // the process was killed
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(enough)))
	_, err = reply.ReadByte()
	assert.ErrorIs(t, err, io.EOF, "the server has ended")
}

func TestServerOfAProcessThatIsKilled(t *testing.T) {
	if os.Getenv(orphanVariable) == "" {
		t.Skip("TestNoServerOutlivesItsProcess runs it in a process of its own")
	}
	_, err := os.Stdout.WriteString(redisserver.Start(t).Addr() + "\n")
	require.NoError(t, err)
	<-t.Context().Done() // the process is killed here
}

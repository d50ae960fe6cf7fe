package redisserver

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If a stopped server's port were free, its test might talk to the server of another test.
func TestAStoppedServerKeepsItsPort(t *testing.T) {
	t.Parallel()
	s := Start(t)
	number := s.kept[0].number
	s.Stop()
	_, err := reserve(number)
	require.Error(t, err, "the port is not free")
	s.Restart(t)
	s.Stop()
	_, err = reserve(number)
	require.Error(t, err, "nor after another stop")
	s.giveBack()
	again, err := reserve(number)
	require.NoError(t, err)
	assert.Equal(t, number, again.number)
	again.close()
}

// Connections to a kept address are refused until a server of the test listens there, and also after this server was stopped.
func TestAKeptAddrIsTheTestsAlone(t *testing.T) {
	t.Parallel()
	addr := KeepAddr(t)
	for range 2 {
		_, err := net.Dial("tcp", addr)
		require.Error(t, err)
		server, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, server.Close())
		_, err = reserve(portOf(t, addr))
		require.Error(t, err)
	}
}

func portOf(t *testing.T, addr string) int {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	require.NoError(t, err)
	return resolved.Port
}

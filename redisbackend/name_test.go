package redisbackend_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
)

// CLIENT LIST shows the process that a connection belongs to, unless the client has a name of its own.
func TestConnectionsHaveTheNameOfTheProcess(t *testing.T) {
	server := redisserver.Start(t)
	list := func() string {
		client := connect(t, server.Addr())
		text, err := client.Do(t.Context(), client.B().ClientList().Build()).ToString()
		require.NoError(t, err)
		return text
	}
	b, err := redisbackend.Open(t.Context(), "redis://"+server.Addr())
	require.NoError(t, err)
	defer b.Close()
	assert.Contains(t, list(), " name="+backend.ProcessName()+" ")

	byURL, err := redisbackend.Open(t.Context(), "redis://"+server.Addr()+"?client_name=orders")
	require.NoError(t, err)
	defer byURL.Close()
	assert.Contains(t, list(), " name=orders ")

	named, err := redisbackend.OpenClient(t.Context(), rueidis.ClientOption{InitAddress: []string{server.Addr()}, ClientName: "billing"})
	require.NoError(t, err)
	defer named.Close()
	assert.Contains(t, list(), " name=billing ")
}

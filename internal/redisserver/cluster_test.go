package redisserver_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redisserver.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	assert.Len(t, c.Masters, 3)
	assert.Len(t, c.Nodes(), 6)
	assert.Len(t, c.Addrs(), 6)
	for i, node := range c.Nodes() {
		info, err := node.Command("CLUSTER", "INFO")
		require.NoError(t, err)
		assert.Contains(t, info, "cluster_state:ok")
		assert.Contains(t, info, "cluster_size:3")
		role, err := node.Command("INFO", "replication")
		require.NoError(t, err)
		assert.Equal(t, i >= 3, strings.Contains(role, "role:slave"))
		coverage, err := node.Command("CONFIG", "GET", "cluster-require-full-coverage")
		require.NoError(t, err)
		assert.Contains(t, coverage, "no", "options arrive")
	}
	_, err := c.Masters[0].Command("SET", "123456789", "x") // slot 12739
	require.ErrorContains(t, err, "MOVED 12739 "+c.Masters[2].Addr())
	_, err = c.Masters[2].Command("SET", "123456789", "x")
	require.NoError(t, err)
	c.Masters[0].Stop()
	_, err = c.Masters[0].Command("PING")
	require.Error(t, err)
}

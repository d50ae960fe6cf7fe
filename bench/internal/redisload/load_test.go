package redisload

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

const info = "# Server\r\nredis_version:7.4.2\r\n# Stats\r\ntotal_net_input_bytes:100\r\ntotal_net_output_bytes:50\r\n" +
	"used_memory:1000\r\nused_memory_human:1K\r\ndb0:keys=7,expires=3\r\ndb12:keys=1,expires=0\r\n" +
	"used_cpu_sys:0.5\r\nused_cpu_user:1.25\r\ncmdstat_evalsha:calls=10,usec=5,usec_per_call=0.5\r\n" +
	"cmdstat_client|setinfo:calls=2,usec=1\r\ncmdstat_hget:calls=30,usec=9\r\ncmdstat_info:calls=1,usec=9\r\n"

func TestCountersAreRead(t *testing.T) {
	c, err := parse(info)
	require.NoError(t, err)
	assert.Equal(t, "7.4.2", c.Version)
	assert.Equal(t, 1750*time.Millisecond, c.CPU)
	assert.EqualValues(t, 150, c.Bytes)
	assert.EqualValues(t, 1000, c.Memory)
	assert.EqualValues(t, 8, c.Keys, "in all databases")
	clients, inner := c.Commands(nil)
	assert.EqualValues(t, 12, clients, "INFO is our own")
	assert.EqualValues(t, 30, inner)
	clients, inner = c.Commands([]string{"hget"})
	assert.EqualValues(t, 42, clients)
	assert.Zero(t, inner)
}

func TestCountersAreOfAPeriod(t *testing.T) {
	before, err := parse(info)
	require.NoError(t, err)
	after := before
	after.Calls = map[string]int64{"evalsha": 15, "client|setinfo": 2, "hget": 30, "info": 2, "set": 1}
	after.CPU += time.Millisecond
	after.Keys, after.Memory = 5, 1200
	got := after.Since(before)
	assert.Equal(t, map[string]int64{"evalsha": 5, "info": 1, "set": 1}, got.Calls)
	assert.Equal(t, time.Millisecond, got.CPU)
	assert.EqualValues(t, -3, got.Keys, "others have expired")
	assert.EqualValues(t, 200, got.Memory)
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, text := range []string{"", "redis_version:7\r\nused_cpu_user:x\r\ncmdstat_get:calls=1\r\n", "redis_version:7\r\nused_cpu_user:1\r\ncmdstat_get:nothing\r\n",
		strings.Replace(info, "keys=7", "keys=?", 1), strings.Replace(info, "used_memory:1000", "", 1)} {
		_, err := parse(text)
		assert.Error(t, err)
	}
}

// The embedded server has no counters. It must be refused, and not be measured as if its counters were zero.
func TestAnEmbeddedRedisIsRefused(t *testing.T) {
	client, err := Connect(t.Context(), "redis://"+redistest.Start(t).Addr())
	require.NoError(t, err)
	defer client.Close()
	_, err = Read(t.Context(), client)
	require.ErrorIs(t, err, ErrNotReal)
}

func TestAnAddressWithoutARedisIsAnError(t *testing.T) {
	_, err := Connect(t.Context(), "redis://127.0.0.1:1")
	require.Error(t, err)
	_, err = Connect(t.Context(), "localhost")
	require.ErrorContains(t, err, "redis://localhost:6379")
}

package fence_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/fence/fencetest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/redistest"
)

func connect(t testing.TB, url string) rueidis.Client {
	option := rueidis.MustParseURL(url)
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestKey(t *testing.T) {
	server := redisserver.Start(t)
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		return fencetest.Fixture{
			Open: func(t testing.TB) fence.Resource { return fence.NewKey(connect(t, server.URL()), t.Name()) },
			Break: func(t testing.TB) func() {
				configure(t, server, "1")
				return func() { configure(t, server, "0") }
			},
		}
	})
}

// configure sets the memory limit of a server: with a low one it refuses to write.
func configure(t testing.TB, server *redisserver.Server, limit string) {
	_, err := server.Command("CONFIG", "SET", "maxmemory", limit)
	require.NoError(t, err)
}

func TestKeyEmbedded(t *testing.T) {
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		server := redistest.Start(t)
		return fencetest.Fixture{Open: func(testing.TB) fence.Resource { return fence.NewKey(server.Client(), "the key") }}
	})
}

func TestAKeyOfAnotherTypeIsAnError(t *testing.T) {
	client := redistest.Start(t).Client()
	require.NoError(t, client.Do(t.Context(), client.B().Set().Key("text").Value("17").Build()).Error())
	err := fence.NewKey(client, "text").Write(t.Context(), 18, nil)
	require.ErrorContains(t, err, "fence: write text: ")
	assert.NotErrorIs(t, err, fence.ErrStale)
}

package single

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
)

// If a command gets no reply, its connection may be lost. The next connection may lead to another server, with another clock.
func TestACommandWithoutAReplyForgetsTheClock(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	d := NewDeployment(client)
	require.NoError(t, d.Complete())
	conn, err := Connect(t.Context(), &d, "s", &hearer{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	lock, err := conn.RemoteOf("lock")
	require.NoError(t, err)
	renew := func(ctx context.Context, r backend.Renewal) error {
		batch := []backend.Renewal{r}
		conn.Renew(ctx, batch)
		return batch[0].Err
	}
	for verb, send := range map[string]func(context.Context) error{
		"Renew": func(ctx context.Context) error {
			return renew(ctx, backend.Renewal{Remote: lock, Epoch: 1, Lease: time.Minute})
		},
		"Renew of units": func(ctx context.Context) error {
			return renew(ctx, backend.Renewal{Remote: lock, Epoch: 1, Under: 2, Lease: time.Minute})
		},
		"Inspect": func(ctx context.Context) error {
			_, err := lock.Inspect(ctx)
			return err
		},
	} {
		require.NoError(t, send(t.Context()))
		require.True(t, lock.Clock.Mapping.Known, "after a reply to %s", verb)
		_, err := server.Command("CLIENT", "PAUSE", "60000", "WRITE") // scripts count as writes
		require.NoError(t, err)
		assert.ErrorIs(t, unanswered(t, send), context.DeadlineExceeded, verb)
		assert.False(t, lock.Clock.Mapping.Known, "the clock is still known after %s without a reply", verb)
		_, err = server.Command("CLIENT", "UNPAUSE")
		require.NoError(t, err)
	}
}

// unanswered sends a command that gets no reply, with a deadline that leaves enough time to send it, and returns the command's
// error.
func unanswered(t *testing.T, send func(context.Context) error) error {
	for limit := time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := send(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "not sent") {
			return err
		}
		require.Less(t, limit, 30*time.Second, "the command is not sent") // the server is paused for a minute
	}
}

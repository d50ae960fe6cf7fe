package redisbackend

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// ears hears what a shard says.
type ears struct {
	messages chan string
	openings chan struct{}
}

func (e *ears) opened() { e.openings <- struct{}{} }

// received forgets what is beyond a hundred messages: a listener never blocks.
func (e *ears) received(text string) {
	select {
	case e.messages <- text:
	default:
	}
}

// listenOn opens the shards of a session in a Cluster of two nodes.
func listenOn(t *testing.T, idle time.Duration) (*shards, *ears) {
	servers := redisserver.StartCluster(t, 2, 0)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{servers.Masters[0].Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	e := &ears{messages: make(chan string, 100), openings: make(chan struct{}, 100)}
	s := newShards(client, "relock:session:", "s", idle, e)
	t.Cleanup(s.close)
	return s, e
}

// say publishes to the channel of a tag, and answers how many heard it.
func say(t *testing.T, s *shards, tag string) int64 {
	client := s.client
	n, err := client.Do(t.Context(), client.B().Spublish().Channel(s.channel(tag)).Message("for "+tag).Build()).ToInt64()
	require.NoError(t, err)
	return n
}

func TestAShardThatNobodyWaitsWithIsClosed(t *testing.T) {
	t.Parallel()
	s, e := listenOn(t, 100*time.Millisecond)
	for _, tag := range []string{"a", "b", "c", "d"} { // over both nodes
		s.want(tag)
	}
	for _, tag := range []string{"a", "b", "c", "d"} {
		require.Eventually(t, func() bool { s.want(tag); return say(t, s, tag) == 1 }, 10*time.Second, time.Millisecond, tag)
		assert.Equal(t, "for "+tag, <-e.messages)
		require.Eventually(t, func() bool { return say(t, s, tag) == 0 }, 10*time.Second, 10*time.Millisecond, "%s is closed", tag)
		for len(e.messages) > 0 {
			<-e.messages
		}
	}
	assert.Empty(t, e.openings, "nothing was lost by that")
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.LessOrEqual(t, len(s.ears), 4)
}

func TestShardsAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := listenOn(t, time.Hour)
	for i := range 3 * maxShards {
		s.want(string(rune('a'+i%26)) + string(rune(0x4000+i)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.LessOrEqual(t, len(s.ears), maxShards)
}

func TestClosedShardsHearNothing(t *testing.T) {
	t.Parallel()
	s, e := listenOn(t, time.Hour)
	s.want("a")
	require.Eventually(t, func() bool { return say(t, s, "a") == 1 }, 10*time.Second, time.Millisecond)
	<-e.messages
	s.close()
	s.close()
	s.want("b")
	require.Eventually(t, func() bool { return say(t, s, "a") == 0 }, 10*time.Second, time.Millisecond)
	assert.Empty(t, e.messages)
	assert.Empty(t, e.openings)
}

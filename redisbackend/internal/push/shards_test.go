package push

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
)

// A listener records what a shard sends.
type listener struct {
	messages chan string
	openings chan struct{}
}

func (e *listener) Opened() { e.openings <- struct{}{} }

// Received drops messages for which there is no room: a listener never blocks.
func (e *listener) Received(text string) {
	select {
	case e.messages <- text:
	default:
	}
}

// patience only bounds the time of a failure.
var patience = testsize.Patience(30 * time.Second)

// hears waits for a message. Of others before it, of what is closed by now, the last may come late.
func (e *listener) hears(t *testing.T, message string) {
	timeout := time.After(patience)
	for {
		select {
		case got := <-e.messages:
			if got == message {
				return
			}
		case <-timeout:
			require.FailNow(t, "not heard", message)
		}
	}
}

// listenOn opens the shards of a session in a Cluster of two nodes.
func listenOn(t *testing.T, idle time.Duration) (*Shards, *listener) {
	servers := redisserver.StartCluster(t, 2, 0)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{servers.Masters[0].Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	e := &listener{messages: make(chan string, 1<<14), openings: make(chan struct{}, 100)}
	s := NewShards(client, "relock:session:", "s", idle, e)
	t.Cleanup(s.Close)
	return s, e
}

// say publishes to the channel of a tag, and returns how many subscribers received it.
func say(t *testing.T, s *Shards, tag string) int64 {
	client := s.client
	n, err := client.Do(t.Context(), client.B().Spublish().Channel(s.channel(tag)).Message("for "+tag).Build()).ToInt64()
	require.NoError(t, err)
	return n
}

func TestAShardThatNobodyWaitsWithIsClosed(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, e := listenOn(t, 100*time.Millisecond)
	for _, tag := range []string{"a", "b", "c", "d"} { // over both nodes
		s.Want(tag)
	}
	for _, tag := range []string{"a", "b", "c", "d"} {
		require.Eventually(t, func() bool { s.Want(tag); return say(t, s, tag) == 1 }, patience, time.Millisecond, tag)
		e.hears(t, "for "+tag)
		require.Eventually(t, func() bool { return say(t, s, tag) == 0 }, patience, 10*time.Millisecond, "%s is closed", tag)
	}
	assert.Empty(t, e.openings, "nothing was lost by that")
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.LessOrEqual(t, len(s.byTag), 4)
}

func TestShardsAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := listenOn(t, time.Hour)
	for i := range 3 * maxShards {
		s.Want(string(rune('a'+i%26)) + string(rune(0x4000+i)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.LessOrEqual(t, len(s.byTag), maxShards)
}

func TestClosedShardsHearNothing(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, e := listenOn(t, time.Hour)
	require.Eventually(t, func() bool { s.Want("a"); return say(t, s, "a") == 1 }, patience, time.Millisecond)
	e.hears(t, "for a")
	s.Close()
	s.Close()
	s.Want("b")
	require.Eventually(t, func() bool { return say(t, s, "a") == 0 }, patience, time.Millisecond)
	assert.Empty(t, e.messages)
	assert.Empty(t, e.openings)
}

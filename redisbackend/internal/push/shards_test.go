package push

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
)

func TestMain(m *testing.M) {
	testsize.Parallel(3) // a Cluster accepts nothing in its first two seconds
	os.Exit(m.Run())
}

// A listener records the messages that a shard channel delivers.
type listener struct {
	messages chan string
	openings chan struct{}
}

func (l *listener) Opened() { l.openings <- struct{}{} }

// Received drops a message for which there is no room: a listener must not block.
func (l *listener) Received(text string) {
	select {
	case l.messages <- text:
	default:
	}
}

// patience is how long a test waits before it fails.
var patience = testsize.Patience(30 * time.Second)

// hears waits for a message. It skips other messages, because a message that was sent earlier, on a channel that has been
// closed since, may arrive late.
func (l *listener) hears(t *testing.T, message string) {
	timeout := time.After(patience)
	for {
		select {
		case got := <-l.messages:
			if got == message {
				return
			}
		case <-timeout:
			require.FailNow(t, "the message did not arrive", message)
		}
	}
}

// listenOn opens a session's shard channels in a Cluster of two nodes.
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

// say publishes on the channel of a hash tag, and returns how many subscribers received the message.
func say(t *testing.T, s *Shards, tag string) int64 {
	client := s.client
	n, err := client.Do(t.Context(), client.B().Spublish().Channel(s.channel(tag)).Message("for "+tag).Build()).ToInt64()
	require.NoError(t, err)
	return n
}

func TestAShardChannelThatNoSessionUsesIsClosed(t *testing.T) {
	t.Parallel()
	redisserver.NeedShards(t)
	s, e := listenOn(t, 100*time.Millisecond)
	for _, tag := range []string{"a", "b", "c", "d"} { // on both nodes
		s.Want(tag)
	}
	for _, tag := range []string{"a", "b", "c", "d"} {
		require.Eventually(t, func() bool { s.Want(tag); return say(t, s, tag) == 1 }, patience, time.Millisecond, tag)
		e.hears(t, "for "+tag)
		require.Eventually(t, func() bool { return say(t, s, tag) == 0 }, patience, 10*time.Millisecond, "%s is closed", tag)
	}
	assert.Empty(t, e.openings, "closing the channel lost no message")
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.LessOrEqual(t, len(s.byTag), 4)
}

func TestTheNumberOfShardChannelsIsBounded(t *testing.T) {
	t.Parallel()
	s, _ := listenOn(t, time.Hour)
	for i := range 3 * maxShards {
		s.Want(string(rune('a'+i%26)) + string(rune(0x4000+i)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.LessOrEqual(t, len(s.byTag), maxShards)
}

func TestAClosedShardChannelReceivesNothing(t *testing.T) {
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

// A cluster is a client of one node, whose connections confirm each subscription at once.
type cluster struct{ lines }

func (c cluster) Nodes() map[string]rueidis.Client { return map[string]rueidis.Client{"node": c.lines} }

// tagOfSlot0 is a hash tag of slot 0. The Builder of a line is the zero rueidis.Builder, which accepts only keys of that slot.
const tagOfSlot0 = "06S"

// A session that waits asks for its channel again at each heartbeat, so the channel stays open.
func TestAShardChannelThatIsInUseStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := cluster{lines{made: make(chan *line, 1)}}
		s := NewShards(client, "relock:session:", "s", time.Minute, &listener{})
		defer s.Close()
		s.Want(tagOfSlot0)
		for range 10 {
			time.Sleep(20 * time.Second)
			s.Want(tagOfSlot0)
		}
		synctest.Wait()
		node := <-client.made
		assert.Equal(t, []string{"SSUBSCRIBE"}, node.commands())
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"SUNSUBSCRIBE"}, node.commands())
	})
}

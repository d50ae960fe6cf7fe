package push

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slow is a client whose server confirms a subscription only after a while. Only subscriptions work.
type slow struct {
	rueidis.Client
	after time.Duration
}

func (slow) Nodes() map[string]rueidis.Client { return nil }

func (s slow) Dedicate() (rueidis.DedicatedClient, func()) {
	return &slowLine{after: s.after}, func() {}
}

type slowLine struct {
	rueidis.DedicatedClient
	after time.Duration
	hooks rueidis.PubSubHooks
}

func (*slowLine) B() rueidis.Builder { return rueidis.Builder{} }
func (*slowLine) Close()             {}

func (l *slowLine) SetPubSubHooks(hooks rueidis.PubSubHooks) <-chan error {
	l.hooks = hooks
	return make(chan error)
}

func (l *slowLine) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	select {
	case <-time.After(l.after):
		l.hooks.OnSubscription(rueidis.PubSubSubscription{Kind: "subscribe", Channel: cmd.Commands()[1], Count: 1})
	case <-ctx.Done(): // the subscription is never confirmed
	}
	return rueidis.RedisResult{}
}

// subscribed opens a channel on a slow server, and returns how long that took.
func subscribed(ctx context.Context, after time.Duration) (took time.Duration, err error) {
	begun := time.Now()
	s, err := Subscribe(ctx, slow{after: after}, "channel", &listener{openings: make(chan struct{}, 1)})
	took = time.Since(begun)
	if err == nil {
		s.Close()
	}
	return took, err
}

// The first try to subscribe has the whole time until the caller's deadline, so it can wait for a server that is silent for a
// while.
func TestTheFirstTryLastsUntilTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("the subscription was not confirmed in time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 4*subscribeTimeout, no)
		defer cancel()
		took, err := subscribed(ctx, 2*subscribeTimeout)
		require.NoError(t, err)
		assert.Equal(t, 2*subscribeTimeout, took)

		took, err = subscribed(ctx, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 2*subscribeTimeout, took, "the first try had all the time until the deadline")
	})
}

// Without a deadline, the first try waits for a silent server only until a time limit. The error names the limit.
func TestTheFirstTryWithoutADeadlineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, err := subscribed(context.Background(), time.Hour)
		require.ErrorContains(t, err, "subscribe: no confirmation within 5s")
		assert.NotContains(t, err.Error(), "Dialer.Timeout")
		assert.Equal(t, subscribeTimeout, took)
	})
}

// A client of type lines has connections that the test ends, and over which the test sends messages. The connections confirm
// each subscription at once.
type lines struct {
	rueidis.Client
	made chan *line
}

func (lines) Nodes() map[string]rueidis.Client { return nil }

func (l lines) Dedicate() (rueidis.DedicatedClient, func()) {
	one := &line{ended: make(chan error), sent: make(chan string, 100)}
	l.made <- one
	return one, func() {}
}

type line struct {
	rueidis.DedicatedClient
	ended chan error
	hooks rueidis.PubSubHooks
	sent  chan string // the commands that were sent
}

func (*line) B() rueidis.Builder { return rueidis.Builder{} }
func (*line) Close()             {}

func (l *line) SetPubSubHooks(hooks rueidis.PubSubHooks) <-chan error {
	l.hooks = hooks
	return l.ended
}

func (l *line) Do(_ context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	l.sent <- words[0]
	l.hooks.OnSubscription(rueidis.PubSubSubscription{Kind: strings.ToLower(words[0]), Channel: words[1], Count: 1})
	return rueidis.RedisResult{}
}

// commands returns the commands since the last call.
func (l *line) commands() (all []string) {
	for len(l.sent) > 0 {
		all = append(all, <-l.sent)
	}
	return all
}

func (l *line) says(text string) {
	l.hooks.OnMessage(rueidis.PubSubMessage{Channel: "channel", Message: text})
}

// The client may deliver a message of a connection that was lost, or is being closed, late: when the listener already gets the
// messages of the next connection, or is to get no more messages.
func TestAMessageOfAnEarlierConnectionIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, l := lines{made: make(chan *line, 2)}, &listener{messages: make(chan string, 10), openings: make(chan struct{}, 10)}
		s, err := Subscribe(t.Context(), client, "channel", l)
		require.NoError(t, err)
		first := <-client.made
		first.says("in time")
		close(first.ended)
		second := <-client.made
		synctest.Wait()
		require.Len(t, l.openings, 2)
		first.says("late")
		second.says("from the second")
		s.Close()
		second.says("after the end")
		close(l.messages)
		var heard []string
		for text := range l.messages {
			heard = append(heard, text)
		}
		assert.Equal(t, []string{"in time", "from the second"}, heard)
	})
}

// If a subscription has been given up, the listener hears nothing of its connection, even if the server confirms the
// subscription later.
func TestAnAbandonedSubscriptionListensToNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{openings: make(chan struct{}, 10)}
		s, err := Subscribe(t.Context(), lines{made: make(chan *line, 2)}, "channel", l)
		require.NoError(t, err)
		s.Abandon()
		synctest.Wait()
		c := &conn{confirmed: make(chan struct{})}
		s.listenTo(c)
		s.confirm(c)
		assert.Len(t, l.openings, 1)
	})
}

// A loud records what is received on channels.
type loud struct{ heard []string }

func (*loud) Opened(string)             {}
func (l *loud) Received(channel string) { l.heard = append(l.heard, channel) }
func (*loud) Closed(string)             {}

// Channels, too, drop messages of an earlier connection. A session has any number of them.
func TestAMessageOnAChannelOfAnEarlierConnectionIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, l := lines{made: make(chan *line, 2)}, &loud{}
		c := NewChannels(client, time.Hour, l)
		c.Want("channel")
		first := <-client.made
		synctest.Wait()
		close(first.ended)
		second := <-client.made
		synctest.Wait()
		first.says("late")
		assert.Empty(t, l.heard)
		second.says("in time")
		c.Close()
		second.says("after the end")
		assert.Equal(t, []string{"channel"}, l.heard)
	})
}

// A channel is closed when it has not been wanted for a while, and opened again when it is wanted again.
func TestAChannelThatIsWantedAgainIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := lines{made: make(chan *line, 1)}
		c := NewChannels(client, time.Minute, &loud{})
		defer c.Close()
		for range 2 {
			c.Want("channel")
			time.Sleep(3 * time.Minute)
		}
		synctest.Wait()
		assert.Equal(t, []string{"SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE"}, (<-client.made).commands())
	})
}

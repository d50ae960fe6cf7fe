package push

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slow is a client whose server confirms a subscription only after a while. It can do nothing else.
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

// The first try to subscribe has until the caller's deadline, and no shorter limit: it waits for a server that is
// silent for a while.
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

// Without a deadline the first try does not wait for ever for a silent server. The error names the time limit.
func TestTheFirstTryWithoutADeadlineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, err := subscribed(context.Background(), time.Hour)
		require.ErrorContains(t, err, "subscribe: no confirmation within 5s")
		assert.NotContains(t, err.Error(), "Dialer.Timeout")
		assert.Equal(t, subscribeTimeout, took)
	})
}

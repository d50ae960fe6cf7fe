package redisson

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A message of Redisson that arrives between an acquire and the acquire's reply may be the one for which the session waits. The
// session in this test has ended, so its offers are recorded but never sent.
func TestAMessageDuringAnAcquireIsNotLost(t *testing.T) {
	s := NewListener(nil)
	s.Close()
	channel := wire.RedissonChannel("lock")
	offered := func() bool {
		l := s.locks[channel]
		require.NotNil(t, l)
		defer func() { l.offerAgain = false }()
		return l.offerAgain
	}
	now := func() time.Duration {
		time.Sleep(time.Microsecond) // so that the two times differ
		return clock.InstantOf(time.Now())
	}

	s.Waits("lock", nil, now())
	assert.False(t, offered(), "no message has arrived yet")
	s.Received(channel)
	assert.True(t, offered(), "the session waits")
	s.Arrived("lock")
	s.Received(channel)
	assert.False(t, offered(), "a session that does not wait makes no offer")
	s.Waits("lock", nil, now())
	assert.False(t, offered(), "the message arrived before the acquire")
	s.Arrived("lock")
	sent := now()
	s.Received(channel)
	s.Waits("lock", nil, sent)
	assert.True(t, offered(), "the message arrived after the acquire was sent")
	s.Waits("lock", nil, sent)
	assert.False(t, offered(), "a heartbeat of a waiter counts too")
}

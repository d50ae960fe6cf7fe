package redisson

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A message of Redisson between an acquire and its reply may be the one that the session waits for from then on. Offers of a session
// that has ended are asked for and not sent, so they can be seen here.
func TestAMessageDuringAnAcquireIsHeard(t *testing.T) {
	s := NewListener(nil)
	s.Close()
	channel := wire.RedissonChannel("lock")
	offered := func() bool {
		l := s.locks[channel]
		require.NotNil(t, l)
		defer func() { l.again = false }()
		return l.again
	}
	now := func() time.Duration {
		time.Sleep(time.Microsecond) // so that two moments differ
		return clock.InstantOf(time.Now())
	}

	s.Waits("lock", nil, now())
	assert.False(t, offered(), "the channel has not spoken yet")
	s.Received(channel)
	assert.True(t, offered(), "the session waits")
	s.Arrived("lock")
	s.Received(channel)
	assert.False(t, offered(), "it does not wait")
	s.Waits("lock", nil, now())
	assert.False(t, offered(), "that was before the acquire")
	s.Arrived("lock")
	sent := now()
	s.Received(channel)
	s.Waits("lock", nil, sent)
	assert.True(t, offered(), "that was after it")
	s.Waits("lock", nil, sent)
	assert.False(t, offered(), "a heartbeat of a waiter")
}

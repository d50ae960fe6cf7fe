package redisbackend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/reentrant"
)

// What the conformance suite does not see: the keys. Everything of a condition expires, and goes with its last waiter.
func TestConditionsLeaveNoKeysAndLetThemExpire(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		m := s.join("a")
		m.take(1)
		status, err := m.remote.Await(s.ctx(), reentrant.AwaitRequest{Condition: "ready", Epoch: 1, Ticket: 2, Owner: "o\x00 1",
			Holds: 3, Patience: patience, GrantTTL: grantTTL})
		require.NoError(s, err)
		require.Equal(s, reentrant.Waited, status)
		rest := "5:ready:" + s.name
		for _, kind := range []string{"c", "h"} {
			ttl, err := s.do("TTL", "relock:{"+s.name+"}:"+kind+":"+rest).ToInt64()
			require.NoError(s, err)
			assert.Positive(s, ttl, "%s expires", kind)
		}
		other := s.join("b")
		other.take(1)
		_, err = other.remote.Signal(s.ctx(), reentrant.SignalRequest{Condition: "ready", Epoch: 1, Op: 1})
		require.NoError(s, err)
		select {
		case got := <-m.signals:
			assert.Equal(s, signal{2, true}, got)
		case <-time.After(10 * time.Second):
			s.Fatal("no signal arrived")
		}
		other.release(1)
		assert.Equal(s, "3", must(s.do("HGET", s.name, "a:o\x00 1").ToString()), "the owner comes back as it was, any bytes")
		_, err = m.remote.Beat(s.ctx(), "ready", nil, []uint64{2})
		require.NoError(s, err)
		for _, kind := range []string{"c", "s", "h"} {
			n, err := s.do("EXISTS", "relock:{"+s.name+"}:"+kind+":"+rest).ToInt64()
			require.NoError(s, err)
			assert.Zero(s, n, "%s is gone", kind)
		}
	})
}

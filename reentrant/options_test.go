package reentrant

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOptionsZeroMeansDefault(t *testing.T) {
	c, err := newConfig([]Option{WithLease(0), WithHeartbeat(0), WithTurn(0, 0), WithSpin(0), WithLogger(nil)})
	require.NoError(t, err)
	assert.Equal(t, DefaultLease, c.Lease)
	assert.Equal(t, DefaultHeartbeat, c.Heartbeat)
	assert.Equal(t, DefaultTurnTime, c.HandoffTime)
	assert.NotNil(t, c.Logger)
}

func TestContradictingOptionsAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []Option
		want string
	}{
		{"negative lease", []Option{WithLease(-1)}, "WithLease"},
		{"negative heartbeat", []Option{WithHeartbeat(-1)}, "WithHeartbeat"},
		{"negative turn", []Option{WithTurn(-1, 0)}, "WithTurn"},
		{"turn of a negative time", []Option{WithTurn(0, -1)}, "WithTurn"},
		{"turn longer than a cohort's block", []Option{WithCohort(), WithTurn(1<<16, 0)}, "WithTurn"},
		{"turn that overflows", []Option{WithCohort(), WithTurn(math.MaxInt, 0)}, "WithTurn"},
		{"negative spin", []Option{WithSpin(-1)}, "WithSpin"},
		{"tiny lease", []Option{WithLease(time.Millisecond)}, "WithLease"},
		{"lease of a heartbeat", []Option{WithLease(time.Second), WithHeartbeat(time.Second)}, "WithHeartbeat"},
		{"turn as long as the lease", []Option{WithLease(time.Second), WithTurn(0, time.Second)}, "WithTurn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newConfig(c.opts)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestDerivedTimesLeaveRoomForALostMessage(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithLease(300 * time.Millisecond)}, {WithLease(time.Minute), WithHeartbeat(20 * time.Second)}} {
		c, err := newConfig(opts)
		require.NoError(t, err)
		assert.LessOrEqual(t, c.Heartbeat, c.Patience/3, "two heartbeats may be lost")
		assert.GreaterOrEqual(t, c.GrantTTL, 2*c.Heartbeat, "a grant whose message is lost is found by a heartbeat")
		assert.Less(t, c.CommandTimeout, c.Lease/2, "a renewal that hangs leaves time for another")
	}
}

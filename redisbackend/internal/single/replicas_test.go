package single

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/internal/clock"
)

// A line is a connection that notes its last command and gives no reply.
type line struct {
	rueidis.DedicatedClient
	sent []string
}

func (*line) B() rueidis.Builder { return rueidis.Builder{} }

func (l *line) Do(_ context.Context, cmd rueidis.Completed) (none rueidis.RedisResult) {
	l.sent = cmd.Commands()
	return none
}

// WAIT with a timeout of 0 would last until the replicas have the write, and WAIT refuses a negative timeout. So the timeout is
// always positive.
func TestReplicasAreWaitedForInALimitedTime(t *testing.T) {
	for _, left := range []time.Duration{-time.Hour, 0, time.Microsecond} {
		r := &Remote{Conn: &Conn{Deployment: &Deployment{Replicas: Replicas{Count: 1, Timeout: time.Hour}}}, Clock: &clock.Clock{}}
		var l line
		_, err := r.acknowledged(t.Context(), &l, time.Now().Add(left))
		require.Error(t, err)
		assert.Equal(t, []string{"WAIT", "1", "1"}, l.sent, "%v left", left)
	}
}

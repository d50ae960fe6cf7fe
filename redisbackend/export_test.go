package redisbackend

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/quorum"
)

// SetNodeLimit gives nodes more time, in tests that are not about how long they take: the machine may be busy.
func SetNodeLimit(q *quorum.Quorum, d time.Duration) { q.Limit = d }

// Idle waits until everything is done that the verbs of one of a Quorum's Conns have started. None may be under way.
func Idle(c backend.Conn) { c.(*quorum.Conn).Jobs.Wait() }

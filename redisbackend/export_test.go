package redisbackend

import (
	"time"

	"github.com/relock-go/relock/backend"
)

// SetNodeLimit gives nodes more time, in tests that are not about how long they take: the machine may be busy.
func SetNodeLimit(q *Quorum, d time.Duration) { q.limit = d }

// Idle waits until everything is done that the verbs of one of a Quorum's Conns have started. None may be under way.
func Idle(c backend.Conn) { c.(*quorumConn).jobs.Wait() }

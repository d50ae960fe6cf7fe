package redisbackend

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/quorum"
)

// SetNodeLimit gives nodes more time to reply, in tests that do not check that time: the machine may be busy.
func SetNodeLimit(q *quorum.Quorum, d time.Duration) { q.Limit = d }

// Idle waits until the background work that verbs of a Quorum's Conn have started is done. No verb may be running.
func Idle(c backend.Conn) { c.(*quorum.Conn).Jobs.Wait() }

package redisbackend

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/quorum"
)

// SetNodeLimit changes the time in which a node must reply. Tests that do not check this time make it longer, because the
// machine may be busy.
func SetNodeLimit(q *quorum.Quorum, d time.Duration) { q.Limit = d }

// Idle waits until the background work that verbs of a Quorum's Conn have started is done. No verb may be running.
func Idle(c backend.Conn) { c.(*quorum.Conn).Jobs.Wait() }
